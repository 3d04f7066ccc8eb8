"""Tokenizers, bytes and labels of tokens, chat templates."""

from interp.text.chat_templates import MAX_TEMPLATE, ChatTemplates
from interp.text.growth import NormalizedLength
from interp.text.token_bytes import visible
from interp.text.tokenizer import PAD_LABEL, Tokenizer
from interp.text.tokenizer_file import MAX_CHARACTERS

__all__ = [
    "MAX_CHARACTERS",
    "MAX_TEMPLATE",
    "PAD_LABEL",
    "ChatTemplates",
    "NormalizedLength",
    "Tokenizer",
    "visible",
]
