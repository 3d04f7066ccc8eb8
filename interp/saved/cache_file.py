"""Loads a saved cache, with the model that ran or without it."""

from dataclasses import replace
from pathlib import Path

import torch

from interp.cache import Cache, Contents, shape_in, source_columns
from interp.config import MAX_LAYERS, Config
from interp.errors import InvalidInput, first_line
from interp.io import as_path
from interp.model import Context, Network, as_network, weight_hash
from interp.saved.cache_format import read_contents


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
    wrong = _mismatch(contents, structure)
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


def _mismatch(contents: Contents, model: Network) -> str | None:
    """The first inconsistency between the contents and the model; ``None`` if there is none."""
    named = {*contents.recorded, *contents.stored, *contents.gradients}
    stacks = {place.stack for place in named}
    if not named.issubset(model.layout) or not stacks.issubset(contents.contexts):
        return "it names places that its model does not have"
    wrong = _wrong_stacks(contents, model)
    if wrong is not None:
        return wrong
    for tensors in (contents.stored, contents.gradients):
        for place, tensor in tensors.items():
            expected = shape_in(contents.contexts, place, model)
            if tuple(tensor.shape) != expected or not tensor.is_floating_point():
                return f"{place} should be {expected}, in floating point"
    return None


def _wrong_stacks(contents: Contents, model: Network) -> str | None:
    """The first inconsistency in positions and padding; ``None`` if there is none."""
    if not {None, *model.config.stacks}.issuperset(contents.contexts):
        return "it names a stack that its model does not have"
    contexts = contents.contexts.values()
    if len({len(context.positions) for context in contexts}) > 1:
        return "its stacks have different numbers of rows"
    source = source_columns(contents.contexts, model)
    checks = (_wrong_context(context, source, model.config) for context in contexts)
    return next((wrong for wrong in checks if wrong is not None), None)


def _wrong_context(context: Context, source: int, config: Config) -> str | None:
    positions = context.positions
    if not positions.numel():
        return "its positions are empty"
    if not 0 <= int(positions.min()) <= int(positions.max()) < config.n_ctx:
        return f"its positions should be in 0..{config.n_ctx - 1}"
    if context.offset < 0 or context.n_later < 0:
        return "its numbers of other columns should not be negative"
    if context.real is None and context.n_key > config.n_ctx:
        return f"it has {context.n_key} columns, but the model's context is {config.n_ctx}"
    for mask, columns in ((context.real, context.n_key), (context.encoder_real, source)):
        if mask is not None and mask.shape[1] != columns:
            return f"its padding should have {columns} columns"
    return None
