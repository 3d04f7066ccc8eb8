"""Sets of prompts: bundled ones, files, tables, datasets, and templates that are filled."""

from interp.prompts.bundled import PROMPT_FOLDER, bundled_prompts, path_of_prompts
from interp.prompts.parquet_pages import largest_page
from interp.prompts.prompts import (
    PromptFile,
    iter_prompts,
    read_prompt_file,
    read_prompts,
    sha256_of_prompts,
)
from interp.prompts.records import READERS, records_of
from interp.prompts.saved_dataset import is_dataset
from interp.prompts.template import Template
from interp.prompts.template_file import read_template

__all__ = [
    "PROMPT_FOLDER",
    "READERS",
    "PromptFile",
    "Template",
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
]
