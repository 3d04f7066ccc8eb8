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
from interp.loading.family import Family, TwoTowerFamily
from interp.loading.refused_models import REFUSED


@cache
def families() -> dict[str, Family]:
    """All families, by the value of ``model_type`` in ``config.json``."""
    return {kind: family for family in _listed("FAMILIES") for kind in family.model_types}


@cache
def two_tower_families() -> dict[str, TwoTowerFamily]:
    """All families of two towers, by the value of ``model_type`` in ``config.json``."""
    return {family.model_type: family for family in _listed("TWO_TOWERS")}


def _listed(name: str) -> list[Any]:
    """The families in the lists called ``name`` of all modules."""
    names = sorted(module.name for module in iter_modules(package.__path__))
    modules = [import_module(f"{package.__name__}.{module}") for module in names]
    return [family for module in modules for family in getattr(module, name, [])]


def family_of(config_json: Mapping[str, Any]) -> Family:
    """The family that a ``config.json`` names.

    Raises:
        ModelLoadError: ``model_type`` is missing or unknown, or is that of a model of two towers,
            or of one with parts that are not supported.
    """
    model_type = config_json.get("model_type")
    supported = families()
    if isinstance(model_type, str) and model_type in two_tower_families():
        raise ModelLoadError(
            f"config.json has model_type={model_type!r}, a model of two towers, of texts and of "
            "images: load both by towers = interp.load_towers(SOURCE); towers.text.save(FOLDER) "
            "writes one of them as a model that interp.load and the commands read."
        )
    if isinstance(model_type, str) and model_type in REFUSED and model_type not in supported:
        raise ModelLoadError(
            f"config.json has model_type={model_type!r}, which is not supported: the model has "
            f"{REFUSED[model_type]}."
        )
    if not isinstance(model_type, str) or model_type not in supported:
        raise ModelLoadError(
            f"config.json has model_type={shorten(model_type)}, which is not supported; supported "
            f"are {', '.join(sorted(supported))}.{_advice(config_json)}"
        )
    return supported[model_type]


def two_tower_family_of(config_json: Mapping[str, Any]) -> TwoTowerFamily:
    """The family of two towers that a ``config.json`` names.

    Raises:
        ModelLoadError: it names another model.
    """
    model_type, supported = config_json.get("model_type"), two_tower_families()
    if not isinstance(model_type, str) or model_type not in supported:
        is_single = "model_type" not in config_json or model_type in [*families()]
        advice = " Load this model by interp.load." if is_single else ""
        raise ModelLoadError(
            f"config.json has model_type={shorten(model_type)}; interp.load_towers reads models of "
            f"two towers, of types {' and '.join(sorted(supported))}.{advice}"
        )
    return supported[model_type]


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
