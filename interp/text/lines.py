"""The texts of a file larger than memory, one line at a time.

A file that ends in ``.jsonl`` holds a JSON object a line, e.g. ``{"text": "a b a"}``; the decoder
of an encoder–decoder reads its ``target``, and other fields are left aside. Any other file holds
one text a line. Empty lines are skipped. For files of prompts, see :mod:`interp.text.prompts`.
"""

from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from interp.errors import InvalidInput, reason, shorten
from interp.files import UNREADABLE, open_regular, size_of
from interp.json_text import parse_json

LONGEST = 2**26
"""Bytes of a line."""


@dataclass(frozen=True)
class Line:
    """A text of a file.

    Attributes:
        text: what the model reads.
        source: the ``file:line`` that it was read from.
        target: what the decoder of an encoder–decoder reads; ``None`` if not given.
        end: bytes of the file up to its end.
        size: bytes of the file.
    """

    text: str
    source: str
    target: str | None
    end: int
    size: int


def read_lines(path: Path) -> Iterator[Line]:
    """The texts of a file in their order, each read when it is asked for.

    Raises:
        InvalidInput: the file can't be read, or a line is malformed, too long or not UTF-8; the
            message has the number of the line.
    """
    try:
        with open_regular(path) as file:
            yield from _lines(path, file, size_of(file))
    except UNREADABLE as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path} can't be read: {reason(error)}.") from error


def _lines(path: Path, file: BufferedReader, size: int) -> Iterator[Line]:
    number = end = 0
    while data := file.readline(LONGEST + 1):
        number, end = number + 1, end + len(data)
        source = f"{path}:{number}"
        if len(data) > LONGEST:
            raise InvalidInput(f"{source} has more than {LONGEST} bytes; write one text a line.")
        data = data.removeprefix(BOM_UTF8) if number == 1 else data
        try:
            text = data.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"{source} is not UTF-8 text (byte {error.start} of the line): {error.reason}."
            ) from error
        if text.strip():
            text, target = _fields(text, source) if path.suffix == ".jsonl" else (text, None)
            yield Line(text, source, target, end, size)


def _fields(line: str, source: str) -> tuple[str, str | None]:
    """``text`` and ``target`` of a JSON object."""
    try:
        values = parse_json(line)
    except ValueError as error:
        raise InvalidInput(f"{source}: not a JSON object: {reason(error)}.") from error
    text = values.get("text") if isinstance(values, dict) else None
    if not isinstance(values, dict) or not isinstance(text, str) or not text:
        raise InvalidInput(f'{source}: expected an object with a "text", got {shorten(line)}.')
    target = values.get("target")
    return text, target if isinstance(target, str) else None
