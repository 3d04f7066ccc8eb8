"""Which family is a configuration of? Every module of :mod:`interp.loading.families` is one."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import interp.loading.families as rooms
from interp.errors import ModelLoadError
from interp.loading.family import Family


@cache
def families() -> dict[str, Family]:
    """All families, by what ``config.json`` calls them."""
    names = sorted(module.name for module in iter_modules(rooms.__path__))
    every = [import_module(f"{rooms.__name__}.{name}") for name in names]
    found = [family for module in every for family in getattr(module, "FAMILIES", [])]
    return {kind: family for family in found for kind in family.model_types}


def family_of(fields: Mapping[str, Any]) -> Family:
    """The family that a configuration belongs to.

    Raises:
        ModelLoadError: it is of none that this toolkit knows.
    """
    kind = fields.get("model_type")
    known = families()
    if not isinstance(kind, str) or kind not in known:
        raise ModelLoadError(
            f"config.json says model_type={kind!r}; this toolkit knows {', '.join(sorted(known))}."
        )
    return known[kind]
