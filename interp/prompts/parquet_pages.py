"""The sizes of the pages of a Parquet file, read before any page is unpacked.

A page of a few bytes can state that it unpacks to 2 GiB, whatever the metadata of the file say, and
the library takes that memory. So the header of each page, a Thrift structure in the compact
protocol, is read first.

Reference: https://github.com/apache/parquet-format (``PageHeader``).
"""

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

from interp.prompts.lines import MAX_LINE_BYTES, OpenFile

MAX_HEADER_BYTES = 2**20
"""Maximum number of bytes of the header of a page, which may hold the least and largest value."""
MAX_NESTING = 8
UNPACKED, PACKED = 2, 3
"""The numbers of the fields of a header with the size of the page, before and after compression."""
_BOOLEANS, _LENGTHS, _INTEGERS, _BINARY, _LISTS, _STRUCT = (
    (1, 2),
    {3: 1, 7: 8},
    (4, 5, 6),
    8,
    (9, 10),
    12,
)
"""Kinds of values: a byte and a double by their lengths."""
_LONG = 15


def largest_page(file: OpenFile, metadata: Any, fields: Sequence[str]) -> int:  # noqa: ANN401
    """The size in bytes of the largest page of some columns after it is unpacked.

    Args:
        file: the file.
        metadata: its metadata, as ``ParquetFile.metadata``.
        fields: names of the columns.

    Raises:
        ValueError: a header can't be read, or a page is larger than a line of text may be.
    """
    largest = 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns if row_group.num_rows else 0):
            column = row_group.column(number)
            if column.path_in_schema.partition(".")[0] in fields:
                largest = max(largest, *_pages(file, column), 0)
    return largest


def _pages(file: OpenFile, column: Any) -> Iterator[int]:  # noqa: ANN401 - as above
    """The size of each page of a column of a row group."""
    start = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
        start = column.dictionary_page_offset
    end = start + column.total_compressed_size
    while start < end:
        file.seek(start)
        header = BytesIO(file.read(MAX_HEADER_BYTES))
        sizes = _structure(header, MAX_NESTING)
        packed, unpacked = sizes.get(PACKED, -1), sizes.get(UNPACKED, -1)
        if packed < 0 or unpacked < 0:
            raise ValueError("the header of a page has no sizes")
        if unpacked > MAX_LINE_BYTES:
            raise ValueError(f"a page has {unpacked} bytes; at most {MAX_LINE_BYTES} are read")
        yield unpacked
        start += header.tell() + packed


def _structure(data: BytesIO, nesting: int) -> dict[int, int]:
    """The integers of a structure by the numbers of their fields; other values are skipped."""
    integers, number = dict[int, int](), 0
    while head := _byte(data):
        number = number + (head >> 4) if head >> 4 else _signed(data)
        if head & 15 in _INTEGERS:
            integers[number] = _signed(data)
        else:
            _skip(data, head & 15, nesting)
    return integers


def _skip(data: BytesIO, kind: int, nesting: int, *, is_item: bool = False) -> None:
    if nesting == 0 or data.tell() >= MAX_HEADER_BYTES:
        raise ValueError("the header of a page is too long, or nested too deeply")
    if kind in _LISTS:
        head = _byte(data)
        for _ in range(head >> 4 if head >> 4 < _LONG else _unsigned(data)):
            _skip(data, head & 15, nesting - 1, is_item=True)
    elif kind == _STRUCT:
        _structure(data, nesting - 1)
    elif kind in _LENGTHS or kind == _BINARY:
        _take(data, _LENGTHS[kind] if kind in _LENGTHS else _unsigned(data))
    elif kind in _INTEGERS:
        _unsigned(data)
    elif kind in _BOOLEANS:  # of a field, the kind is the value
        _take(data, int(is_item))
    else:
        raise ValueError("the header of a page is damaged")


def _take(data: BytesIO, length: int) -> bytes:
    part = data.read(length)
    if len(part) < length:
        raise ValueError("the header of a page ends too early")
    return part


def _byte(data: BytesIO) -> int:
    return _take(data, 1)[0]


def _unsigned(data: BytesIO) -> int:
    value = shift = 0
    while (byte := _byte(data)) & 128:
        value |= (byte & 127) << shift
        shift += 7
    return value | byte << shift


def _signed(data: BytesIO) -> int:
    value = _unsigned(data)
    return value >> 1 ^ -(value & 1)
