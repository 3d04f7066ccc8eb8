"""Composition of low-rank matrices (Elhage et al. 2021)."""

from torch import Tensor

from interp.compat.factored_matrix import FactoredMatrix
from interp.errors import InvalidInput


def composition_scores(
    left: FactoredMatrix, right: FactoredMatrix, broadcast_dims: bool = True
) -> Tensor:
    """‖left·right‖ / (‖left‖ ‖right‖), with Frobenius norms.

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


def get_matrix_corner(matrix: FactoredMatrix, n: int = 3) -> Tensor:
    """The first ``n`` entries along each axis of the product."""
    return matrix.get_corner(n)
