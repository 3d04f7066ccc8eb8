"""Fourier spectra: which share of the variance over positions, or residues, has which frequency.

Of x_0 … x_{n−1}, frequency k is the part Σ_d (a_d cos(2πki/n) + b_d sin(2πki/n)), of one or two
dimensions for each d; over all k = 1 … n/2 these are orthogonal and add up to x less its mean.

Over several axes, such as both summands of a + b mod p, the part of frequency k are all products of
1, cos(2πka/p), sin(2πka/p) with those of b, but the constant: the polynomials of degree two in one
frequency (Nanda et al. 2023, "Progress Measures for Grokking via Mechanistic Interpretability").
Parts of other frequencies are orthogonal, yet the shares do not add up to 1, for the products of
two frequencies belong to none.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def frequency_shares(x: Float[Tensor, "..."], axes: int = 1) -> Float[Tensor, "*rest frequency"]:
    """The share of the variance over the first axes that each frequency explains.

    Args:
        x: the first ``axes`` of its axes are the positions or residues, all of one length n.
        axes: how many these are.

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
        own = squares
        for axis in over:
            own = own.index_select(axis, torch.tensor(sorted({0, k, n - k}), device=x.device))
        parts.append(own.sum(over))
    return torch.stack(parts, -1) / total.where(total > 0, torch.nan)[..., None]


def joint_shares(x: Float[Tensor, "index dim"]) -> Float[Tensor, " frequency"]:
    """The shares of all dimensions together: a large one counts for more.

    Of the Gram matrix x̃ x̃ᵀ of the centred rows, which is small however many dimensions there are:
    frequency k has the variance Σ_ij cos(2πk(i − j)/n) (x̃ x̃ᵀ)_ij.
    """
    centred = x.double() - x.double().mean(0)
    n, gram = len(x), centred @ centred.mT
    powers = torch.fft.ifft(torch.fft.fft(gram, dim=0), dim=1).diagonal().real
    both = powers[1:] + powers[1:].flip(0)  # k and n − k are one frequency
    shares = both[: n // 2].clone()
    if n % 2 == 0:
        shares[-1] /= 2
    total = gram.trace()
    return shares / total.where(total > 0, torch.nan)
