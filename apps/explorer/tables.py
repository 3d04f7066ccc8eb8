"""Tables of texts, as the reports print them, as views of the widget."""

from apps.explorer.canvas import ViewData
from apps.frame_table import Table


def table_view(identity: str, title: str, table: Table, note: str = "") -> ViewData:
    """A table of the widget."""
    columns, rows = table
    return {
        "kind": "table",
        "id": identity,
        "title": title,
        "note": note,
        "columns": [{"title": name, "align": side} for name, side in columns],
        "rows": [[*row] for row in rows],
    }
