"""Reads a `tokenizer.json`, and refuses content that would crash the `tokenizers` library."""

from pathlib import Path
from typing import Any, Final

import tokenizers

from interp.errors import shorten
from interp.io import parse_json, read_bounded, return_freed_memory
from interp.text.growth import NormalizedLength, check_growth

MAX_BYTES: Final = 2**26
MANY_BYTES: Final = 2**22
"""The size of a file from which memory is returned to the system."""
MAX_CHARACTERS: Final = 2**22
"""Maximum number of characters of a normalized text: the library takes a hundred bytes for each."""
OF_MODEL: Final = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")
"""Fields of the tokenizer's model that a file may leave out."""


def read_backend(path: Path) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    """The tokenizer of a `tokenizer.json`, and the file's content without merges.

    The file of a large vocabulary has 30 MB, so that it is parsed once by each library, and the
    merges, most of its objects, are freed before the second time. Fields that the file may leave
    out have their defaults.

    Raises:
        OSError: The file can't be read.
        ValueError: It is too large, is not a JSON object, or would stop the process: the library
            takes memory for every id up to the largest and for every character of a text or an
            added token that is normalized, and aborts at a merge without the prefix.
    """
    content = read_bounded(path, MAX_BYTES)
    description = parse_json(content.decode())
    if not isinstance(description, dict):
        raise ValueError(f"it should be an object with fields, not {shorten(description)}")  # noqa: TRY004
    largest = max(_ids(description), default=0)
    if largest >= len(content):
        raise ValueError(
            f"it has the token id {shorten(largest)}, but only {len(content)} bytes; ids should "
            "count the tokens"
        )
    _check_merges(description.get("model"))
    check_growth(description)
    if not NormalizedLength(description, MAX_CHARACTERS).is_bounded(
        _normalized_tokens(description)
    ):
        raise ValueError(f"its normalizer makes added tokens of over {MAX_CHARACTERS} characters")
    if isinstance(description.get("model"), dict):
        description["model"].pop("merges", None)
    backend = tokenizers.Tokenizer.from_buffer(content)
    if len(content) > MANY_BYTES:
        return_freed_memory()
    model = backend.model
    names = [name for name in OF_MODEL if hasattr(model, name)]
    defaults = {"type": type(model).__name__} | {name: getattr(model, name) for name in names}
    optional = {"added_tokens": [], "normalizer": None, "pre_tokenizer": None, "decoder": None}
    return backend, {**optional, **description, "model": description["model"] | defaults}


def _ids(description: dict[str, Any]) -> list[int]:
    """All ids in a description; malformed parts are left for the library to refuse."""
    model, added = description.get("model"), description.get("added_tokens")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    ids: list[object] = list(vocab.values()) if isinstance(vocab, dict) else []
    if isinstance(added, list):
        ids += [token.get("id") for token in added if isinstance(token, dict)]
    return [id_ for id_ in ids if isinstance(id_, int)]


def _normalized_tokens(description: dict[str, Any]) -> str:
    """The texts of the added tokens that the library normalizes when it reads them."""
    added = description.get("added_tokens")
    tokens = (
        [token for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    )
    return "\n".join(str(token.get("content")) for token in tokens if token.get("normalized"))


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
