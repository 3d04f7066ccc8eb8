"""Activations of dictionaries: which features are active, and how strongly.

Each is a function of h = (x − b_in) W_enc + b_enc, ``[... feature]``.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

Features = Float[Tensor, "*batch feature"]
Weights = Float[Tensor, " feature"]


@runtime_checkable
class Activation(Protocol):
    """A function of what the encoder computes."""

    def __call__(self, h: Features) -> Features:
        """The activations of all features, of which most are zero."""
        ...


@dataclass(frozen=True)
class ReLU:
    """max(h, 0)."""

    def __call__(self, h: Features) -> Features:
        """The activations of all features."""
        return h.relu()


@dataclass(frozen=True, eq=False)
class JumpReLU:
    """max(h, 0) where h > θ (Rajamanoharan et al. 2024, arXiv:2407.14435).

    Also what BatchTopK and Matryoshka dictionaries compute after training.

    Attributes:
        threshold: θ of each feature.
    """

    threshold: Weights

    def __call__(self, h: Features) -> Features:
        """The activations of all features."""
        return h.relu() * (h > self.threshold)


@dataclass(frozen=True)
class TopK:
    """max(h, 0) of the k largest h of each token (Gao et al. 2024, arXiv:2406.04093).

    Attributes:
        k: number of features, fewer where fewer are above zero.
        keeps_negative: h itself instead of max(h, 0), as circuit-tracer computes.
    """

    k: int
    keeps_negative: bool = False

    def __call__(self, h: Features) -> Features:
        """The activations of all features."""
        largest, indices = h.topk(self.k, dim=-1)
        values = largest if self.keeps_negative else largest.relu()
        return torch.zeros_like(h).scatter(-1, indices, values)


@dataclass(frozen=True)
class GroupMax:
    """The largest max(h, 0) of each of k groups of consecutive features (sparsify).

    Attributes:
        k: number of groups, which have the same size.
    """

    k: int

    def __call__(self, h: Features) -> Features:
        """The activations of all features."""
        groups = h.relu().unflatten(-1, (self.k, -1))
        largest, indices = groups.max(-1, keepdim=True)
        return torch.zeros_like(groups).scatter(-1, indices, largest).flatten(-2)


@dataclass(frozen=True, eq=False)
class Gated:
    """max(h exp(r) + b_mag, 0) where h + b_gate > 0 (Rajamanoharan et al. 2024, arXiv:2404.16014).

    Attributes:
        b_gate: bias of the gate.
        r_mag: logarithm of the scale of magnitudes.
        b_mag: bias of magnitudes.
    """

    b_gate: Weights
    r_mag: Weights
    b_mag: Weights

    def __call__(self, h: Features) -> Features:
        """The activations of all features."""
        return (h * self.r_mag.exp() + self.b_mag).relu() * (h + self.b_gate > 0)
