"""Byte-level BPE with few merges, for small models of Python source.

Each of the 256 bytes is a token, so every text can be encoded and decodes to itself. The other
tokens are merges of the most frequent adjacent pairs. Text is split into pieces first, and no
token crosses a boundary between pieces:

    newlines with the indentation after them · letters · one digit · symbols · other spaces

GPT-2's pattern joins the last space of an indentation to the word after it, so the first word of an
indented line and that of an unindented one are different tokens. Here, an indentation and the line
break before it are one piece: the first word of a line has the same tokens at every depth, and one
token gives the depth of a block.

Reference: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", §2.2.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

import tokenizers
import torch
from jaxtyping import Int32
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from interp.errors import InvalidInput, InvalidTokens

BOS: Final = "<|bos|>"
"""The token that begins every document; its id is 0."""

_PIECES: Final = r"\n+ *| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|[^\S\n]+(?!\S)|[^\S\n]+"
_BYTES: Final = 256


def train_bpe(
    texts: Iterable[str], vocab_size: int = 512, special: Sequence[str] = (BOS,)
) -> tokenizers.Tokenizer:
    """Train a byte-level BPE. The result does not depend on the order of the texts.

    Args:
        texts: the texts whose pairs are counted.
        vocab_size: number of tokens: special tokens, 256 bytes, and merges. The tokenizer has
            fewer if the texts have too few pairs to merge.
        special: special tokens, with ids from 0 on.

    Returns:
        A tokenizer that adds no tokens to a text: ``decode(encode(text)) == text``.

    Raises:
        InvalidInput: ``vocab_size`` is too small for the special tokens and all bytes.
    """
    least = len(special) + _BYTES
    if vocab_size < least:
        raise InvalidInput(
            f"vocab_size={vocab_size} is too small for {len(special)} special tokens and "
            f"{_BYTES} bytes; it must be at least {least}."
        )
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode_corpus(
    tokenizer: tokenizers.Tokenizer, texts: Sequence[str], bos: str = BOS
) -> Int32[Tensor, " token"]:
    """Encode all texts into one row of ids, with a BOS before each text.

    Args:
        tokenizer: from :func:`train_bpe`.
        texts: the documents, in order.
        bos: the special token that begins each document.

    Returns:
        Ids ``[token]``, int32.

    Raises:
        InvalidTokens: the tokenizer has no token ``bos``, or a text contains it, which would look
            like the beginning of another document.
    """
    first = tokenizer.token_to_id(bos)
    if first is None:
        raise InvalidTokens(f"The tokenizer has no token {bos!r} to begin a document with.")
    if any(bos in text for text in texts):
        raise InvalidTokens(f"A text contains {bos!r}, which may only begin a document.")
    rows = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    ids = chain.from_iterable([first, *row.ids] for row in rows)
    return torch.tensor(list(ids), dtype=torch.int32)
