"""The frequencies of a model that adds modulo p: a decomposition of its logits into cosines.

In a network that adds by rotations, the logit of the answer c to a + b is
Σ_k amplitude_k · cos(2πk(a + b − c)/p), with few frequencies k. As vectors of p³ entries, the
cosines of different k are orthogonal. Each therefore explains a share of the logits' variance, and
the shares of several frequencies can be added.

Reference: Nanda et al. 2023, "Progress Measures for Grokking via Mechanistic Interpretability".
"""

import torch
from jaxtyping import Float
from torch import Tensor

LEAST_SHARE = 0.01
"""Smallest share of the variance that a key frequency explains."""


def explained(logits: Float[Tensor, "p p p"]) -> dict[int, float]:
    """The share of the logits' variance that each frequency explains.

    Args:
        logits: the logit of each answer c to a + b, ``[a b c]``.

    Returns:
        The share of each frequency k = 1 … (p − 1)/2. The mean over c is subtracted first, which
        does not change the most likely answer.
    """
    p = len(logits)
    centred = logits.double() - logits.double().mean(-1, keepdim=True)
    numbers = torch.arange(p)
    distance = (numbers[:, None, None] + numbers[:, None] - numbers) % p
    sums = torch.zeros(p, dtype=torch.float64).index_add(0, distance.flatten(), centred.flatten())
    total = centred.square().sum()
    shares: dict[int, float] = {}
    for k in range(1, (p + 1) // 2):
        wave = torch.cos(2 * torch.pi * k * numbers.double() / p)
        # Each distance occurs p² times among the p³ logits, so cos² sums to p²·Σ wave².
        shares[k] = (sums.dot(wave).square() / (p**2 * wave.square().sum()) / total).item()
    return shares


def key_frequencies(shares: dict[int, float]) -> dict[int, float]:
    """The frequencies that explain at least ``LEAST_SHARE``, in descending order of share."""
    named = {k: share for k, share in shares.items() if share >= LEAST_SHARE}
    return dict(sorted(named.items(), key=lambda item: -item[1]))
