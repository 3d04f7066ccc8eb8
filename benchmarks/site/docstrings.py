"""Docstrings as the pages of the site need them.

Docstrings name other objects by roles of Sphinx (``:func:`~interp.sweeps.sweep.sweep```); Markdown
has none, so a role becomes the name in code.
"""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`(~?)([^`]+)`")


def without_roles(text: str) -> str:
    """``:class:`~a.b.C``` → ```C```; ``:class:`a.b.C``` → ```a.b.C```."""
    return ROLE.sub(lambda m: f"`{m[2].rpartition('.')[2] if m[1] else m[2]}`", text)


class PlainDocstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401 - griffe's own
        """Called for each object that is read."""
        if obj.docstring is not None:
            obj.docstring.value = without_roles(obj.docstring.value)
