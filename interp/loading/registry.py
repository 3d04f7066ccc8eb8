"""All families of models, by ``model_type``.

All modules of :mod:`interp.loading.families` are imported; a new one needs no entry here.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import interp.loading.families as package
from interp.errors import ModelLoadError, nearest, shorten
from interp.loading.family import Family
from interp.loading.refused_models import REFUSED


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
        ModelLoadError: ``model_type`` is missing or unknown, or is that of a model with parts that
            are not supported.
    """
    model_type = config_json.get("model_type")
    known = families()
    if isinstance(model_type, str) and model_type in REFUSED and model_type not in known:
        raise ModelLoadError(
            f"config.json has model_type={model_type!r}, which is not supported: the model has "
            f"{REFUSED[model_type]}."
        )
    if not isinstance(model_type, str) or model_type not in known:
        raise ModelLoadError(
            f"config.json has model_type={shorten(model_type)}, which is not supported; supported "
            f"are {', '.join(sorted(known))}.{_advice(config_json)}"
        )
    return known[model_type]


def _advice(config_json: Mapping[str, Any]) -> str:
    """A hint: how a model of an unknown type can be loaded, or the types with similar names."""
    inner: object = config_json.get("text_config")
    text_type: object = inner.get("model_type") if isinstance(inner, Mapping) else None
    if isinstance(text_type, str) and text_type in families():
        return (
            f" Its text model is {text_type}: load the whole model with transformers and pass that "
            "part, interp.load(hf_model.model.language_model)."
        )
    name = shorten(config_json.get("model_type"))
    return nearest(name.strip("'"), families())
