"""Checks that the contents of a cache file can come from a run of the model that they name."""

from interp.cache.format import Contents
from interp.config import Config
from interp.model import Context, Network
from interp.points import Place


def mismatch(contents: Contents, model: Network) -> str | None:
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
            expected = _shape(place, contents, model)
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
    source = _source_columns(contents, model)
    checks = (_wrong_context(context, source, model.config) for context in contexts)
    return next((wrong for wrong in checks if wrong is not None), None)


def _source_columns(contents: Contents, model: Network) -> int:
    """Number of the encoder's columns; 0 if there is none."""
    source = contents.contexts.get(model.stacks[0].name) if len(model.stacks) > 1 else None
    return 0 if source is None else source.n_key


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


def _shape(place: Place, contents: Contents, model: Network) -> tuple[int, ...]:
    """The shape of the tensor at a place in this run."""
    context = contents.contexts[place.stack]
    rows, columns = context.positions.shape
    sizes = {**model.fixed_axes(place), "source": _source_columns(contents, model)}
    sizes |= {"batch": rows, "pos": columns, "query": columns, "key": context.n_key}
    return tuple(sizes[axis] for axis in place.point.axes)
