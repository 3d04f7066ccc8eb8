"""Tensors as data: compared and hashed by content, written as JSON; or computed row by row."""

import base64
import hashlib
from collections.abc import Callable, Sequence
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
        self._tensor = values.detach().clone()
        has_tangent = forward_ad.unpack_dual(values).tangent is not None
        self._original = values if values.requires_grad or has_tangent else None
        self._version = 0 if self._original is None else self._original._version
        if self._tensor.is_floating_point() and bool(self._tensor.isnan().any()):
            raise InvalidEdit(
                f"The values given (shape {tuple(values.shape)}) hold NaN; an edit that writes NaN "
                "makes every number after it NaN. Find where it comes from first."
            )

    @property
    def tensor(self) -> Tensor:
        """The values."""
        return self._tensor

    @property
    def shape(self) -> torch.Size:
        """Their shape."""
        return self._tensor.shape

    @property
    def dtype(self) -> torch.dtype:
        """Their dtype."""
        return self._tensor.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of what is in memory."""
        return self._tensor.nbytes

    def on(self, device: torch.device) -> Tensor:
        """The values on a device, in their graph if gradients are recorded."""
        return (self.in_graph() if torch.is_grad_enabled() else self.tensor).to(device)

    def rows(self, chosen: Sequence[int]) -> "TensorData":
        """Some of its rows, without another check for NaN, which would synchronize a GPU."""
        if len(chosen) == len(self._tensor) and [*chosen] == [*range(len(chosen))]:
            return self
        return TensorData.unchecked(self._tensor[list(chosen)])

    @staticmethod
    def unchecked(tensor: Tensor) -> "TensorData":
        """A tensor that is neither copied nor checked for NaN."""
        data = object.__new__(TensorData)
        data._tensor, data._original, data._version = tensor, None, 0
        return data

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
                f"The values given (shape {tuple(self.shape)}) were changed in place after "
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
        """Dtype, shape, and the bytes in base64; of computed values, the digest."""
        return {"dtype": str(self.dtype), "shape": list(self.shape), **self._content()}

    def _content(self) -> dict[str, str]:
        return {"data": base64.b64encode(tensor_bytes(self.tensor)).decode()}

    @classmethod
    def from_json(cls, values: dict[str, object]) -> "TensorData":
        """The inverse of :meth:`to_json`.

        Raises:
            InvalidEdit: ``values`` was not written by :meth:`to_json`.
        """
        try:
            dtype = getattr(torch, str(values["dtype"]).removeprefix("torch."))
            shape = [int(size) for size in values["shape"]]  # pyright: ignore[reportGeneralTypeIssues]
            if "computed" in values:
                return ComputedRows(shape, dtype, str(values["computed"]))
            data = base64.b64decode(str(values["data"]), validate=True)
            raw = torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy())
            return cls(raw.view(dtype).reshape(shape))
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise InvalidEdit(
                "The values of an edit should have a dtype, a shape and their bytes in base64: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _header(self) -> str:
        return f"{self.dtype} {tuple(self.shape)}"


class ComputedRows(TensorData):
    """A tensor whose rows are computed whenever some of them are read, and are not in memory.

    It equals another that is computed in the same way, which its digest says.

    Args:
        shape: the shape of all rows.
        dtype: their dtype.
        digest: hash of everything that the values depend on, and of how they are computed.
        compute: the values of some rows. It is not saved: what is read from a file or a pickle can
            be compared, and has no values.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        digest: str,
        compute: Callable[[Sequence[int]], Tensor] | None = None,
    ) -> None:
        self._tensor = torch.empty(shape, dtype=dtype, device="meta")
        self._original, self._version = None, 0
        self.digest, self._compute = digest, compute

    @property
    def tensor(self) -> Tensor:
        """The values of all rows, computed.

        Raises:
            InvalidEdit: they are those of a file or a pickle.
        """
        return self._computed(range(len(self._tensor)))

    @property
    def nbytes(self) -> int:
        """0: no values are in memory."""
        return 0

    def on(self, device: torch.device) -> Tensor:
        """The values of all rows on a device; without data on the meta device."""
        return self._tensor if device.type == "meta" else self.tensor.to(device)

    def rows(self, chosen: Sequence[int]) -> TensorData:
        """Some of its rows, computed."""
        return TensorData.unchecked(self._computed(chosen))

    def _computed(self, chosen: Sequence[int]) -> Tensor:
        if self._compute is None:
            raise InvalidEdit(
                "The values of this edit were computed while it was applied, and are not saved; "
                "create the edit anew."
            )
        return self._compute(chosen)

    def __getstate__(self) -> dict[str, Any]:
        """The state without what computes the values."""
        return {**self.__dict__, "_compute": None}

    def _content(self) -> dict[str, str]:
        return {"computed": self.digest}


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor on any device, in row-major order."""
    flat = tensor.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy().data
