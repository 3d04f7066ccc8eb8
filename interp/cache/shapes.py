"""The shape of each tensor of a run: listed for a reader, and checked when a file is loaded."""

from collections.abc import Collection, Iterable, Mapping

from torch import Tensor

from interp.cache.format import Contents
from interp.config import Config
from interp.model import Context, Network
from interp.points import Place

Contexts = Mapping[str | None, Context]
"""Positions and padding of a run, by stack."""
UNITS = ("B", "kB", "MB", "GB", "TB")


def shape_in(contexts: Contexts, place: Place, model: Network) -> tuple[int, ...]:
    """The shape of the tensor at a place, in a run with these positions and padding."""
    context = contexts[place.stack]
    rows, columns = context.positions.shape
    sizes = {**model.fixed_axes(place), "source": _source_columns(contexts, model)}
    sizes |= {"batch": rows, "pos": columns, "query": columns, "key": context.n_key}
    return tuple(sizes[axis] for axis in place.point.axes)


def _source_columns(contexts: Contexts, model: Network) -> int:
    """Number of the encoder's columns; 0 if there is none."""
    source = contexts.get(model.stacks[0].name) if len(model.stacks) > 1 else None
    return 0 if source is None else source.n_key


def listing(
    recorded: Iterable[Place],
    stored: Mapping[Place, Tensor],
    parts: Collection[Place],
    contexts: Contexts,
    model: Network,
) -> list[tuple[str, str, str, str]]:
    """Place, shape, state and bytes of each recorded place, without deriving or joining tensors."""
    rows: list[tuple[str, str, str, str]] = []
    for place in recorded:
        tensor = stored.get(place)
        shape, state, size = shape_in(contexts, place, model), "derived", ""
        if tensor is not None:
            shape = shape if place in parts else tuple(tensor.shape)
            state, size = "part stored" if place in parts else "stored", in_bytes(tensor.nbytes)
        rows.append((str(place), str(list(shape)), state, size))
    return rows


def in_bytes(n: int) -> str:
    """``1.2 MB``: a number of bytes with two or three digits."""
    size, unit = float(n), 0
    while size >= 1000 and unit < len(UNITS) - 1:  # noqa: PLR2004 - kilo
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {UNITS[unit]}"


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
    source = _source_columns(contents.contexts, model)
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
