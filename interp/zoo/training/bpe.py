"""Which tokens should a small model of Python source have? Byte-level BPE with few merges.

Every one of the 256 bytes is a token, so any text at all has an encoding and comes back the same;
the rest are the pairs most often side by side, merged one after another. Text is cut before
merging, and no token crosses a cut:

    newlines with the indentation after them · letters · one digit · signs · other spaces

GPT-2's rule gives a line's last space of indentation to its first word, so that `return` is one
token at the start of a line and another in its middle. Here an indentation is one token and
words look alike in every line; the depth of a block can be read off one token.

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
    """Trains a byte-level BPE: the same texts give the same tokenizer, in whatever order they come.

    Args:
        texts: The texts to count pairs in.
        vocab_size: Number of tokens: the special ones, 256 bytes, and merges. Fewer come out if
            the texts have too few pairs to merge.
        special: Special tokens, which get the ids from 0 on.

    Returns:
        A tokenizer that adds nothing to a text: `decode(encode(text)) == text`.

    Raises:
        InvalidInput: `vocab_size` has no room for all bytes.
    """
    least = len(special) + _BYTES
    if vocab_size < least:
        raise InvalidInput(
            f"A vocabulary of {vocab_size} has no room for {len(special)} special tokens and all "
            f"{_BYTES} bytes; vocab_size must be at least {least}."
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
    """All texts as one row of ids, each text after a BOS.

    Args:
        tokenizer: From `train_bpe`.
        texts: The documents, in the order in which they are to stand.
        bos: The special token that begins each document.

    Returns:
        Ids `[token]`, int32, which an embedding takes as they are.

    Raises:
        InvalidTokens: The tokenizer has no token `bos`, or a text spells it out, which would look
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
