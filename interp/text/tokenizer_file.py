"""Reads a `tokenizer.json`, and refuses content that would crash the `tokenizers` library."""

from pathlib import Path
from typing import Any, Final

from interp.errors import shorten
from interp.files import read_bounded
from interp.json_text import parse_json

MAX_BYTES: Final = 2**26


def read_description(path: Path) -> dict[str, Any]:
    """The content of a `tokenizer.json`, without truncation and padding.

    Raises:
        OSError: The file can't be read.
        ValueError: It is too large, is not a JSON object, or would stop the process: the library
            takes memory for every id up to the largest, and aborts at a merge without the prefix.
    """
    content = read_bounded(path, MAX_BYTES)
    description = parse_json(content.decode())
    if not isinstance(description, dict):
        raise ValueError(  # noqa: TRY004 - as parse_json does
            f"it should be an object with fields, not {shorten(description)}"
        )
    largest = max(_ids(description), default=0)
    if largest >= len(content):
        raise ValueError(
            f"it has the token id {shorten(largest)}, but only {len(content)} bytes; ids should "
            "count the tokens"
        )
    _check_merges(description.get("model"))
    return description | {"truncation": None, "padding": None}


def _ids(description: dict[str, Any]) -> list[int]:
    """All ids in a description; malformed parts are left for the library to refuse."""
    model, added = description.get("model"), description.get("added_tokens")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    ids: list[object] = list(vocab.values()) if isinstance(vocab, dict) else []
    if isinstance(added, list):
        ids += [token.get("id") for token in added if isinstance(token, dict)]
    return [one for one in ids if isinstance(one, int)]


def _check_merges(model: object) -> None:
    """Check that the last piece of each merge has the prefix of continuing pieces."""
    prefix = model.get("continuing_subword_prefix") if isinstance(model, dict) else None
    merges = model.get("merges") if isinstance(model, dict) else None
    if not (isinstance(prefix, str) and isinstance(merges, list)):
        return
    for merge in merges:
        pieces = merge.split(" ") if isinstance(merge, str) else merge
        last = pieces[-1] if isinstance(pieces, list) and pieces else None
        if isinstance(last, str) and not last.startswith(prefix):
            raise ValueError(f"the merge {shorten(merge)} lacks the prefix {shorten(prefix)}")
