"""Tokenizers, bytes and labels of tokens, and prompt files."""

from interp.text.bundled import PROMPT_FOLDER, bundled_prompts, path_of_prompts
from interp.text.growth import NormalizedLength
from interp.text.parquet_pages import largest_page
from interp.text.prompt import FIELDS, ChatRenderer, Prompt, with_texts
from interp.text.prompts import (
    PromptFile,
    iter_prompts,
    read_prompt_file,
    read_prompts,
    sha256_of_prompts,
)
from interp.text.records import READERS, records_of
from interp.text.saved_dataset import is_dataset
from interp.text.template import Template
from interp.text.template_file import read_template
from interp.text.token_bytes import visible
from interp.text.tokenizer import PAD_LABEL, Tokenizer
from interp.text.tokenizer_file import MAX_CHARACTERS

__all__ = [
    "FIELDS",
    "MAX_CHARACTERS",
    "PAD_LABEL",
    "PROMPT_FOLDER",
    "READERS",
    "ChatRenderer",
    "NormalizedLength",
    "Prompt",
    "PromptFile",
    "Template",
    "Tokenizer",
    "bundled_prompts",
    "is_dataset",
    "iter_prompts",
    "largest_page",
    "path_of_prompts",
    "read_prompt_file",
    "read_prompts",
    "read_template",
    "records_of",
    "sha256_of_prompts",
    "visible",
    "with_texts",
]
