"""Low-rank matrices as products of two thin factors, which are never multiplied out.

S = W_V·W_O and Y = W_Q·W_Kᵀ are d_model × d_model but of rank ≤ d_head; their spectra follow from
r × r matrices (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", for the
eigenvalues of W_OV).

    paths = model.W_E @ attn.S(3) @ model.W_U           # vocab × vocab, still two thin factors
    paths.eigenvalues()
    (x @ attn.S(3)).form()                              # the tensor [batch pos d_model]
"""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from interp.errors import InvalidInput, first_line
from interp.integers import whole_number


@dataclass(frozen=True, eq=False, repr=False)
class LowRank:
    """The m × n matrix ``left @ right`` of rank ≤ r; leading axes are batch axes, which broadcast.

    A product with a matrix (a tensor with two or more axes, or a ``LowRank``) is a ``LowRank``, as
    with TransformerLens's ``FactoredMatrix``; a product with a vector is a tensor. :meth:`form`
    multiplies the factors.

    Attributes:
        left: the left factor ``[... m r]``.
        right: the right factor ``[... r n]``, with the dtype and device of ``left``.

    Raises:
        InvalidInput: the factors can't be multiplied (or, later, those of a product).

    Examples:
        >>> interp.LowRank(torch.ones(3, 1), torch.ones(1, 4)) @ torch.ones(4, 5)
        LowRank([3, 5], rank ≤ 1, float32 on cpu)
    """

    left: Float[Tensor, "*#batch m r"]
    right: Float[Tensor, "*#batch rank n"]

    def __post_init__(self) -> None:
        if min(self.left.ndim, self.right.ndim) < 2:  # noqa: PLR2004 - a matrix
            raise InvalidInput(
                "The factors of a low-rank matrix are matrices, [... m r] and [... r n]; got "
                f"{tuple(self.left.shape)} and {tuple(self.right.shape)}."
            )
        if not self.left.is_floating_point():
            raise InvalidInput(
                f"The factors of a low-rank matrix are floating-point; got {self.left.dtype}."
            )
        _check_product(self.left, self.right)

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

    def __matmul__(self, other: object) -> Any:  # noqa: ANN401 - of a vector Tensor, else LowRank
        """``self @ other``: a vector if ``other`` is one, else low-rank with the smaller rank."""
        if not isinstance(other, LowRank | Tensor):
            return NotImplemented
        core = _product(self.right, other.left if isinstance(other, LowRank) else other)
        if isinstance(other, Tensor):
            is_vector = other.ndim == 1
            return (self.left @ core[..., None])[..., 0] if is_vector else LowRank(self.left, core)
        if self.rank <= other.rank:
            return LowRank(self.left, core @ other.right)
        return LowRank(self.left @ core, other.right)

    def __rmatmul__(self, other: object) -> Any:  # noqa: ANN401 - as in __matmul__
        """``other @ self``, e.g. W_E·S."""
        if not isinstance(other, Tensor):
            return NotImplemented
        core = _product(other, self.left)
        if other.ndim == 1:
            return (core[..., None, :] @ self.right)[..., 0, :]
        return LowRank(core, self.right)

    def svd(self) -> tuple[Tensor, Tensor, Tensor]:
        """U ``[... m r]``, singular values ``[... r]`` (descending), Vᵀ ``[... r n]``.

        Raises:
            InvalidInput: the product is not finite.
        """
        q_left, r_left = torch.linalg.qr(self.left)
        q_right, r_right = torch.linalg.qr(self.right.mT)
        core = r_left @ r_right.mT
        _check_finite(core)
        u, s, vt = torch.linalg.svd(core, full_matrices=False)
        return q_left @ u, s, vt @ q_right.mT

    def singular_values(self) -> Float[Tensor, "*batch r"]:
        """Singular values, descending; those beyond the r-th are zero."""
        return self.svd()[1]

    def eigenvalues(self) -> Complex[Tensor, "*batch r"]:
        """The r eigenvalues that can be nonzero (those of ``right @ left``).

        Raises:
            InvalidInput: the product is not square, or not finite.
        """
        self._check_square("eigenvalues")
        core = self.right @ self.left
        _check_finite(core)
        return torch.linalg.eigvals(core)

    def positive_fraction(self) -> Float[Tensor, "*batch"]:
        """Σ λ / Σ |λ| over the eigenvalues, from −1 to 1; 0 if all of them are 0.

        Of W_E S W_U, how far a head copies what it attends to (Elhage et al. 2021).

        Raises:
            InvalidInput: the product is not square.
        """
        eigenvalues = self.eigenvalues()
        total = eigenvalues.abs().sum(-1)
        return eigenvalues.real.sum(-1) / total.where(total > 0, 1)

    def norm(self) -> Float[Tensor, "*batch"]:
        """Frobenius norm, from the product of triangular factors, which avoids cancellation."""
        r_left = torch.linalg.qr(self.left, mode="r")[1]
        r_right = torch.linalg.qr(self.right.mT, mode="r")[1]
        return torch.linalg.matrix_norm(r_left @ r_right.mT)

    def trace(self) -> Float[Tensor, "*batch"]:
        """The trace, equal to that of ``right @ left``.

        Raises:
            InvalidInput: the product is not square.
        """
        self._check_square("a trace")
        return (self.left * self.right.mT).sum((-2, -1))

    def __getitem__(self, index: object) -> "LowRank":
        """Index the batch axes with integers and slices, like those of the matrix itself.

        Raises:
            InvalidInput: an index has another type or is out of range, or there are more indices
                than batch axes.
        """
        batch = self._batch()
        try:
            chosen = _integers_and_slices(index, len(batch))
            factors = (self.left, self.right)
            left, right = (factor.expand(*batch, *factor.shape[-2:])[chosen] for factor in factors)
        except (IndexError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"The batch axes {tuple(batch)} of a low-rank matrix can't be indexed with "
                f"{repr(index)[:100]}: {first_line(error)}. Use integers and slices, or .form()."
            ) from error
        return LowRank(left, right)

    def __iter__(self) -> Iterator["LowRank"]:
        """Iterate over the first batch axis."""
        return (self[position] for position in range(self._batch()[0]))

    def _batch(self) -> torch.Size:
        """The batch shape; a matrix without batch axes raises ``InvalidInput``."""
        if len(self.shape) == 2:  # noqa: PLR2004 - a matrix
            raise InvalidInput("A single low-rank matrix has no batch axis to index; use .form().")
        return self.shape[:-2]

    def _check_square(self, what: str) -> None:
        if self.shape[-1] != self.shape[-2]:
            raise InvalidInput(f"Only a square matrix has {what}; this is {tuple(self.shape)}.")


def _check_finite(core: Tensor) -> None:
    """Raise ``InvalidInput`` for NaN or infinity, on which LAPACK may end the process."""
    if not bool(core.isfinite().all()):
        raise InvalidInput(
            "The product of the factors of a low-rank matrix holds NaN or infinity, so it has no "
            "spectrum. Look for factors that are not finite, or too large for "
            f"{str(core.dtype).removeprefix('torch.')}."
        )


def _product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right``, if they can be multiplied."""
    _check_product(left, right)
    return left @ right


def _check_product(left: Tensor, right: Tensor) -> None:
    """Raise ``InvalidInput`` unless ``left @ right`` exists."""
    pair = f"The factors {tuple(left.shape)} and {tuple(right.shape)} can't be multiplied: "
    if left.ndim == 0 or right.ndim == 0 or left.shape[-1] != right.shape[max(-2, -right.ndim)]:
        raise InvalidInput(
            f"{pair}the last axis of the left must equal the last but one of the right."
        )
    if left.dtype != right.dtype or left.device != right.device:
        raise InvalidInput(
            f"{pair}one is {left.dtype} on {left.device}, the other {right.dtype} on "
            f"{right.device}; move one with .to(dtype, device)."
        )
    try:
        torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except RuntimeError as error:
        raise InvalidInput(f"{pair}their batch axes do not broadcast.") from error


def _integers_and_slices(index: object, n_axes: int) -> tuple[int | slice, ...]:
    """An index of at most ``n_axes`` axes, with one entry per axis."""
    chosen = index if isinstance(index, tuple) else (index,)
    if len(chosen) > n_axes:
        raise IndexError(f"{len(chosen)} indices for {n_axes} axes")
    return tuple(index if isinstance(index, slice) else whole_number(index) for index in chosen)
