"""Loads a saved cache, with the model that ran or without it."""

from dataclasses import replace
from pathlib import Path

import torch

from interp.cache.cache import Cache
from interp.cache.format import Contents, read_contents
from interp.cache.shapes import mismatch
from interp.config import MAX_LAYERS, Config
from interp.errors import InvalidInput, first_line
from interp.io import as_path
from interp.model import Network, as_network, weight_hash


def load_cache(path: str | Path, model: Network | None = None) -> Cache:
    """Read a cache that ``cache.save(path)`` wrote.

    Args:
        path: the file.
        model: the model that ran, with which all recorded places can be read. Without it, stored
            places can be read, and places that must be derived raise :class:`NotRecorded`.

    Returns:
        The cache, on the model's device; without a model, on the CPU.

    Raises:
        InvalidInput: there is no such file; it is damaged or of another kind or version; or the
            model is not the one that ran.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> interp.run(model, "abcab", record="all").cache.save("run.cache")
        >>> interp.load_cache("run.cache", model)["pattern", 1].shape
        torch.Size([1, 4, 6, 6])
    """
    path = as_path(path)
    model = None if model is None else as_network(model)
    contents = read_contents(path, torch.device("cpu") if model is None else model.device)
    if model is None:
        structure = _structure(contents.config, path)
    else:
        structure = model
        _check_model(model, contents, path)
    wrong = mismatch(contents, structure)
    if wrong is not None:
        raise InvalidInput(f"{path} is damaged: {wrong}.")
    return Cache.restored(structure, contents)


def _structure(config: Config, path: Path) -> Network:
    """A model without weights."""
    layers = max(stack.n_layers for stack in config.stacks.values())
    if layers > MAX_LAYERS:
        raise InvalidInput(
            f"{path} is of a model with {layers} layers; without model=, at most {MAX_LAYERS} are "
            "read."
        )
    try:
        with torch.device("meta"):
            return Network(config)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise InvalidInput(
            f"{path} is damaged: no model of its config's sizes can be built: {first_line(error)}."
        ) from error


def _check_model(model: Network, contents: Contents, path: Path) -> None:
    if replace(model.config, name="") != replace(contents.config, name=""):
        raise InvalidInput(
            f"{path} is of a model with another config; load it with the model that ran, or "
            "without model= to read what is stored."
        )
    actual = weight_hash(model)
    if actual != contents.weights:
        raise InvalidInput(
            f"{path} is of a model with other weights (SHA-256 {contents.weights[:12]}…, this one "
            f"has {actual[:12]}…, whose type is {model.dtype}); load it with the model that ran, "
            "or without model= to read what is stored."
        )
