"""Fourier spectra: the share of the variance over positions, or residues, at each frequency.

For x_0 … x_{n−1} with entries d, the component of frequency k is a_d cos(2πki/n) + b_d sin(2πki/n),
in a subspace of one or two dimensions for each d. The components of k = 1 … n/2 are orthogonal, and
their sum is x minus its mean.

Over several axes, such as both summands of a + b mod p, the component of frequency k is spanned by
all products of 1, cos(2πka/p), sin(2πka/p) with the same functions of b, except the constant
(Nanda et al. 2023, "Progress Measures for Grokking via Mechanistic Interpretability"). Components
of different frequencies are orthogonal, but the shares do not add up to 1, since products of two
frequencies belong to no component.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def frequency_shares(x: Float[Tensor, "..."], axes: int = 1) -> Float[Tensor, "*rest frequency"]:
    """The share of the variance over the first axes that each frequency explains.

    Args:
        x: values whose first ``axes`` axes are positions or residues, all of the same length n.
        axes: number of these axes.

    Returns:
        The shares of frequencies 1 … n/2, for each entry of the other axes; NaN where x does not
        vary.
    """
    n, over = len(x), tuple(range(axes))
    squares = torch.fft.fftn(x.double(), dim=over).abs().square()
    squares[(0,) * axes] = 0
    total = squares.sum(over)
    parts: list[Tensor] = []
    for k in range(1, n // 2 + 1):
        power = squares
        for axis in over:
            power = power.index_select(axis, torch.tensor(sorted({0, k, n - k}), device=x.device))
        parts.append(power.sum(over))
    return torch.stack(parts, -1) / total.where(total > 0, torch.nan)[..., None]


def joint_shares(x: Float[Tensor, "index dim"]) -> Float[Tensor, " frequency"]:
    """The share of each frequency in the total variance of all dimensions.

    It is computed from the Gram matrix G = x̃ x̃ᵀ of the centred rows, whose size does not depend
    on the number of dimensions: frequency k has the sum of squares (2/n) Σ_ij cos(2πk(i − j)/n)
    G_ij, or half of that if k = n/2.
    """
    centred = x.double() - x.double().mean(0)
    n, gram = len(x), centred @ centred.mT
    powers = torch.fft.ifft(torch.fft.fft(gram, dim=0), dim=1).diagonal().real
    both = powers[1:] + powers[1:].flip(0)  # k and n − k are the same frequency
    shares = both[: n // 2].clone()
    if n % 2 == 0:
        shares[-1] /= 2
    total = gram.trace()
    return shares / total.where(total > 0, torch.nan)
