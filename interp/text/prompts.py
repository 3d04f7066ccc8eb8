"""Prompt files: one JSON object a line, e.g. ``{"text": "a b a", "target": " b"}``.

``text`` is required; ``target`` and ``distractor`` are texts of one token each, for logit
differences. ``corrupt`` is a text of as many tokens that differs where the answer depends on it:
the two are a minimal pair (:mod:`interp.interventions.minimal_pairs`). ``prefix`` is what the
decoder of an encoder–decoder reads before the target. A file that does not end in ``.jsonl`` holds
one plain-text prompt a line.
"""

from codecs import BOM_UTF8
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path

from interp.errors import InvalidInput, reason, shorten
from interp.files import UNREADABLE, read_file_or_pipe
from interp.json_text import parse_json
from interp.paths import as_path

FIELDS = ("text", "corrupt", "prefix", "target", "distractor")
MAX_BYTES = 2**26
MAX_PROMPTS = 100_000
"""Of one file."""
PROMPT_FOLDER = Path(__file__).parent.parent / "zoo" / "prompts"


@dataclass(frozen=True)
class Prompt:
    """A text, and the tokens compared after it.

    Attributes:
        text: the model's input.
        target: the correct next token; ``None`` if not given.
        distractor: the token that the target is compared with; ``None`` if not given.
        source: the ``file:line`` that it was read from.
        corrupt: the corrupted text of a minimal pair; ``None`` if not given.
        prefix: what the decoder of an encoder–decoder reads; ``None`` if not given.
    """

    text: str
    target: str | None = None
    distractor: str | None = None
    source: str = ""
    corrupt: str | None = None
    prefix: str | None = None


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
        InvalidInput: the file is missing, empty, too large, a device or not UTF-8, or a
            line is malformed.
    """
    return list(read_prompt_file(path).prompts)


def read_prompt_file(path: str | Path) -> PromptFile:
    """The prompts of a file with its hash, as for :func:`read_prompts`. It is read once.

    Raises:
        InvalidInput: see :func:`read_prompts`.
    """
    file = path_of_prompts(path)
    parse = _json_prompt if file.suffix == ".jsonl" else _plain_prompt
    data = _content(file)
    text = data.removeprefix(BOM_UTF8).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    prompts: list[Prompt] = []
    # Only these end a line; splitlines() would also split at form feeds.
    for number, line in enumerate(BytesIO(text), 1):
        source = f"{file}:{number}"
        decoded = _decoded(line.removesuffix(b"\n"), source)
        if decoded.strip():
            prompts.append(parse(decoded, source))
        if len(prompts) > MAX_PROMPTS:
            raise InvalidInput(f"{file} holds more than {MAX_PROMPTS} prompts; split it.")
    if not prompts:
        raise InvalidInput(f"{file} holds no prompts; write one a line.")
    return PromptFile(file, tuple(prompts), sha256(data).hexdigest())


def path_of_prompts(path: str | Path) -> Path:
    """The file of a bundled set given by name, or the path itself."""
    path = as_path(path)
    return PROMPT_FOLDER / f"{path}.jsonl" if str(path) in bundled_prompts() else path


def _content(file: Path) -> bytes:
    try:
        return read_file_or_pipe(file, MAX_BYTES)
    except UNREADABLE as error:
        known = ", ".join(bundled_prompts())
        raise InvalidInput(
            f"{file} can't be read: {reason(error)}. Bundled prompt sets: {known}."
        ) from error


def _decoded(line: bytes, source: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{source} is not UTF-8 text (byte {error.start} of the line): {error.reason}."
        ) from error


def _plain_prompt(line: str, source: str) -> Prompt:
    return Prompt(line, source=source)


def _json_prompt(line: str, source: str) -> Prompt:
    try:
        values = parse_json(line)
    except ValueError as error:
        raise InvalidInput(f"{source}: not a JSON object: {reason(error)}.") from error
    if not isinstance(values, dict) or not isinstance(values.get("text"), str):
        raise InvalidInput(f'{source}: expected an object with a "text", got {shorten(line)}.')
    unknown = sorted(set(values) - set(FIELDS))
    if unknown:
        known = ", ".join(FIELDS)
        raise InvalidInput(f"{source}: unknown field {shorten(unknown[0])}; known: {known}.")
    for field in FIELDS:
        value = values.get(field)
        if not isinstance(value, str | None):
            raise InvalidInput(f"{source}: {field} should be a text, got {shorten(value)}.")
    if not values["text"]:
        raise InvalidInput(f"{source}: the prompt is empty.")
    if values.get("corrupt") in ("", values["text"]):
        raise InvalidInput(
            f"{source}: corrupt should be a text other than the prompt; leave it out if there is "
            "none."
        )
    return Prompt(**values, source=source)
