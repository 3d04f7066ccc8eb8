"""Tables of prompts (CSV, tab-separated values, Parquet), with a column for each field of a prompt.

Cells are used unchanged, spaces included (`` target`` differs from ``target``); an empty cell of a
CSV file, or a null, means that the field is not given. Other columns are ignored, unless the name
of one resembles that of a field.
"""

import csv
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from interp.errors import InterpError, InvalidInput, first_line, shorten
from interp.prompts.lines import OpenFile, lines_of
from interp.prompts.parquet_pages import largest_page
from interp.prompts.prompt import FIELDS
from interp.prompts.record import Record

if TYPE_CHECKING:
    import _csv

ROWS, BATCH_BYTES = 1024, 2**26
"""Maximum number of rows of a Parquet file that are in memory at a time, and of their bytes."""
MAX_NAMED, MAX_COMPARED = 10, 1000
"""Maximum number of columns that a message names, and that are compared with names of fields."""


def columns_read(columns: Sequence[str], name: str) -> list[str]:
    """The columns of a table that are fields of prompts.

    Args:
        columns: names of all columns.
        name: name of the table, for messages.

    Raises:
        InvalidInput: the table has no column ``text``, a column twice, or a column whose name
            resembles that of a missing field; the message has the nearest name.
    """
    if "text" not in columns:
        some = ", ".join(map(shorten, columns[:MAX_NAMED])) or "no column"
        near = get_close_matches("text", columns[:MAX_COMPARED], n=1, cutoff=0.4)
        which = (
            f"; rename the nearest, {shorten(near[0])}" if near else "; rename the one with prompts"
        )
        raise InvalidInput(f"{name} has no column 'text', it has {some}{which}.")
    for field in FIELDS:
        if columns.count(field) > 1:
            raise InvalidInput(f"{name} has the column {field!r} twice; leave one out.")
    for column in columns[:MAX_COMPARED]:
        near = get_close_matches(column.lower(), FIELDS, n=1, cutoff=0.8)
        if column not in FIELDS and near and near[0] not in columns:
            raise InvalidInput(
                f"{name} has a column {shorten(column)}, but no {near[0]!r}. Rename it to "
                f"{near[0]!r} if that is meant, or to something else if not."
            )
    return [column for column in columns if column in FIELDS]


def csv_records(file: OpenFile, name: str, size: int, *, delimiter: str = ",") -> Iterator[Record]:
    """Iterate over the rows of a CSV file, whose first line has the names of columns.

    A cell that contains a delimiter, a quote or a line end is quoted, with quotes in it doubled
    (RFC 4180).

    Raises:
        InvalidInput: a row has another number of cells, or its quotes are wrong; the message has
            the line. See also :func:`columns_read`.
    """
    end = 0

    def texts() -> Iterator[str]:
        nonlocal end
        for line in lines_of(file, name):
            end = line.end
            yield line.text

    rows = csv.reader(texts(), delimiter=delimiter, strict=True)
    source, header = _next_row(rows, name)
    if not header:
        return
    fields = columns_read(header, source)
    while True:
        source, row = _next_row(rows, name)
        if not row:
            return
        if len(row) != len(header):
            some = ", ".join(map(shorten, header[:MAX_NAMED]))
            raise InvalidInput(
                f"{source} has {len(row)} cells, the first line {len(header)} columns ({some}). "
                "Quote a cell that holds a delimiter."
            )
        cells = dict(zip(header, row, strict=True))
        yield Record({field: cells[field] or None for field in fields}, source, end, size)


def _next_row(rows: "_csv.Reader", name: str) -> tuple[str, list[str]]:
    """The line in which the next nonempty row begins, and its cells; no cells at the end."""
    while True:
        source = f"{name}:{rows.line_num + 1}"
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise InvalidInput(
                f"{source}: not a row of CSV: {first_line(error)}. Quote a cell that holds a "
                "quote, a delimiter or a line end, and double the quotes in it."
            ) from error
        if row is None or row:
            return source, row or []


def parquet_records(file: OpenFile, name: str) -> Iterator[Record]:
    """Iterate over the rows of a Parquet file, some of which are in memory at a time.

    Raises:
        InvalidInput: it is not a Parquet file, or it is damaged; see also :func:`columns_read`.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - takes a while, and few files are Parquet
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput(
            "A Parquet file needs pyarrow, which is not installed: pip install 'interp[analyses]'."
        ) from error
    try:
        columns: dict[str, Any] = {field.name: field.type for field in pq.read_schema(file)}
        names: list[str] = pq.read_schema(file).names
        fields = columns_read(names, name)
        for field in fields:
            _check_column(columns[field], field, name)
        # Repeated texts stay entries of a dictionary: a few bytes can stand for gigabytes of text.
        table = pq.ParquetFile(file, read_dictionary=fields)
        largest = largest_page(file, table.metadata, fields)
        total, done = table.metadata.num_rows, 0
        rows = min(ROWS, max(1, BATCH_BYTES // max(1, largest)))
        for batch in table.iter_batches(rows, columns=fields):
            for row in range(batch.num_rows):
                values = {field: batch.column(field)[row].as_py() for field in fields}
                yield Record(values, f"{name}[{done}]", done + 1, total)
                done += 1
    except InterpError:
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise InvalidInput(
            f"{name} can't be read as a Parquet file: {first_line(error).rstrip('.')}."
        ) from error


def _check_column(kind: Any, field: str, name: str) -> None:  # noqa: ANN401 - a type of pyarrow
    """Refuse a column of lists: a few bytes can stand for a list of any length."""
    if kind.num_fields:
        raise InvalidInput(f"{name}: {field} should be a text, got {kind}.")
