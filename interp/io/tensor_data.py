"""A tensor as data: compared and hashed by content, written as JSON."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from interp.errors import InvalidEdit


class TensorData:
    """A tensor that equals another of the same dtype, shape and bytes.

    Args:
        values: the tensor, which is copied, so that later changes of it have no effect. If it
            requires a gradient, a reference to it is kept for runs that record gradients, but not
            in copies and pickles.

    Raises:
        InvalidEdit: it contains NaN.
    """

    def __init__(self, values: Tensor) -> None:
        self.tensor = values.detach().clone()
        has_tangent = forward_ad.unpack_dual(values).tangent is not None
        self._original = values if values.requires_grad or has_tangent else None
        self._version = 0 if self._original is None else self._original._version
        if self.tensor.is_floating_point() and bool(self.tensor.isnan().any()):
            raise InvalidEdit(
                f"The values given (shape {tuple(values.shape)}) hold NaN; an edit that writes NaN "
                "makes every number after it NaN. Find where it comes from first."
            )

    def rows(self, chosen: Sequence[int]) -> "TensorData":
        """Some of its rows, without another check for NaN, which would synchronize a GPU."""
        part = object.__new__(TensorData)
        part.tensor, part._original, part._version = self.tensor[list(chosen)], None, 0
        return part

    @property
    def wants_gradient(self) -> bool:
        """Whether the given values require a gradient, in backward or forward mode."""
        return self._original is not None

    def in_graph(self) -> Tensor:
        """The given values, with their autograd graph if they have one.

        Raises:
            InvalidEdit: they were changed in place since, for example by an optimizer.
        """
        if self._original is None:
            return self.tensor
        if self._original._version != self._version:
            raise InvalidEdit(
                f"The values given (shape {tuple(self.tensor.shape)}) were changed in place after "
                "the edit was created; create it anew after each optimizer step."
            )
        return self._original

    def __getstate__(self) -> dict[str, Any]:
        """The state without the reference to the original."""
        return {**self.__dict__, "_original": None}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of dtype, shape and bytes."""
        return hashlib.sha256(self._header().encode() + tensor_bytes(self.tensor)).hexdigest()

    def __eq__(self, other: object) -> bool:
        """Whether dtype, shape and bytes are equal."""
        return isinstance(other, TensorData) and self.digest == other.digest

    def __hash__(self) -> int:
        """The hash of the content."""
        return hash(self.digest)

    def __repr__(self) -> str:
        """Dtype, shape and the beginning of the hash."""
        return f"TensorData({self._header()}, {self.digest[:8]})"

    def to_json(self) -> dict[str, object]:
        """Dtype, shape, and the bytes in base64."""
        shape = list(self.tensor.shape)
        data = base64.b64encode(tensor_bytes(self.tensor)).decode()
        return {"dtype": str(self.tensor.dtype), "shape": shape, "data": data}

    @classmethod
    def from_json(cls, values: dict[str, object]) -> "TensorData":
        """The inverse of :meth:`to_json`.

        Raises:
            InvalidEdit: ``values`` was not written by :meth:`to_json`.
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
    """The bytes of a tensor on any device, in row-major order."""
    flat = tensor.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy().data
