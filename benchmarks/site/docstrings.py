"""Docstrings as the pages of the site need them.

Docstrings name other objects by roles of Sphinx (``:func:`~interp.sweeps.sweep.sweep```); Markdown
has none, so a role becomes the name in code.
"""

from typing import Any

import griffe

from benchmarks.site.roles import without_roles


class PlainDocstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401 - griffe's own
        """Called for each object that is read."""
        if obj.docstring is not None:
            obj.docstring.value = without_roles(obj.docstring.value)
