"""The widget: figures drawn on a canvas by plain JavaScript, used by the explorer and reports.

It draws a payload of plain data, ``{"views": [...], "selection": {...}, "meta": {...}}``. Each kind
of view has a file such as ``matrix.js``, and :mod:`apps.widget.pictures` converts figures to views.
The files are modules, whose types are in comments and in ``types.d.ts``. Neither a Streamlit
component nor a report that is opened from a file can load one module from another, so
:func:`bundle` makes one script of them.
"""

import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

HERE = Path(__file__).parent
IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
DOCUMENTATION = re.compile(r"^ */\*\*(?:(?!\*/).)*\*/\n", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)


@cache
def bundle(host: str) -> str:
    """The script for a host: all modules that its own imports, directly or not, and then its own.

    The modules import names as they are, and have no two equal names at their top level, so that
    it is enough to put one after the other without comments and what imports and exports names.

    Args:
        host: ``"report"``; ``"site"``, for the pages of heads; or a Streamlit component:
            ``"streamlit"``, which is called with data, ``"code"``, which draws them,
            ``"parts"``, which holds their long arrays, ``"story"``,
            which opens files of stories, ``"health"``, which says that the server has stopped.
    """
    modules: dict[str, str] = {}
    wanted = [f"mount_{host}.js"]
    for name in wanted:
        if name not in modules:
            modules[name] = (HERE / name).read_text(encoding="utf-8")
            wanted += IMPORT.findall(modules[name])
    order = TopologicalSorter({name: IMPORT.findall(text) for name, text in modules.items()})
    script = "\n".join(modules[name] for name in order.static_order())
    for left_out in (IMPORT, EXPORT, DOCUMENTATION, COMMENT):
        script = left_out.sub("", script)
    return f'"use strict";\n{script}'


@cache
def style() -> str:
    """The style sheet of the widget."""
    return (HERE / "widget.css").read_text(encoding="utf-8")
