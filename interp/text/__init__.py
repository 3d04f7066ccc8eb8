"""Tokenizers, bytes and labels of tokens."""

from interp.text.growth import NormalizedLength
from interp.text.token_bytes import visible
from interp.text.tokenizer import PAD_LABEL, Tokenizer
from interp.text.tokenizer_file import MAX_CHARACTERS

__all__ = [
    "MAX_CHARACTERS",
    "PAD_LABEL",
    "NormalizedLength",
    "Tokenizer",
    "visible",
]
