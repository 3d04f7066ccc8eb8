"""The contents of a cache as a table: place, shape, stored or derived, bytes."""

from collections.abc import Iterable, Mapping

from torch import Tensor

from interp.config import Config
from interp.io import Table
from interp.model import Context, fixed_axes
from interp.points import Place

UNITS = ("B", "kB", "MB", "GB", "TB")


def listing(
    recorded: Iterable[Place],
    stored: Mapping[Place, Tensor],
    contexts: Mapping[str | None, Context],
    config: Config,
) -> list[tuple[str, str, str, str]]:
    """One row per place, without deriving any tensor."""
    rows: list[tuple[str, str, str, str]] = []
    for place in recorded:
        tensor = stored.get(place)
        shape = shape_in(config, contexts, place) if tensor is None else tuple(tensor.shape)
        kept, size = ("derived", "") if tensor is None else ("stored", in_bytes(tensor.nbytes))
        rows.append((str(place), str(list(shape)), kept, size))
    return rows


def listed(title: str, rows: list[tuple[str, str, str, str]]) -> Table:
    """The table of these rows."""
    return Table(title, ("place", "shape", "", "bytes"), rows)


def shape_in(
    config: Config, contexts: Mapping[str | None, Context], place: Place
) -> tuple[int, ...]:
    """The shape of the tensor at a place, in a run with these positions and padding."""
    stacks = list(config.stacks) if len(config.stacks) > 1 else [None]
    own, first = contexts[place.stack or stacks[-1]], contexts.get(stacks[0])
    sizes = fixed_axes(config, place) | {
        "batch": len(own.positions),
        "pos": own.n_query,
        "query": own.n_query,
        "key": own.n_key,
        "source": own.n_key if first is None else first.n_query,
    }
    return tuple(sizes[axis] for axis in place.point.axes)


def in_bytes(n: int) -> str:
    """``1.2 MB``: a number of bytes with two or three digits."""
    size, unit = float(n), 0
    while size >= 1000 and unit < len(UNITS) - 1:  # noqa: PLR2004 - kilo
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {UNITS[unit]}"
