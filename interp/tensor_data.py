"""A tensor as data: compared by content, hashed, carried through JSON. Is one still as it was?"""

import base64
import hashlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from interp.errors import InvalidEdit


class Values:
    """A tensor that equals another of the same dtype, shape and bytes.

    Args:
        values: what to hold; a copy is kept, so that later changes to the original do not matter.

    Raises:
        InvalidEdit: it holds NaN.
    """

    def __init__(self, values: Tensor) -> None:
        self.tensor = values.detach().clone()
        if self.tensor.is_floating_point() and bool(self.tensor.isnan().any()):
            raise InvalidEdit(
                f"The values given (shape {tuple(values.shape)}) hold NaN; an edit that writes NaN "
                "makes every number after it NaN. Find where it comes from first."
            )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of dtype, shape and bytes."""
        return hashlib.sha256(self._header().encode() + tensor_bytes(self.tensor)).hexdigest()

    def __eq__(self, other: object) -> bool:
        """Whether dtype, shape and bytes agree."""
        return isinstance(other, Values) and self.digest == other.digest

    def __hash__(self) -> int:
        """From the content."""
        return hash(self.digest)

    def __repr__(self) -> str:
        """Shape, dtype and the beginning of the hash."""
        return f"Values({self._header()}, {self.digest[:8]})"

    def to_json(self) -> dict[str, object]:
        """Dtype, shape and the bytes in base64."""
        shape = list(self.tensor.shape)
        data = base64.b64encode(tensor_bytes(self.tensor)).decode()
        return {"dtype": str(self.tensor.dtype), "shape": shape, "data": data}

    @classmethod
    def from_json(cls, values: dict[str, object]) -> "Values":
        """The inverse of :meth:`to_json`.

        Raises:
            InvalidEdit: what is there is not what :meth:`to_json` writes.
        """
        try:
            dtype = getattr(torch, str(values["dtype"]).removeprefix("torch."))
            data = base64.b64decode(str(values["data"]), validate=True)
            shape = [int(size) for size in values["shape"]]  # pyright: ignore[reportGeneralTypeIssues]
            raw = torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy())
            return cls(raw.view(dtype).reshape(shape))
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise InvalidEdit(
                "The values of an edit should have a dtype, a shape and their bytes in base64: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _header(self) -> str:
        return f"{self.tensor.dtype} {tuple(self.tensor.shape)}"


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The elements of a tensor in row-major order, as bytes; a view where that needs no copy."""
    flat = tensor.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy().data


def version_of(tensor: Tensor) -> int:
    """How often a tensor was changed in place; −1 if nobody counts (inference mode)."""
    return -1 if tensor.is_inference() else tensor._version


def owner_of(weight: Tensor) -> Tensor:
    """The parameter that it is a slice of, or itself."""
    return weight if weight._base is None else weight._base


@dataclass(frozen=True, eq=False)
class AsItWas:
    """A weight as it was: an address alone may be given to another, once it is free.

    Attributes:
        owner: the parameter, while it lives.
        memory: where its numbers are, while that is kept.
        address: of its first number.
        version: counts changes in place.
    """

    owner: "weakref.ref[Tensor]"
    memory: "weakref.ref[torch.UntypedStorage]"
    address: int
    version: int

    @classmethod
    def of(cls, weight: Tensor, forget: Callable[[object], None] | None = None) -> "AsItWas":
        """As it is now; ``forget`` is called once it is gone."""
        owner = weakref.ref(owner_of(weight), forget)
        memory = weakref.ref(weight.untyped_storage(), forget)
        return cls(owner, memory, weight.data_ptr(), version_of(weight))

    def is_still(self, weight: Tensor) -> bool:
        """Whether ``weight`` is the same, unchanged."""
        return (
            self.version == version_of(weight)
            and self.address == weight.data_ptr()
            and self.owner() is owner_of(weight)
            and self.memory() is weight.untyped_storage()
        )
