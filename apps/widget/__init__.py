"""The widget: figures drawn on a canvas by plain JavaScript, which the explorer and reports mount.

What it draws is data, a payload ``{"views": [...], "selection": {...}, "meta": {...}}``; how views
look is said in ``matrix.js`` and its neighbours, and :mod:`apps.widget.pictures` makes them of
figures. The files have no imports: each uses the names of the files before it.
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
    "twin.js",
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
"""In the order in which they are joined; the mount of a host comes last."""


@cache
def bundle(host: str = "") -> str:
    """The script for a host.

    Args:
        host: ``"streamlit"``, ``"report"``, or ``""`` for the functions alone; ``"parts"`` for the
            component of Streamlit that holds long arrays for others.
    """
    files = [*(() if host == "parts" else FILES), *([f"mount_{host}.js"] if host else [])]
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in files)


@cache
def style() -> str:
    """The style sheet of the widget."""
    return (HERE / "widget.css").read_text(encoding="utf-8")
