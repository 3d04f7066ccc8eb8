"""``FactoredMatrix``: a matrix A·B of low rank, with TransformerLens's names.

    OV = FactoredMatrix(model.W_V, model.W_O)          # [layer head d_model d_model]
    OV[3, 5].S                                         # singular values of L3H5
    (model.W_E @ OV @ model.W_U).eigenvalues

The decompositions are those of :class:`interp.linalg.LowRank`, which never forms the product.
"""

import warnings
from functools import cached_property
from typing import Any, Protocol, Union, runtime_checkable

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from interp.compat.errors import InvalidInput, WrongShape
from interp.errors import shorten
from interp.linalg import LowRank

MATRIX = 2
"""Number of axes of a matrix."""
Factor = Union[Tensor, "TensorLike", "FactoredMatrix"]


@runtime_checkable
class TensorLike(Protocol):
    """What a factor needs, if it is not a tensor, to be multiplied; axes as in a tensor."""

    ndim: Any
    shape: Any
    unsqueeze: Any
    squeeze: Any
    broadcast_to: Any

    def __matmul__(self, other: Any) -> Any: ...


class FactoredMatrix:
    """The matrix ``A @ B``; leading axes are batch axes, which broadcast.

    Factors that are only :class:`TensorLike` can be multiplied and read; every other operation
    needs tensors.

    Args:
        A: ``[... ldim mdim]``.
        B: ``[... mdim rdim]``.

    Attributes:
        A: the left factor, expanded to all leading axes.
        B: the right factor, expanded to all leading axes.
        ldim: rows of the product.
        mdim: inner dimension.
        rdim: columns of the product.
        shape: the shape of the product.
        has_leading_dims: whether there are batch axes.

    Raises:
        InvalidInput: the factors can't be multiplied.
        WrongShape: their leading axes do not broadcast.
    """

    def __init__(self, A: Tensor | TensorLike, B: Tensor | TensorLike) -> None:
        if min(A.ndim, B.ndim) < MATRIX or A.shape[-1] != B.shape[-2]:
            raise InvalidInput(
                f"FactoredMatrix takes A [... ldim mdim] and B [... mdim rdim]; got "
                f"{tuple(A.shape)} and {tuple(B.shape)}."
            )
        self.ldim, self.mdim, self.rdim = A.shape[-2], A.shape[-1], B.shape[-1]
        self.has_leading_dims = max(A.ndim, B.ndim) > MATRIX
        try:
            leading = torch.broadcast_shapes(A.shape[:-2], B.shape[:-2])
        except RuntimeError as error:
            raise WrongShape(
                f"The leading axes of A {tuple(A.shape)} and B {tuple(B.shape)} do not broadcast."
            ) from error
        self.shape = torch.Size((*leading, self.ldim, self.rdim))
        self.A: Any = A.broadcast_to((*leading, self.ldim, self.mdim))
        self.B: Any = B.broadcast_to((*leading, self.mdim, self.rdim))

    def __repr__(self) -> str:
        return f"FactoredMatrix: Shape({self.shape}), Hidden Dim({self.mdim})"

    @property
    def ndim(self) -> int:
        """Number of axes of the product."""
        return len(self.shape)

    @property
    def pair(self) -> tuple[Any, Any]:
        """The two factors."""
        return self.A, self.B

    @property
    def AB(self) -> Any:
        """The product, as a full matrix."""
        return self.A @ self.B

    @property
    def BA(self) -> Any:
        """The product of the factors in the other order; its nonzero eigenvalues are those of AB.

        Raises:
            InvalidInput: AB is not square.
        """
        if self.ldim != self.rdim:
            raise InvalidInput(
                f"BA needs a square matrix; this one is {self.ldim} by {self.rdim}. Use .A and .B."
            )
        return self.B @ self.A

    @property
    def T(self) -> "FactoredMatrix":
        """The transpose of the last two axes."""
        return FactoredMatrix(self.B.mT, self.A.mT)

    # ---- products -----------------------------------------------------------------------------

    def __matmul__(self, other: Factor) -> Any:
        """``self @ other``: a :class:`FactoredMatrix`, or a vector if ``other`` is one ``[rdim]``.

        Raises:
            InvalidInput: the shapes do not match.
        """
        if isinstance(other, FactoredMatrix):
            return (self @ other.A) @ other.B
        self._check_inner(other, other.shape[max(-2, -other.ndim)], self.rdim, "right")
        if other.ndim < MATRIX:
            return (self.A @ (self.B @ other.unsqueeze(-1))).squeeze(-1)
        if self.rdim > self.mdim:
            return FactoredMatrix(self.A, self.B @ other)
        return FactoredMatrix(self.AB, other)

    def __rmatmul__(self, other: Tensor | TensorLike) -> Any:
        """``other @ self``: a :class:`FactoredMatrix`, or a vector if ``other`` is one ``[ldim]``.

        Raises:
            InvalidInput: the shapes do not match.
        """
        self._check_inner(other, other.shape[-1], self.ldim, "left")
        if other.ndim < MATRIX:
            return ((other.unsqueeze(-2) @ self.A) @ self.B).squeeze(-2)
        if self.ldim > self.mdim:
            return FactoredMatrix(other @ self.A, self.B)
        return FactoredMatrix(other, self.AB)

    def __mul__(self, scalar: int | float | Tensor) -> "FactoredMatrix":
        """The product with a number.

        Raises:
            InvalidInput: ``scalar`` is a tensor with more than one element.
        """
        if isinstance(scalar, Tensor) and scalar.numel() != 1:
            raise InvalidInput(
                f"* multiplies by one number, not {shorten(scalar)}; use @ for matrices."
            )
        return FactoredMatrix(self.A * scalar, self.B)

    __rmul__ = __mul__

    def _check_inner(self, other: Tensor | TensorLike, size: int, inner: int, side: str) -> None:
        if size != inner:
            raise InvalidInput(
                f"The {side} factor {tuple(other.shape)} can't be multiplied with this matrix "
                f"{tuple(self.shape)}: {size} is not {inner}."
            )

    # ---- spectra ------------------------------------------------------------------------------

    @cached_property
    def _decomposition(self) -> tuple[Tensor, Tensor, Tensor]:
        u, s, vt = LowRank(self.A, self.B).svd()
        return u, s, vt.mT

    def svd(self) -> tuple[Tensor, Tensor, Tensor]:
        """``(U, S, V)`` with ``AB = U @ S.diag() @ V.mT``, computed once.

        Shapes: ``[... ldim k]``, ``[... k]`` (descending), ``[... rdim k]``; k is the smallest of
        ldim, mdim and rdim, or mdim if the factors are thin.
        """
        return self._decomposition

    @property
    def U(self) -> Float[Tensor, "*batch ldim k"]:
        """Left singular vectors, as columns."""
        return self.svd()[0]

    @property
    def S(self) -> Float[Tensor, "*batch k"]:
        """Singular values, descending."""
        return self.svd()[1]

    @property
    def V(self) -> Float[Tensor, "*batch rdim k"]:
        """Right singular vectors, as columns."""
        return self.svd()[2]

    @property
    def Vh(self) -> Float[Tensor, "*batch rdim k"]:
        """The same as :attr:`V`, not its transpose; the name is TransformerLens's."""
        warnings.warn(
            "As in TransformerLens, FactoredMatrix.Vh is V, not its transpose. Use .V, or .V.mT "
            "for the transpose.",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.V

    @property
    def eigenvalues(self) -> Complex[Tensor, "*batch mdim"]:
        """The eigenvalues of BA: those of AB that can be nonzero, and zeros.

        Half precision is computed in float32.

        Raises:
            InvalidInput: AB is not square.
        """
        product = self.BA
        half = product.dtype in (torch.float16, torch.bfloat16)
        return torch.linalg.eigvals(product.float() if half else product)

    def norm(self) -> Float[Tensor, "*batch"]:
        """Frobenius norm of the product."""
        return self.S.square().sum(-1).sqrt()

    def make_even(self) -> "FactoredMatrix":
        """The same product with the factors U√S and √S Vᵀ."""
        root = self.S.sqrt()
        return FactoredMatrix(self.U * root[..., None, :], root[..., None] * self.V.mT)

    def collapse_l(self) -> Float[Tensor, "*batch k rdim"]:
        """S Vᵀ: the product without the orthogonal factor U."""
        return self.S[..., None] * self.V.mT

    def collapse_r(self) -> Float[Tensor, "*batch ldim k"]:
        """U S: the product without the orthogonal factor Vᵀ."""
        return self.U * self.S[..., None, :]

    # ---- parts --------------------------------------------------------------------------------

    def get_corner(self, k: int = 3) -> Tensor:
        """The first ``k`` entries along each axis of the product."""
        corner = self.A[..., :k, :] @ self.B[..., :, :k]
        return corner[(slice(k),) * corner.ndim]

    def unsqueeze(self, k: int) -> "FactoredMatrix":
        """The matrix with a new leading axis of size 1 at ``k``."""
        return FactoredMatrix(self.A.unsqueeze(k), self.B.unsqueeze(k))

    def __getitem__(self, index: Any) -> "FactoredMatrix":
        """Index leading axes like those of a tensor, then rows and columns of the product.

        An integer for a row or a column keeps the axis, with size 1.

        Raises:
            InvalidInput: there are more indices than axes, or an index is out of range.
        """
        entries = index if isinstance(index, tuple) else (index,)
        n_leading = self.ndim - MATRIX
        axes = [at for at, entry in enumerate(entries) if entry is not None]
        if len(axes) > self.ndim:
            raise InvalidInput(
                f"{len(axes)} indices are too many for a FactoredMatrix of shape "
                f"{tuple(self.shape)}."
            )
        split = axes[n_leading] if len(axes) > n_leading else len(entries)
        leading, last = entries[:split], [_keeping_axis(entry) for entry in entries[split:]]
        rows, columns = (*last, slice(None), slice(None))[:MATRIX]
        try:
            return FactoredMatrix(
                self.A[(*leading, rows, slice(None))] if last else self.A[leading],
                self.B[(*leading, slice(None), columns)] if last else self.B[leading],
            )
        except (IndexError, TypeError) as error:
            raise InvalidInput(
                f"A FactoredMatrix of shape {tuple(self.shape)} can't be indexed with "
                f"{shorten(index)}: {error}"
            ) from error


def _keeping_axis(entry: Any) -> Any:
    """The index of a row or column; an integer as a slice of size 1."""
    if not isinstance(entry, int):
        return entry
    return slice(entry, entry + 1 or None)


def composition_scores(
    left: FactoredMatrix, right: FactoredMatrix, broadcast_dims: bool = True
) -> Tensor:
    """‖left·right‖ / (‖left‖ ‖right‖), with Frobenius norms (Elhage et al. 2021).

    Args:
        left: ``[*left ldim n]``.
        right: ``[*right n rdim]``.
        broadcast_dims: whether to score every pair, ``[*left *right]``; otherwise leading axes
            broadcast.

    Raises:
        InvalidInput: the matrices can't be multiplied.
    """
    if left.rdim != right.ldim:
        raise InvalidInput(
            f"left {tuple(left.shape)} and right {tuple(right.shape)} can't be multiplied: "
            f"{left.rdim} is not {right.ldim}."
        )
    if broadcast_dims:
        n_left, n_right = left.ndim - 2, right.ndim - 2
        for axis in range(n_left):
            right = right.unsqueeze(axis)
        for axis in range(n_right):
            left = left.unsqueeze(n_left + axis)
    new_left, new_right = left.collapse_l(), right.collapse_r()
    composed = (new_left @ new_right).norm(dim=(-2, -1))
    return composed / new_right.norm(dim=(-2, -1)) / new_left.norm(dim=(-2, -1))
