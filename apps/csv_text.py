"""Tables as CSV, with texts that a spreadsheet program does not take for formulas.

A token such as ``=1+1`` or ``@SUM(A1)`` would be computed when the file is opened in such a
program, so an apostrophe is put before a text that begins as a formula does. Numbers are unchanged,
and the same table as Parquet or JSON has the texts unchanged.

Reference: https://owasp.org/www-community/attacks/CSV_Injection
"""

import pandas as pd

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The first characters of a formula."""


def csv_text(frame: pd.DataFrame) -> str:
    """A frame as CSV, without its index."""
    columns = {str(name): column for name, column in frame.items()}
    texts = {
        name: column
        for name, column in columns.items()
        if not pd.api.types.is_numeric_dtype(column)
    }
    safe = {name: column.map(_without_formula) for name, column in texts.items()}
    return frame.assign(**safe).to_csv(index=False)


def _without_formula(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell
