"""Mixtures of experts with TransformerLens's names: ``mlp.experts.E``, the router ``mlp.W_gate``.

``hook_expert_weights`` has the softmax over all experts, in float32, before the largest are
selected; ``hook_expert_indices`` has the experts of each token. Both have one row per token; the
hooks of an expert have one row per token that is routed to it, in the order of its ranks
(Mixtral, Jiang et al. 2024).
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.compat.caching_hooks import call_hooks
from interp.compat.config import HookedTransformerConfig
from interp.compat.hook_point import HookPoint
from interp.compat.shared_weights import SharedWeights
from interp.compat.weight_views import one_expert, whole
from interp.model import Experts


class CanBeUsedAsMLP(nn.Module):
    """Base class of what can be the MLP of a block."""


class Projection(nn.Module):
    """A matrix as the parameter ``weight [out in]``."""

    weight: nn.Parameter

    def forward(self, x: Tensor) -> Tensor:
        """x·weightᵀ."""
        return F.linear(x, self.weight)


class Expert(nn.Module):
    """One expert."""

    W_in: nn.Module
    W_out: nn.Module
    W_gate: nn.Module

    def __init__(self, core: Experts, index: int, weights: SharedWeights) -> None:
        super().__init__()
        view = partial(one_expert, index=index)
        parts = {"W_in": core.weight_in, "W_out": core.weight_out, "W_gate": core.weight_gate}
        for name, stored in parts.items():
            self.add_module(name, Projection())
            weights.add(self.get_submodule(name), "weight", stored, view)
        self.hook_gate, self.hook_pre, self.hook_post = HookPoint(), HookPoint(), HookPoint()
        self._core = (core,)

    def forward(self, x: Tensor) -> Tensor:
        """The output for tokens ``[token d_model]``."""
        gate = call_hooks(self.hook_gate, self.W_gate(x))
        pre = call_hooks(self.hook_pre, self.W_in(x))
        return self.W_out(call_hooks(self.hook_post, self._core[0].gating(gate, pre)))


class MoE(CanBeUsedAsMLP):
    """The weights and hook points of a mixture of experts."""

    def __init__(self, cfg: HookedTransformerConfig, core: Experts, weights: SharedWeights) -> None:
        super().__init__()
        self.cfg, self.d_mlp = cfg, core.weight_in.shape[1]
        self.num_experts, self.experts_per_token = core.weight_in.shape[0], core.top_k
        experts = (Expert(core, index, weights) for index in range(self.num_experts))
        self.experts = nn.ModuleList(experts)
        self.W_gate = Projection()
        weights.add(self.W_gate, "weight", core.weight_router, whole)
        self.hook_expert_weights, self.hook_expert_indices = HookPoint(), HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        """The output ``[batch pos d_model]``, of the experts of each token."""
        flat = x.flatten(0, 1)
        shares = self.W_gate(flat).softmax(-1, dtype=torch.float32)
        weights, indices = self._selected(call_hooks(self.hook_expert_weights, shares))
        total = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            rank, tokens = indices.T.eq(index).nonzero(as_tuple=True)
            output = expert(flat[tokens]) * weights.to(x.dtype)[tokens, rank, None]
            total = total.index_add(0, tokens, output)
        return total.view(x.shape)

    def _selected(self, shares: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and indices of the experts of each token ``[token rank]``, after hooks."""
        largest, taken = shares.topk(self.experts_per_token, dim=-1)
        if self.cfg.norm_topk_prob:
            largest = largest / largest.sum(-1, keepdim=True)
        return largest, call_hooks(self.hook_expert_indices, taken)
