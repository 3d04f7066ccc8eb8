"""What should a cache hold? No more than it must, and nothing twice."""

from collections.abc import Callable, Collection, Iterable, Mapping
from math import prod

from torch import Tensor

from interp.cache.derive import sources_of
from interp.model.network import Network
from interp.model.shapes import fixed_axes
from interp.points import Place

WASTE = 1.25
"""A view may hold so many times its own bytes before it is copied out."""


def cheaper_formed(
    model: Network, asked: Collection[Place], held: Mapping[Place, Tensor]
) -> list[tuple[list[Place], set[Place]]]:
    """What takes less room than that from which it would be derived.

    A short text's pattern is smaller than its queries and keys, and the scale of a norm is always
    smaller than the stream.

    Returns:
        Pairs: places to form, and the places that nothing else needs from then on.
    """
    spare = {place for place in held if place not in asked}
    groups: list[tuple[list[Place], set[Place]]] = []
    for place in asked if spare else ():
        sources = sources_of(model, place, held) & spare
        if place in held or not sources:
            continue
        apart = [group for group in groups if not group[1] & sources]
        met = [group for group in groups if group[1] & sources]
        makes = [other for others, _ in met for other in others]
        groups = [*apart, ([*makes, place], sources.union(*(some for _, some in met)))]
    staying = {view_of(held[place]) for place in asked if place in held}

    def gain(makes: list[Place], sources: set[Place]) -> int:
        freed = {view_of(held[place]): held[place].nbytes for place in sources}
        formed = sum(_bytes_of(model, place, held) for place in makes)
        return sum(size for view, size in freed.items() if view not in staying) - formed

    return [group for group in groups if gain(*group) > 0]


def compact(held: Mapping[Place, Tensor]) -> dict[Place, Tensor]:
    """The same tensors, without holding much larger ones that they are views of.

    Queries, keys and values are views of one product: kept together they hold it, kept alone each
    would hold the others too, so then it is copied.
    """
    used: dict[int, dict[object, int]] = {}
    for tensor in held.values():
        views = used.setdefault(tensor.untyped_storage().data_ptr(), {})
        views[view_of(tensor)] = tensor.nbytes
    lean: dict[Place, Tensor] = {}
    for place, tensor in held.items():
        storage = tensor.untyped_storage()
        wasteful = storage.nbytes() > WASTE * sum(used[storage.data_ptr()].values())
        lean[place] = tensor.clone() if wasteful else tensor
    return lean


def converted(
    tensors: Mapping[Place, Tensor], convert: Callable[[Tensor], Tensor]
) -> dict[Place, Tensor]:
    """Each converted, and places that share a tensor share it still."""
    done: dict[object, Tensor] = {}
    for tensor in tensors.values():
        if view_of(tensor) not in done:
            done[view_of(tensor)] = convert(tensor)
    return {place: done[view_of(tensor)] for place, tensor in tensors.items()}


def view_of(tensor: Tensor) -> tuple[object, ...]:
    """The same for two tensors that are one and the same part of one storage."""
    where = (tensor.untyped_storage().data_ptr(), int(tensor.storage_offset()))
    return (*where, tensor.shape, tensor.stride())


def _bytes_of(model: Network, place: Place, held: Mapping[Place, Tensor]) -> int:
    """How large the tensor at ``place`` will be, told from those that it is derived from."""
    sizes = fixed_axes(model.config, place)
    sources = [(source, held[source]) for source in sources_of(model, place, held)]
    for source, tensor in sources:
        for axis, size in zip(source.point.axes, tensor.shape, strict=True):
            if axis in ("batch", "pos", "query", "key"):
                sizes[axis] = max(size, sizes.get(axis, 0))
    sizes = {"query": sizes.get("pos", 1), "key": sizes.get("pos", 1), **sizes}
    return prod(sizes[axis] for axis in place.point.axes) * sources[0][1].itemsize


def is_fresh(tensor: Tensor, others: Iterable[Tensor]) -> bool:
    """Whether none of ``others`` lies where ``tensor`` is stored, and it fills that place."""
    storage = tensor.untyped_storage()
    apart = all(storage.data_ptr() != other.untyped_storage().data_ptr() for other in others)
    return apart and storage.nbytes() == tensor.nbytes
