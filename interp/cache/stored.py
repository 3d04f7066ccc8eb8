"""The tensors of a cache with their in-place versions: reading a changed tensor raises an error."""

from collections.abc import Iterator, Mapping, MutableMapping

from torch import Tensor

from interp.errors import StaleCache
from interp.model import version_of
from interp.points import Place


class Stored(MutableMapping[Place, Tensor]):
    """Tensors by place, in the order in which they were stored; readers must not change them."""

    def __init__(self, tensors: Mapping[Place, Tensor]) -> None:
        self._versioned: dict[Place, tuple[Tensor, int]] = {}
        self.update(tensors)

    def __getitem__(self, place: Place) -> Tensor:
        """The tensor stored at a place.

        Raises:
            StaleCache: the tensor was changed in place after it was stored.
        """
        tensor, version = self._versioned[place]
        if version_of(tensor) != version:
            raise StaleCache(
                f"{place} was changed in place after the run (it is shared with the run's own "
                "result); work on a .clone() of it."
            )
        return tensor

    def __setitem__(self, place: Place, tensor: Tensor) -> None:
        """Store a tensor with its present version."""
        self._versioned[place] = tensor, version_of(tensor)

    def __delitem__(self, place: Place) -> None:
        """Drop the tensor stored at a place."""
        del self._versioned[place]

    def __contains__(self, place: object) -> bool:
        """Whether a tensor is stored at a place, changed or not."""
        return place in self._versioned

    def __iter__(self) -> Iterator[Place]:
        """The places."""
        return iter(self._versioned)

    def __len__(self) -> int:
        """Number of stored tensors."""
        return len(self._versioned)

    def unchecked(self) -> dict[Place, Tensor]:
        """The tensors, changed or not; only for their shapes and storages, not their values."""
        return {place: tensor for place, (tensor, _) in self._versioned.items()}
