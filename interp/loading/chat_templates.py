"""The chat templates of a folder, a GGUF file and a tokenizer of ``transformers``.

| where | what |
| --- | --- |
| ``chat_templates.json`` | templates by name and special tokens, as ``model.save`` writes them |
| ``chat_template.jinja``, ``additional_chat_templates/NAME.jinja`` | a template each |
| ``tokenizer_config.json`` | ``chat_template``: a template, or a list of named ones |
| ``tokenizer.chat_template``, ``tokenizer.chat_template.NAME`` | metadata of a GGUF file |

The first one that is there is read. A model with a damaged one loads; the error is raised when a
chat is made.
"""

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from interp.chat import MAX_TEMPLATE, ChatTemplates
from interp.errors import reason
from interp.io import UNREADABLE, read_bounded
from interp.loading.tokenizer_config import SPECIAL, TOKENIZER_CONFIG
from interp.saved import CHAT

FILE, FOLDER = "chat_template.jinja", "additional_chat_templates"
MAX_FILES = 101
"""Maximum number of files of templates that are read; more of them are refused."""
MAX_BYTES = 2**26
GGUF = "tokenizer.chat_template"
GGUF_TOKENS = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "sep_token": "seperator",  # as in the format
    "pad_token": "padding",
    "cls_token": "cls",
    "mask_token": "mask",
}
"""The names of special tokens in templates, and in GGUF files."""


def chat_of_folder(folder: Path, settings: Mapping[str, Any]) -> ChatTemplates | None:
    """The chat templates of a folder; ``None`` if it has none.

    Args:
        folder: the folder.
        settings: the content of its ``tokenizer_config.json``.
    """
    path = folder / CHAT
    try:
        if path.exists():
            return ChatTemplates.from_json(read_bounded(path, MAX_BYTES).decode())
        files = [path for path in (folder / FILE,) if path.exists()]
        files += islice(sorted((folder / FOLDER).glob("*.jinja")), MAX_FILES)
        templates: dict[str, str] = {}
        for path in files:
            text = read_bounded(path, 4 * MAX_TEMPLATE).decode()
            templates["default" if path.name == FILE else path.stem] = text
    except UNREADABLE as error:
        return ChatTemplates(problem=f"{path} can't be read: {reason(error)}.")
    return ChatTemplates.of(
        templates or settings.get("chat_template"), _texts(settings), TOKENIZER_CONFIG
    )


def _texts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The texts of the special tokens, some of which are objects with flags."""
    values = {name: settings.get(name) for name in SPECIAL}
    return {
        name: value.get("content") if isinstance(value, Mapping) else value
        for name, value in values.items()
    }


def chat_of_gguf(metadata: Mapping[str, Any]) -> ChatTemplates | None:
    """The chat templates of a GGUF file; ``None`` if it has none."""
    templates = {
        "default" if name == GGUF else name.removeprefix(f"{GGUF}."): value
        for name, value in metadata.items()
        if name == GGUF or name.startswith(f"{GGUF}.")
    }
    tokens = metadata.get("tokenizer.ggml.tokens")
    texts = tokens if isinstance(tokens, list) else []
    ids = {
        name: metadata.get(f"tokenizer.ggml.{gguf}_token_id") for name, gguf in GGUF_TOKENS.items()
    }
    special = {
        name: texts[id_]
        for name, id_ in ids.items()
        if isinstance(id_, int) and 0 <= id_ < len(texts)
    }
    return ChatTemplates.of(templates or None, special, "its metadata")


def chat_of_tokenizer(tokenizer: object) -> ChatTemplates | None:
    """The chat templates of a tokenizer of ``transformers``; ``None`` if it has none."""
    return ChatTemplates.of(
        getattr(tokenizer, "chat_template", None),
        getattr(tokenizer, "special_tokens_map", None),
        "the tokenizer",
    )
