"""Low-rank matrices as products of two thin factors, which are never multiplied out.

S = W_V·W_O and Y = W_Q·W_Kᵀ are d_model × d_model but of rank ≤ d_head; their spectra follow from
r × r matrices (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", for the
eigenvalues of W_OV).
"""

from dataclasses import dataclass
from html import escape
from typing import overload

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from interp.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class LowRank:
    """The m × n matrix ``left @ right`` of rank ≤ r; leading axes are batch axes.

    Attributes:
        left: ``[... m r]``.
        right: ``[... r n]``.
    """

    left: Float[Tensor, "*#batch m r"]
    right: Float[Tensor, "*#batch rank n"]

    def __post_init__(self) -> None:
        if self.left.shape[-1] != self.right.shape[-2]:
            raise InvalidInput(
                f"The factors {tuple(self.left.shape)} and {tuple(self.right.shape)} can't be "
                "multiplied: the last axis of the left must equal the last but one of the right."
            )

    def __repr__(self) -> str:
        """Shape and rank; the factors may be large."""
        dtype = str(self.left.dtype).removeprefix("torch.")
        return f"LowRank({list(self.shape)}, rank ≤ {self.rank}, {dtype} on {self.left.device})"

    def _repr_html_(self) -> str:
        return f"<code>{escape(repr(self))}</code>"

    @property
    def shape(self) -> torch.Size:
        """Shape of the product."""
        batch = torch.broadcast_shapes(self.left.shape[:-2], self.right.shape[:-2])
        return torch.Size((*batch, self.left.shape[-2], self.right.shape[-1]))

    @property
    def rank(self) -> int:
        """Inner dimension of the product, an upper bound of the rank."""
        return self.left.shape[-1]

    @property
    def T(self) -> "LowRank":
        """The transpose."""
        return LowRank(self.right.mT, self.left.mT)

    def form(self) -> Float[Tensor, "*batch m n"]:
        """The matrix itself, m × n."""
        return self.left @ self.right

    @overload
    def __matmul__(self, other: "LowRank") -> "LowRank": ...
    @overload
    def __matmul__(self, other: Tensor) -> Tensor: ...
    def __matmul__(self, other: "LowRank | Tensor") -> "LowRank | Tensor":
        """``self @ other``; low-rank if both are, and then of the smaller rank."""
        if isinstance(other, Tensor):
            return self.left @ (self.right @ other)
        core = self.right @ other.left
        if self.rank <= other.rank:
            return LowRank(self.left, core @ other.right)
        return LowRank(self.left @ core, other.right)

    def __rmatmul__(self, other: Tensor) -> Tensor:
        """``other @ self``, e.g. x·S."""
        return (other @ self.left) @ self.right

    def svd(self) -> tuple[Tensor, Tensor, Tensor]:
        """U ``[... m r]``, singular values ``[... r]`` (descending), Vᵀ ``[... r n]``."""
        q_left, r_left = torch.linalg.qr(self.left)
        q_right, r_right = torch.linalg.qr(self.right.mT)
        u, s, vt = torch.linalg.svd(r_left @ r_right.mT, full_matrices=False)
        return q_left @ u, s, vt @ q_right.mT

    def singular_values(self) -> Float[Tensor, "*batch r"]:
        """Singular values, descending; those beyond the r-th are zero."""
        return self.svd()[1]

    def eigenvalues(self) -> Complex[Tensor, "*batch r"]:
        """The r eigenvalues that can be nonzero (those of ``right @ left``).

        Raises:
            InvalidInput: the product is not square.
        """
        if self.shape[-1] != self.shape[-2]:
            raise InvalidInput(
                f"Only a square matrix has eigenvalues; this is {tuple(self.shape)}."
            )
        return torch.linalg.eigvals(self.right @ self.left)

    def norm(self) -> Float[Tensor, "*batch"]:
        """Frobenius norm, from the product of triangular factors, which avoids cancellation."""
        r_left = torch.linalg.qr(self.left, mode="r")[1]
        r_right = torch.linalg.qr(self.right.mT, mode="r")[1]
        return torch.linalg.matrix_norm(r_left @ r_right.mT)

    def trace(self) -> Float[Tensor, "*batch"]:
        """The trace, equal to that of ``right @ left``."""
        return (self.left * self.right.mT).sum((-2, -1))

    def __getitem__(self, index: int | slice) -> "LowRank":
        """Index the first batch axis."""
        if self.left.ndim == 2:  # noqa: PLR2004 - a matrix
            raise InvalidInput("A single low-rank matrix has no batch axis to index; use .form().")
        return LowRank(self.left[index], self.right[index])
