"""Docstrings in the form that the pages of the site need.

Docstrings refer to other objects by Sphinx roles (``:func:`~interp.sweeps.sweep```); Markdown
has no roles, so each becomes the name of the object, in code font.
"""

from typing import Any

import griffe

from tools.site.roles import without_roles


class PlainDocstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401 - griffe's own
        """Rewrite the docstring of an object; griffe calls this for each object."""
        if obj.docstring is not None:
            obj.docstring.value = without_roles(obj.docstring.value)
