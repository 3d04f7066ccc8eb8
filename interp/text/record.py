"""What a line or a row of a file holds, before it is checked."""

from typing import Any, NamedTuple


class Record(NamedTuple):
    """A line of a file, or a row of a table.

    Attributes:
        values: texts by the name of their field, as they were read; of a line of JSON, any value.
        source: where it was read: ``file:line``, ``file[row]``.
        done: how much of the file was read with it: bytes, or rows of a table.
        total: how much there is.
    """

    values: Any
    source: str
    done: int
    total: int
