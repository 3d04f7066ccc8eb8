"""Rules that compute scores from outputs and gradients at the points of a path.

    score = Σ_k g_k · Δ_k        Δ_k = Σ_l D_kl u_l

u_l is the output of a writer at point l of the path, and g_k the gradient of the metric with
respect to the input of a reader at point k. The rules differ in D:

    eap           g_0 · (u_n − u_0)                         the gradient of the clean run
    eap-ig        Σ_k w_k g_k · (u_n − u_0)                 the mean gradient along the path
    conductance   Σ_k (g_k + g_{k+1})/2 · (u_{k+1} − u_k)   gradient times change along the path

with the weights w_k of the trapezoidal rule. For a writer that depends on other writers, u_n − u_0
and the mean gradient may come from different parts of the path: their product is not an integral,
and ``eap-ig`` sums to the change of the metric only over the edges from the inputs, where u is
linear in t. Conductance is the integral of g · du/dt, and sums to the change of the metric over
every cut of the graph.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.attribution.path import Times

Weights = Float[Tensor, "prompt k l"]


def eap(times: Times) -> Weights:
    """Attribution patching (Nanda 2023; for edges, Syed et al. 2023)."""
    weights = _zeros(times)
    weights[:, 0, 0], weights[:, 0, -1] = -1.0, 1.0
    return weights


def eap_ig(times: Times) -> Weights:
    """Attribution patching with integrated gradients (Hanna et al. 2024)."""
    weights, half = _zeros(times), times.diff(dim=0).mT / 2
    weights[:, :-1, -1] += half
    weights[:, 1:, -1] += half
    weights[..., 0] -= weights[..., -1]
    return weights


def conductance(times: Times) -> Weights:
    """Conductance (Dhamdhere et al. 2018), here for edges."""
    weights = _zeros(times)
    for k in range(len(times) - 1):
        weights[:, k : k + 2, k] -= 0.5
        weights[:, k : k + 2, k + 1] += 0.5
    return weights


RULES: dict[str, Callable[[Times], Weights]] = {
    "conductance": conductance,
    "eap": eap,
    "eap-ig": eap_ig,
}
"""The rules by the names of their methods."""


def _zeros(times: Times) -> Weights:
    n, prompts = times.shape
    return torch.zeros(prompts, n, n, dtype=times.dtype, device=times.device)
