"""Keeps a cache small: stores tensors that are smaller than their sources, and no unused memory."""

from collections.abc import Callable, Collection, Iterable, Mapping
from math import prod

from torch import Tensor

from interp.cache.derive import sources_of
from interp.model import Network
from interp.points import TOKEN_AXES, Place

WASTE = 1.25
"""Views are copied if their storage is larger than ``WASTE`` times the bytes in use."""


def cheaper_formed(
    model: Network, recorded: Collection[Place], stored: Mapping[Place, Tensor]
) -> list[tuple[list[Place], set[Place]]]:
    """Recorded places that take less memory than the tensors that they would be derived from.

    The pattern of a short text is smaller than its queries and keys, and the scale of a norm is
    always smaller than the stream.

    Returns:
        Pairs of the places to form, and the stored places that are then no longer needed.
    """
    unrecorded = {place for place in stored if place not in recorded}
    groups: list[tuple[list[Place], set[Place]]] = []
    for place in recorded if unrecorded else ():
        sources = sources_of(model, place, stored) & unrecorded
        if place in stored or not sources:
            continue
        disjoint = [group for group in groups if not group[1] & sources]
        overlapping = [group for group in groups if group[1] & sources]
        others = [other for others, _ in overlapping for other in others]
        merged = sources.union(*(some for _, some in overlapping))
        groups = [*disjoint, ([*others, place], merged)]
    staying = {view_of(stored[place]) for place in recorded if place in stored}

    def gain(places: list[Place], sources: set[Place]) -> int:
        freed = {view_of(stored[place]): stored[place].nbytes for place in sources}
        formed = sum(_bytes_of(model, place, stored) for place in places)
        return sum(size for view, size in freed.items() if view not in staying) - formed

    return [group for group in groups if gain(*group) > 0]


def compacted(stored: Mapping[Place, Tensor]) -> dict[Place, Tensor]:
    """The same tensors, copied if their storages are much larger than the parts in use.

    Queries, keys and values are views of one product: stored together they share it; one of them
    stored alone would keep the others in memory, so it is copied.
    """
    used: dict[int, dict[object, int]] = {}
    for tensor in stored.values():
        views = used.setdefault(storage_of(tensor), {})
        views[view_of(tensor)] = tensor.nbytes
    lean: dict[Place, Tensor] = {}
    for place, tensor in stored.items():
        storage_bytes = tensor.untyped_storage().nbytes()
        wasteful = storage_bytes > WASTE * sum(used[storage_of(tensor)].values())
        lean[place] = tensor.clone() if wasteful else tensor
    return lean


def converted(
    tensors: Mapping[Place, Tensor], convert: Callable[[Tensor], Tensor]
) -> dict[Place, Tensor]:
    """Each tensor converted; places that shared a tensor share the converted one."""
    done: dict[object, Tensor] = {}
    for tensor in tensors.values():
        if view_of(tensor) not in done:
            done[view_of(tensor)] = convert(tensor)
    return {place: done[view_of(tensor)] for place, tensor in tensors.items()}


def view_of(tensor: Tensor) -> tuple[object, ...]:
    """A key that is equal for two tensors if they are the same view of the same storage."""
    where = (storage_of(tensor), int(tensor.storage_offset()))
    return (*where, tensor.shape, tensor.stride())


def storage_of(tensor: Tensor) -> int:
    """A number that is equal for tensors that share a storage, including those on meta."""
    # PyTorch has no public identity for a storage without data.
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


def _bytes_of(model: Network, place: Place, stored: Mapping[Place, Tensor]) -> int:
    """Bytes of the tensor at ``place``, from the shapes of the tensors it is derived from."""
    sizes = dict(model.fixed_axes(place))
    sources = [(source, stored[source]) for source in sources_of(model, place, stored)]
    for source, tensor in sources:
        for axis, size in zip(source.point.axes, tensor.shape, strict=True):
            if axis == "batch" or axis in TOKEN_AXES:
                sizes[axis] = max(size, sizes.get(axis, 0))
    sizes = {"query": sizes.get("pos", 1), "key": sizes.get("pos", 1), **sizes}
    return prod(sizes[axis] for axis in place.point.axes) * sources[0][1].itemsize


def is_fresh(tensor: Tensor, others: Iterable[Tensor]) -> bool:
    """Whether ``tensor`` fills its storage and shares it with none of ``others``."""
    apart = all(storage_of(tensor) != storage_of(other) for other in others)
    return apart and tensor.untyped_storage().nbytes() == tensor.nbytes
