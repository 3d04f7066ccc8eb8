"""Whether the contents of a cache file are those of a run of the model that they name."""

import torch
from torch import Tensor

from interp.cache.format import Contents
from interp.config import Config
from interp.model.context import Context
from interp.model.network import Network
from interp.model.shapes import fixed_axes
from interp.points import Place


def mismatch(contents: Contents, model: Network) -> str | None:
    """The first thing that no run of the model leaves in a cache; ``None`` if there is none."""
    named = {*contents.recorded, *contents.stored, *contents.gradients}
    stacks = {place.stack for place in named}
    if not named.issubset(model.layout) or not stacks.issubset(contents.contexts):
        return "it names places that its model does not have"
    for stack, context in contents.contexts.items():
        if stack not in {None, *model.config.stacks}:
            return "it names a stack that its model does not have"
        wrong = _wrong_context(context, model.config)
        if wrong is not None:
            return wrong
    for tensors in (contents.stored, contents.gradients):
        for place, tensor in tensors.items():
            expected = _shape(place, contents, model.config)
            if tuple(tensor.shape) != expected or not tensor.is_floating_point():
                return f"{place} should be {expected}, in floating point"
    return None


def _wrong_context(context: Context, config: Config) -> str | None:
    """What no forward of this model has as positions or padding, if anything."""
    positions = context.positions
    if positions.ndim != 2 or positions.dtype != torch.int64 or not positions.numel():  # noqa: PLR2004
        return "its positions should be whole numbers [batch pos]"
    if not 0 <= int(positions.min()) <= int(positions.max()) < config.n_ctx:
        return f"its positions should be in 0..{config.n_ctx - 1}"
    if context.offset < 0 or context.n_later < 0:
        return "its numbers of other columns should not be negative"
    if context.real is None and context.n_key > config.n_ctx:
        return f"it has {context.n_key} columns, but the model's context is {config.n_ctx}"
    rows = len(positions)
    if not _is_mask(context.real, rows, context.n_key) or not _is_mask(context.encoder_real, rows):
        return f"its padding should be true or false, {(rows, context.n_key)}"
    return None


def _is_mask(mask: Tensor | None, rows: int, columns: int | None = None) -> bool:
    """Whether a mask is missing, or is of so many rows and columns (any number by default)."""
    if mask is None:
        return True
    fits = mask.ndim == 2 and mask.shape[1] == (columns or mask.shape[1])  # noqa: PLR2004
    return fits and len(mask) == rows and mask.dtype == torch.bool


def _shape(place: Place, contents: Contents, config: Config) -> tuple[int, ...]:
    """The shape of the tensor at a place in this run."""
    context = contents.contexts[place.stack]
    rows, columns = context.positions.shape
    sizes = fixed_axes(config, place)
    sizes |= {"batch": rows, "pos": columns, "query": columns, "key": context.n_key}
    if place.stack is not None and len(config.stacks) > 1:
        first = contents.contexts.get(next(iter(config.stacks)))
        sizes["source"] = 0 if first is None else first.n_key
    return tuple(sizes[axis] for axis in place.point.axes)
