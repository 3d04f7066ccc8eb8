"""Sets of prompts (bundled, files, tables, datasets, templates); corpora larger than memory."""

from interp.prompts.bundled import PROMPT_FOLDER, bundled_prompts, path_of_prompts
from interp.prompts.parquet_pages import largest_page
from interp.prompts.prompt import FIELDS, MESSAGES, ChatRenderer, Prompt, prompt_of, with_texts
from interp.prompts.prompt_metrics import (
    logit_diff_of_prompts,
    masked_loss_of_targets,
    tokens_of_prompts,
)
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
from interp.prompts.texts import (
    Pool,
    batches_to_continue,
    by_length,
    no_texts,
    pools_of,
    read_batches,
    rows_of,
)

__all__ = [
    "FIELDS",
    "MESSAGES",
    "PROMPT_FOLDER",
    "READERS",
    "ChatRenderer",
    "Pool",
    "Prompt",
    "PromptFile",
    "Template",
    "batches_to_continue",
    "bundled_prompts",
    "by_length",
    "is_dataset",
    "iter_prompts",
    "largest_page",
    "logit_diff_of_prompts",
    "masked_loss_of_targets",
    "no_texts",
    "path_of_prompts",
    "pools_of",
    "prompt_of",
    "read_batches",
    "read_prompt_file",
    "read_prompts",
    "read_template",
    "records_of",
    "rows_of",
    "sha256_of_prompts",
    "tokens_of_prompts",
    "with_texts",
]
