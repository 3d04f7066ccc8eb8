"""By which frequencies does a model add modulo p? Each logit, taken apart into cosines.

A network that adds by rotations gives the answer c after a and b the logit
Σ_k amplitude_k · cos(2πk(a + b − c)/p), of a few frequencies k. These p³ numbers are, for
different k, at right angles to one another; so each explains a share of the logits' variance, and
the shares add up.

Reference: Nanda et al. 2023, "Progress Measures for Grokking via Mechanistic Interpretability".
"""

import torch
from jaxtyping import Float
from torch import Tensor

LEAST_SHARE = 0.01
"""A frequency is named if it explains at least so much."""


def explained(logits: Float[Tensor, "p p p"]) -> dict[int, float]:
    """The share of the logits' variance that each frequency explains.

    Args:
        logits: of the answer c after a and b, ``[a b c]``.

    Returns:
        The share by frequency k = 1 … (p − 1)/2. What all answers have in common says nothing of
        which is chosen, and is left out.
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
        # Each distance stands p² times among the p³ logits, so |cos|² sums to p²·Σ wave².
        shares[k] = (sums.dot(wave).square() / (p**2 * wave.square().sum()) / total).item()
    return shares


def key_frequencies(shares: dict[int, float]) -> dict[int, float]:
    """Those that explain something, the strongest first."""
    named = {k: share for k, share in shares.items() if share >= LEAST_SHARE}
    return dict(sorted(named.items(), key=lambda item: -item[1]))
