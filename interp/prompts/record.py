"""The content of a line or a row of a file, before it is checked."""

from typing import Any, NamedTuple


class Record(NamedTuple):
    """A line of a file, or a row of a table.

    Attributes:
        values: texts by the name of their field, as read; any value for a line of JSON.
        source: where it was read: ``file:line``, ``file[row]``.
        done: how much of the file was read up to its end, in bytes, or in rows of a table.
        total: size of the whole file, in the same unit.
    """

    values: Any
    source: str
    done: int
    total: int
