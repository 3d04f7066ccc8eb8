"""All families of models, by ``model_type``.

Every module of :mod:`interp.loading.families` is imported, and needs no entry here.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import interp.loading.families as package
from interp.errors import ModelLoadError
from interp.loading.family import Family


@cache
def families() -> dict[str, Family]:
    """All families, by the value of ``model_type`` in ``config.json``."""
    names = sorted(module.name for module in iter_modules(package.__path__))
    modules = [import_module(f"{package.__name__}.{name}") for name in names]
    found = [family for module in modules for family in getattr(module, "FAMILIES", [])]
    return {model_type: family for family in found for model_type in family.model_types}


def family_of(config_json: Mapping[str, Any]) -> Family:
    """The family that a ``config.json`` names.

    Raises:
        ModelLoadError: ``model_type`` is missing or unknown.
    """
    model_type = config_json.get("model_type")
    known = families()
    if not isinstance(model_type, str) or model_type not in known:
        raise ModelLoadError(
            f"config.json says model_type={model_type!r}, which is not supported; supported are "
            f"{', '.join(sorted(known))}."
        )
    return known[model_type]
