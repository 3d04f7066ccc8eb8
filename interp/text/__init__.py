"""Tokenizers, bytes and labels of tokens, and what a prompt is."""

from interp.text.growth import NormalizedLength
from interp.text.prompt import FIELDS, MESSAGES, ChatRenderer, Prompt, prompt_of, with_texts
from interp.text.token_bytes import visible
from interp.text.tokenizer import PAD_LABEL, Tokenizer
from interp.text.tokenizer_file import MAX_CHARACTERS

__all__ = [
    "FIELDS",
    "MAX_CHARACTERS",
    "MESSAGES",
    "PAD_LABEL",
    "ChatRenderer",
    "NormalizedLength",
    "Prompt",
    "Tokenizer",
    "prompt_of",
    "visible",
    "with_texts",
]
