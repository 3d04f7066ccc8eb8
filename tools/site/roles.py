"""Converts Sphinx roles in docstrings to code in Markdown."""

import re

ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`(~?)([^`]+)`")


def without_roles(text: str) -> str:
    """``:class:`~a.b.C``` → ```C```; ``:class:`a.b.C``` → ```a.b.C```."""
    return ROLE.sub(lambda m: f"`{m[2].rpartition('.')[2] if m[1] else m[2]}`", text)
