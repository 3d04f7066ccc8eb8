"""Weights of the core in the shapes of TransformerLens, as views."""

from torch import Tensor


def whole(weight: Tensor) -> Tensor:
    """All of a weight."""
    return weight.view_as(weight)


def flat(weight: Tensor) -> Tensor:
    """A weight of one axis."""
    return weight.flatten()


def transposed(weight: Tensor) -> Tensor:
    """The transpose: ``[out in]`` as ``[in out]``."""
    return weight.mT


def input_heads(weight: Tensor, span: tuple[int, int], d: int) -> Tensor:
    """Rows of queries, keys or values ``[head d_model d_head]``.

    Args:
        weight: the joint weight of all of them ``[rows d_model]``.
        span: the first head and the number of heads.
        d: number of rows of a head.
    """
    first, n = span
    return weight[first * d : (first + n) * d].unflatten(0, (n, d)).mT


def output_heads(weight: Tensor, n: int) -> Tensor:
    """W_O ``[head d_head d_model]``."""
    return weight.unflatten(1, (n, -1)).permute(1, 2, 0)


def bias_heads(bias: Tensor, n: int) -> Tensor:
    """A bias ``[head d_head]``."""
    return bias.unflatten(0, (n, -1))


def one_expert(weight: Tensor, index: int) -> Tensor:
    """The matrix ``[out in]`` of one expert, from those of all ``[expert out in]``."""
    return weight[index]
