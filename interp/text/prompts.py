"""Prompt files: one JSON object a line, e.g. ``{"text": "a b a", "target": " b"}``.

``text`` is required; ``target`` and ``distractor`` are texts of one token each, for logit
differences. A file that does not end in ``.jsonl`` holds one plain-text prompt a line.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from interp.errors import InvalidInput

FIELDS = ("text", "target", "distractor")
PROMPT_FOLDER = Path(__file__).parent.parent / "zoo" / "prompts"


@dataclass(frozen=True)
class Prompt:
    """A text, and the tokens compared after it.

    Attributes:
        text: the model's input.
        target: the correct next token; ``None`` if not given.
        distractor: the token that the target is compared with; ``None`` if not given.
        source: the ``file:line`` that it was read from.
    """

    text: str
    target: str | None = None
    distractor: str | None = None
    source: str = ""


@dataclass(frozen=True)
class PromptFile:
    """The prompts of a file.

    Attributes:
        path: the file.
        prompts: in the order of the file.
        sha256: of the bytes that were read.
    """

    path: Path
    prompts: tuple[Prompt, ...]
    sha256: str


def bundled_prompts() -> list[str]:
    """Names of the bundled prompt sets."""
    return sorted(path.stem for path in PROMPT_FOLDER.glob("*.jsonl"))


def read_prompts(path: str | Path) -> list[Prompt]:
    """The prompts of a file, or of a bundled set given by name.

    Raises:
        InvalidInput: the file is missing, empty or not UTF-8, or a line is malformed.
    """
    return list(read_prompt_file(path).prompts)


def read_prompt_file(path: str | Path) -> PromptFile:
    """The prompts of a file with its hash, as for :func:`read_prompts`. It is read once.

    Raises:
        InvalidInput: see :func:`read_prompts`.
    """
    file = PROMPT_FOLDER / f"{path}.jsonl" if str(path) in bundled_prompts() else Path(path)
    parse = _json_prompt if file.suffix == ".jsonl" else _plain_prompt
    data = _bytes(file)
    text = _text(file, data).replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")  # splitlines() would also split at form feeds
    prompts = [parse(line, f"{file}:{n}") for n, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise InvalidInput(f"{file} holds no prompts; write one a line.")
    return PromptFile(file, tuple(prompts), hashlib.sha256(data).hexdigest())


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        known = ", ".join(bundled_prompts())
        raise InvalidInput(
            f"{file} can't be read: {error.strerror or error}. Bundled prompt sets: {known}."
        ) from error


def _text(file: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{file} is not UTF-8 text (byte {error.start}): {error.reason}."
        ) from error


def _plain_prompt(line: str, source: str) -> Prompt:
    return Prompt(line, source=source)


def _json_prompt(line: str, source: str) -> Prompt:
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{source}: not a JSON object: {error}.") from error
    if not isinstance(values, dict) or not isinstance(values.get("text"), str):
        raise InvalidInput(f'{source}: expected an object with a "text", got {line[:60]!r}.')
    unknown = sorted(set(values) - set(FIELDS))
    if unknown:
        raise InvalidInput(f"{source}: unknown field {unknown[0]!r}; known: {', '.join(FIELDS)}.")
    for field in FIELDS:
        if not isinstance(values.get(field), str | None):
            raise InvalidInput(f"{source}: {field} should be a text, got {values[field]!r}.")
    if not values["text"]:
        raise InvalidInput(f"{source}: the prompt is empty.")
    return Prompt(**values, source=source)
