"""Tables as pandas data frames; pandas is only imported here, on demand."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from interp.errors import InvalidInput

if TYPE_CHECKING:
    from pandas import DataFrame
else:
    DataFrame = Any


def frame_of(rows: Iterable[Mapping[str, object]], optional: Iterable[str] = ()) -> DataFrame:
    """A data frame of rows; columns of integers with missing values keep integers.

    Args:
        rows: the rows, with the same keys.
        optional: columns that are left out if no row has a value.

    Raises:
        InvalidInput: pandas is not installed.
    """
    try:
        import pandas as pd  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise InvalidInput(
            "A table needs pandas, which is not installed: pip install 'interp[analyses]'. rows() "
            "gives the same numbers without it."
        ) from error
    listed, left_out = list(rows), set(optional)
    columns: dict[str, Any] = {}
    for name in listed[0] if listed else ():
        values = [row[name] for row in listed]
        missing = sum(value is None for value in values)
        if name in left_out and missing == len(values):
            continue
        whole = all(value is None or type(value) is int for value in values)
        columns[name] = pd.Series(values, dtype="Int64") if whole and missing else values
    return pd.DataFrame(columns)
