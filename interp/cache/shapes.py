"""The shape of each tensor of a run."""

from collections.abc import Collection, Iterable, Mapping

from torch import Tensor

from interp.model import Context, Network
from interp.points import Place

Contexts = Mapping[str | None, Context]
"""Positions and padding of a run, by stack."""
UNITS = ("B", "kB", "MB", "GB", "TB")


def shape_in(contexts: Contexts, place: Place, model: Network) -> tuple[int, ...]:
    """The shape of the tensor at a place, in a run with these positions and padding."""
    context = contexts[place.stack]
    rows, columns = context.positions.shape
    sizes = {**model.fixed_axes(place), "source": source_columns(contexts, model)}
    sizes |= {"batch": rows, "pos": columns, "query": columns, "key": context.n_key}
    return tuple(sizes[axis] for axis in place.point.axes)


def source_columns(contexts: Contexts, model: Network) -> int:
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
