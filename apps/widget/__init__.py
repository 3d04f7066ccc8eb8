"""The widget: figures drawn on a canvas by plain JavaScript, used by the explorer and reports.

It draws a payload of plain data, ``{"views": [...], "selection": {...}, "meta": {...}}``. Each kind
of view has a file such as ``matrix.js``, and :mod:`apps.widget.pictures` converts figures to views.
The files have no imports: each uses the names defined in the files before it.
"""

from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
FILES = (
    "data.js",
    "colours.js",
    "draw.js",
    "elements.js",
    "matrix.js",
    "bars.js",
    "curves.js",
    "network.js",
    "data_tables.js",
    "surface.js",
    "frame.js",
    "plotted.js",
    "strip.js",
    "table.js",
    "patterns.js",
    "head_parts.js",
    "heads.js",
    "mount.js",
)
"""The files in the order in which they are concatenated; that of the host comes last."""


@cache
def bundle(host: str = "") -> str:
    """The script for a host.

    Args:
        host: ``"streamlit"``, ``"report"``, or ``""`` for the functions alone; ``"parts"`` for the
            Streamlit component that holds long arrays for the others.
    """
    files = [*(() if host == "parts" else FILES), *([f"mount_{host}.js"] if host else [])]
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in files)


@cache
def style() -> str:
    """The style sheet of the widget."""
    return (HERE / "widget.css").read_text(encoding="utf-8")
