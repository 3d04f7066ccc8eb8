"""The lines of a text file, one at a time: UTF-8, of bounded length.

A line ends with a line feed, a carriage return or both; form feeds and the separators of Unicode
are characters of a line like any other.
"""

from codecs import BOM_UTF8
from collections.abc import Iterator
from io import BufferedReader, BytesIO, TextIOWrapper
from typing import NamedTuple

from interp.errors import InvalidInput

LONGEST = 2**26
"""Bytes of a line."""
OpenFile = BufferedReader | BytesIO
"""A file that is open to be read, or what it holds."""


class Line(NamedTuple):
    """A line of a file.

    Attributes:
        text: with its line end.
        source: ``file:line``, from 1.
        end: bytes of the file up to its end.
    """

    text: str
    source: str
    end: int


def lines_of(file: OpenFile, name: str) -> Iterator[Line]:
    """The lines of an open file, each read when it is asked for, without a byte-order mark.

    Args:
        file: read from where it stands, and closed at its end.
        name: of the file, for the sources of lines.

    Raises:
        OSError: the file can't be read.
        InvalidInput: a line is too long, not UTF-8 or holds a NUL byte; the message has its number.
    """
    number = end = 0
    # Each byte is one character of Latin-1, so that lines are split before they are decoded.
    with TextIOWrapper(file, encoding="latin-1", newline="") as read:
        while line := read.readline(LONGEST + 1):
            number, end = number + 1, end + len(line)
            data = line.encode("latin-1")
            data = data.removeprefix(BOM_UTF8) if number == 1 else data
            source = f"{name}:{number}"
            yield Line(_decoded(data, source), source, end)


def _decoded(data: bytes, source: str) -> str:
    if len(data) > LONGEST:
        raise InvalidInput(f"{source} has more than {LONGEST} bytes; write one text a line.")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{source} is not UTF-8 text (byte {error.start} of the line): {error.reason}. Save "
            "the file as UTF-8."
        ) from error
    if "\0" in text:
        raise InvalidInput(
            f"{source} holds a NUL byte (byte {data.index(0)} of the line), so it is no UTF-8 text "
            "but a binary file, or UTF-16. Save the file as UTF-8."
        )
    return text
