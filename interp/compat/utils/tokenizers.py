"""Which tokens are padding, for tokenizers such as those of ``transformers``."""

from typing import Any

import torch
from torch import Tensor

USE_DEFAULT_VALUE = None
"""The value of ``prepend_bos`` and ``padding_side`` that does not override the default."""


def get_attention_mask(
    tokenizer: Any,
    tokens: Tensor,
    prepend_bos: bool,
    padding_side: str | None = None,
) -> Tensor:
    """1 for tokens, 0 for padding on the padding side; padding ids elsewhere count as tokens.

    Args:
        tokenizer: a tokenizer with ids of BOS and padding, and a padding side; if ``None``, the
            mask is 1 everywhere.
        tokens: ``[batch pos]``.
        prepend_bos: whether rows have BOS; if it has the id of padding, the last padding id on the
            left is BOS.
        padding_side: the padding side; by default the tokenizer's.
    """
    mask = torch.ones_like(tokens)
    if tokenizer is None:
        return mask
    is_token = tokens.ne(tokenizer.pad_token_id)
    if (padding_side or tokenizer.padding_side) == "right":
        return mask.masked_fill(is_token.flip(-1).cumsum(-1).flip(-1) == 0, 0)
    leading = is_token.cumsum(-1) == 0
    mask[leading] = 0
    if prepend_bos and tokenizer.bos_token_id == tokenizer.pad_token_id:
        mask[torch.arange(len(mask)), leading.sum(-1) - 1] = 1
    return mask


def get_tokens_with_bos_removed(
    tokenizer: Any, tokens: Tensor, padding_side: str | None = None
) -> Tensor:
    """The same rows of ids ``[batch pos]`` without the BOS of each.

    Args:
        tokenizer: the tokenizer that prepended them.
        tokens: the ids.
        padding_side: the side on which rows are padded; by default that of the tokenizer.
    """
    if tokenizer.bos_token_id is None:
        return tokens
    if (padding_side or tokenizer.padding_side) == "right":
        return tokens[..., 1:]
    if tokenizer.bos_token_id == tokenizer.pad_token_id:
        first = tokens.ne(tokenizer.pad_token_id).cumsum(-1).eq(0).sum(-1) - 1
    else:
        first = tokens.eq(tokenizer.bos_token_id).int().argmax(-1)
    keep = torch.arange(tokens.shape[-1], device=tokens.device) != first[..., None]
    return tokens[keep].view(*tokens.shape[:-1], -1)
