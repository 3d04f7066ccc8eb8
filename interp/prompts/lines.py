"""Reads the lines of a text file one at a time: UTF-8, of bounded length.

A line ends with a line feed, a carriage return or both; form feeds and Unicode separators do not
end a line.
"""

from codecs import BOM_UTF8
from collections.abc import Iterator
from io import BufferedReader, BytesIO, TextIOWrapper
from typing import NamedTuple

from interp.errors import InvalidInput

MAX_LINE_BYTES = 2**26
"""Maximum number of bytes in a line."""
OpenFile = BufferedReader | BytesIO
"""A file that is open for reading, or its content."""


class Line(NamedTuple):
    """A line of a file.

    Attributes:
        text: the text, with its line end.
        source: ``file:line``, with lines counted from 1.
        end: number of bytes of the file up to the end of the line.
    """

    text: str
    source: str
    end: int


def lines_of(file: OpenFile, name: str) -> Iterator[Line]:
    """Iterate over the lines of an open file, without a byte-order mark.

    Args:
        file: the file, which is read from its current position and closed at its end.
        name: name of the file, for the sources of lines.

    Raises:
        OSError: the file can't be read.
        InvalidInput: a line is too long, is not UTF-8 or contains a NUL byte; the message has its
            number.
    """
    number = end = 0
    # Each byte is one character of Latin-1, so that lines are split before they are decoded.
    with TextIOWrapper(file, encoding="latin-1", newline="") as read:
        while line := read.readline(MAX_LINE_BYTES + 1):
            number, end = number + 1, end + len(line)
            data = line.encode("latin-1")
            data = data.removeprefix(BOM_UTF8) if number == 1 else data
            source = f"{name}:{number}"
            yield Line(_decoded(data, source), source, end)


def _decoded(data: bytes, source: str) -> str:
    if len(data) > MAX_LINE_BYTES:
        raise InvalidInput(
            f"{source} has more than {MAX_LINE_BYTES} bytes; write one text per line."
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{source} is not UTF-8 text (byte {error.start} of the line): {error.reason}. Save "
            "the file as UTF-8."
        ) from error
    if "\0" in text:
        raise InvalidInput(
            f"{source} holds a NUL byte (byte {data.index(0)} of the line), so it is not UTF-8 "
            "text but a binary file, or UTF-16. Save the file as UTF-8."
        )
    return text
