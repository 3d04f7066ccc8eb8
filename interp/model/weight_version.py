"""Identifies a weight and its in-place version, to detect later changes."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


def version_of(tensor: Tensor) -> int:
    """Number of in-place changes of a tensor; −1 for inference tensors, which have no count."""
    return -1 if tensor.is_inference() else tensor._version


def owner_of(weight: Tensor) -> Tensor:
    """The parameter that a weight is a slice of, or the weight itself."""
    return weight if weight._base is None else weight._base


@dataclass(frozen=True, eq=False)
class WeightVersion:
    """A weight and its in-place version; an address alone could be reused after it is freed.

    Attributes:
        owner: weak reference to the parameter.
        storage: weak reference to its storage. With ``on_free`` it refers to the Python object, as
            only its collection can be observed, although PyTorch 2.9 may collect it and create it
            anew while the storage lives. Otherwise it refers to PyTorch's own object; such a
            reference would keep the Python object from being collected.
        address: address of its first element.
        version: number of in-place changes.
    """

    owner: "weakref.ref[Tensor]"
    storage: "StorageWeakRef | weakref.ref[torch.UntypedStorage]"
    address: int
    version: int

    @classmethod
    def of(cls, weight: Tensor, on_free: Callable[[object], None] | None = None) -> "WeightVersion":
        """The present version; ``on_free`` is called when the weight is freed, or earlier."""
        owner = weakref.ref(owner_of(weight), on_free)
        storage = weight.untyped_storage()
        reference = StorageWeakRef(storage) if on_free is None else weakref.ref(storage, on_free)
        return cls(owner, reference, weight.data_ptr(), version_of(weight))

    def matches(self, weight: Tensor) -> bool:
        """Whether ``weight`` is the same weight, unchanged."""
        return (
            self.version == version_of(weight)
            and self.address == weight.data_ptr()
            and self.owner() is owner_of(weight)
            and self._is_of(weight.untyped_storage())
        )

    def _is_of(self, storage: torch.UntypedStorage) -> bool:
        if isinstance(self.storage, StorageWeakRef):
            return self.storage == StorageWeakRef(storage)
        return self.storage() is storage
