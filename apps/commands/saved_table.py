"""Reads a table that a run wrote, to compare it with a new one of the same size."""

from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from apps.report.written import read_inside
from interp.errors import InvalidInput, first_line
from interp.prompts import largest_page

MAX_BYTES = 2**28


def saved_table(file: Path, new: pd.DataFrame) -> pd.DataFrame:
    """A table of a Parquet file; without cells if it differs from the new one in size or names.

    A few bytes of such a file can stand for gigabytes, so only as many rows are read as the new
    table has, each text of a column once.

    Raises:
        InvalidInput: it can't be read.
    """
    import pyarrow as pa  # noqa: PLC0415 - takes a while
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        data = BytesIO(read_inside(file.parent, file, MAX_BYTES))
        schema = pq.read_schema(data)
        texts = _text_columns(schema)
        parquet = pq.ParquetFile(data, read_dictionary=texts)
        n_rows = parquet.metadata.num_rows
        if schema.names != [*new.columns] or n_rows != len(new):
            return pd.DataFrame(
                index=pd.RangeIndex(n_rows), columns=schema.names[: len(new.columns)]
            )
        largest_page(data, parquet.metadata, schema.names)
        frame: Any = parquet.read().to_pandas(ignore_metadata=True)
        return frame.astype(dict.fromkeys(texts, object))
    except (pa.ArrowException, OSError, ValueError, TypeError, MemoryError) as error:
        raise InvalidInput(
            f"{file} can't be read as a table: {first_line(error).rstrip('.')}."
        ) from error


def _text_columns(schema: Any) -> list[str]:  # noqa: ANN401 - of pyarrow
    """The columns of texts; raises a ``ValueError`` if a column holds lists."""
    if any(field.type.num_fields for field in schema):
        raise ValueError("a column holds lists")
    return [field.name for field in schema if str(field.type).endswith("string")]
