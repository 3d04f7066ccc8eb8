"""BOS and padding of token ids, for tokenizers such as those of ``transformers``."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from interp.compat.utils.tensors import get_cumsum_along_dim
from interp.errors import InvalidInput


def get_tokenizer_with_bos(tokenizer: Any) -> Any:
    """A tokenizer that prepends BOS: the same one if it does or has no BOS, else loaded again.

    Raises:
        InvalidInput: ``transformers`` is not installed.
    """
    options = deepcopy(getattr(tokenizer, "init_kwargs", {}))
    adds = options.pop("add_bos_token", None)
    adds = getattr(tokenizer, "add_bos_token", False) if adds is None else adds
    if tokenizer.bos_token is None or adds:
        return tokenizer
    try:
        from transformers import AutoTokenizer  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise InvalidInput("This needs the package transformers, which is missing.") from error
    name = options.pop("name_or_path")
    try:
        with_bos = AutoTokenizer.from_pretrained(name, add_bos_token=True, **options)
    except ValueError:  # a BOS with a colon, which the post-processor can't express
        return tokenizer
    with_bos.padding_side = tokenizer.padding_side
    return with_bos


def get_input_with_manually_prepended_bos(
    bos_token: str | None,
    input: str | list[str],
) -> str | list[str]:
    """Prepend BOS to a text or to each of several texts, unless it is ``None``."""
    if bos_token is None:
        return input
    if isinstance(input, str):
        return bos_token + input
    return [bos_token + text for text in input]


def get_tokens_with_bos_removed(
    tokenizer: Any,
    tokens: Tensor,
    padding_side: str | None = None,
) -> Tensor:
    """Tokens ``[batch pos]`` without the BOS of each row.

    Args:
        tokenizer: a tokenizer with ids of BOS and padding, and a padding side.
        tokens: rows with BOS before the text.
        padding_side: the padding side; by default the tokenizer's.
    """
    if tokenizer.bos_token_id is None:
        return tokens
    if (padding_side or tokenizer.padding_side) == "right":
        return tokens[..., 1:]
    if tokenizer.bos_token_id == tokenizer.pad_token_id:
        bos = _leading(tokens.ne(tokenizer.pad_token_id)).sum(-1) - 1
    else:
        bos = tokens.eq(tokenizer.bos_token_id).int().argmax(-1)
    kept = torch.ones_like(tokens, dtype=torch.bool).scatter(1, bos[:, None], value=False)
    return tokens[kept].view(*tokens.shape[:-1], -1)


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
        return mask.masked_fill(get_cumsum_along_dim(is_token, -1, reverse=True) == 0, 0)
    leading = _leading(is_token)
    mask[leading] = 0
    if prepend_bos and tokenizer.bos_token_id == tokenizer.pad_token_id:
        mask[torch.arange(len(mask)), leading.sum(-1) - 1] = 1
    return mask


def _leading(is_token: Tensor) -> Tensor:
    """True before the first token of each row."""
    return is_token.cumsum(-1) == 0
