"""Mixtures of experts: Σ_e w_e(x) · MLP_e(x), with few nonzero w_e.

A softmax turns the router's logits into weights; the largest few are kept, and divided by their sum
if the model is configured so (Shazeer et al. 2017; Mixtral, Jiang et al. 2024). Each expert is a
gated MLP and runs only on the tokens routed to it.
"""

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn

from interp.config import ExpertsConfig, MLPConfig, StackConfig
from interp.model.context import Context
from interp.model.linear import Linear
from interp.model.mlp import MLP, GatedMLP, bias_of, gating_of, matrix
from interp.model.recipe import Layout, Reader, Recipe, owned
from interp.model.shapes import Stream
from interp.model.tap import Tap, untouched
from interp.points import Place, Point

Weights = Float[Tensor, "batch pos expert"]
Neurons = Float[Tensor, "batch pos expert d_mlp"]


class Experts(Linear):
    """x ↦ Σ_e w_e(x) · (act(x·W_gate_e) * (x·W_in_e))·W_out_e, with biases if configured."""

    mixes_positions = False

    def __init__(self, config: MLPConfig, experts: ExpertsConfig, d_model: int, out: Point) -> None:
        super().__init__()
        self.out = self.hidden_point = out
        self.gating = gating_of(config)
        self.top_k = experts.n_chosen
        if experts.margin is None:
            self.route: Routing = LargestShares(experts.n_chosen, experts.renormalised)
        else:
            self.route = SparseMixer(experts.margin)
        self.weight_router = matrix(experts.n_experts, d_model)
        self.weight_gate = _matrices(experts.n_experts, config.d_mlp, d_model)
        self.weight_in = _matrices(experts.n_experts, config.d_mlp, d_model)
        self.weight_out = _matrices(experts.n_experts, d_model, config.d_mlp)
        self.b_router = bias_of(experts.n_experts, experts.bias_router)
        self.b_gate = _biases(experts.n_experts, config.d_mlp, present=config.bias_in)
        self.b_in = _biases(experts.n_experts, config.d_mlp, present=config.bias_in)
        self.b_out = _biases(experts.n_experts, d_model, present=config.bias_out)

    def forward(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """Σ_e w_e(x) · MLP_e(x)."""
        return self.output(self.hidden(x, context, tap), tap)

    def hidden(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:  # noqa: ARG002
        """Σ_e w_e(x) · MLP_e(x)."""
        formed = self.weights(tap(Point.ROUTER, self.router(x)))
        weights = tap(Point.EXPERT_WEIGHTS, formed)
        # The gradient with respect to a weight needs the expert's output even where it is 0.
        by_weights = weights is not formed and torch.is_grad_enabled()
        per_expert = (Point.EXPERT_GATE, Point.EXPERT_PRE, Point.EXPERT_POST)
        if not (by_weights or tap.must_form(*per_expert)):
            return self.of_chosen(x, weights)
        return self.of_each(x, weights, tap)

    def of_each(self, x: Stream, weights: Weights, tap: Tap) -> Stream:
        """Σ_e w_e · MLP_e(x), with every expert run on all tokens."""
        gate, pre = tap(Point.EXPERT_GATE, self.gate(x)), tap(Point.EXPERT_PRE, self.pre(x))
        return self.of_all(weights, tap(Point.EXPERT_POST, self.gating(gate, pre)))

    def output(self, hidden: Stream, tap: Tap = untouched) -> Stream:
        """``hidden``, unchanged."""
        return tap(self.out, hidden)

    def router(self, x: Stream) -> Weights:
        """``x @ W_router + b_router``."""
        return self.linear(x, self.weight_router, self.b_router)

    def weights(self, logits: Weights) -> Weights:
        """The weight of each expert, or 0."""
        return self.route(logits)

    def of_chosen(self, x: Stream, weights: Weights) -> Stream:
        """Σ_e w_e · MLP_e(x), with each expert run only on the tokens with a nonzero weight."""
        tokens, shares = x.flatten(0, 1), weights.flatten(0, 1)
        written = torch.zeros_like(tokens)
        for expert in range(shares.shape[1]):
            (routed,) = shares[:, expert].nonzero(as_tuple=True)
            if len(routed):
                out = self.run_expert(expert, tokens[routed]) * shares[routed, expert, None]
                written = written.index_add(0, routed, out.to(written.dtype))
        return written.view_as(x)

    def run_expert(
        self, e: int, x: Float[Tensor, "token d_model"]
    ) -> Float[Tensor, "token d_model"]:
        """MLP_e(x) for the tokens routed to one expert."""
        gate = self.linear(x, self.weight_gate[e], _of_expert(self.b_gate, e))
        pre = self.linear(x, self.weight_in[e], _of_expert(self.b_in, e))
        return self.linear(self.gating(gate, pre), self.weight_out[e], _of_expert(self.b_out, e))

    # ---- all experts on all tokens, when their points are read or edited ----------------------

    def gate(self, x: Stream) -> Neurons:
        """``x @ W_gate + b_gate`` for every expert."""
        return _of_each(x, self.weight_gate, self.b_gate)

    def pre(self, x: Stream) -> Neurons:
        """``x @ W_in + b_in`` for every expert."""
        return _of_each(x, self.weight_in, self.b_in)

    def of_all(self, weights: Weights, post: Neurons) -> Stream:
        """Σ_e w_e · (post_e·W_out_e + b_out_e)."""
        weighted = post * weights[..., None]
        written = einsum(
            weighted, self.weight_out, "batch pos expert d_mlp, expert d d_mlp -> batch pos d"
        )
        return written if self.b_out is None else written + weights @ self.b_out

    @property
    def W_in(self) -> Float[Tensor, "expert d_model d_mlp"]:
        """Input weights of each neuron (a view)."""
        return self.weight_in.mT

    @property
    def W_gate(self) -> Float[Tensor, "expert d_model d_mlp"]:
        """Gate weights of each neuron (a view)."""
        return self.weight_gate.mT

    @property
    def W_out(self) -> Float[Tensor, "expert d_mlp d_model"]:
        """Output weights of each neuron (a view)."""
        return self.weight_out.mT

    def layout(self, source: Place) -> Layout:
        """Its places; the tensors of every expert are formed only if they are read or edited."""
        router, gate, pre = Place(Point.ROUTER), Place(Point.EXPERT_GATE), Place(Point.EXPERT_PRE)
        shares = Place(Point.EXPERT_WEIGHTS)

        def read(name: str) -> Recipe:
            def compute(experts: Experts, of: Reader) -> Tensor:
                return getattr(experts, name)(of(source.point, source.norm))

            return Recipe(compute, (source,), absent_when_fused=name != "router")

        def post(experts: Experts, of: Reader) -> Tensor:
            return experts.gating(of(Point.EXPERT_GATE), of(Point.EXPERT_PRE))

        def written(experts: Experts, of: Reader) -> Tensor:
            return experts.of_chosen(of(source.point, source.norm), of(Point.EXPERT_WEIGHTS))

        return {
            router: read("router"),
            shares: Recipe(lambda experts, of: experts.weights(of(Point.ROUTER)), (router,)),
            gate: read("gate"),
            pre: read("pre"),
            Place(Point.EXPERT_POST): Recipe(post, (gate, pre), absent_when_fused=True),
            Place(self.out): Recipe(written, (source, shares)),
        }


class SharedExperts(Experts):
    """x ↦ Σ_e w_e(x) · MLP_e(x) + σ(x·w) · MLP_s(x), where MLP_s runs on every token (Qwen2-MoE).

    The points ``gate``, ``pre`` and ``post`` belong to MLP_s.
    """

    def __init__(self, config: MLPConfig, experts: ExpertsConfig, d_model: int, out: Point) -> None:
        super().__init__(config, experts, d_model, out)
        d_shared = experts.d_shared or config.d_mlp
        self.shared = GatedMLP(replace(config, d_mlp=d_shared, experts=None), d_model, out)
        self.weight_shared = matrix(1, d_model)

    def hidden(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """Σ_e w_e(x) · MLP_e(x) + σ(x·w) · MLP_s(x)."""
        routed = super().hidden(x, context, tap)
        written = self.shared.written(x, context, tap)
        share = tap(Point.SHARED_WEIGHT, self.shared_weight(x))
        return routed + share * written

    def shared_weight(self, x: Stream) -> Float[Tensor, "batch pos one"]:
        """``sigmoid(x @ w)``."""
        return self.linear(x, self.weight_shared, None).sigmoid()

    def layout(self, source: Place) -> Layout:
        """The places of the experts, then of the shared one."""
        routed, out = super().layout(source), Place(self.out)
        shared = self.shared.layout(source)
        post, share = Place(Point.POST), Place(Point.SHARED_WEIGHT)
        last, _ = routed.pop(out), shared.pop(out)

        def shared_weight(experts: SharedExperts, of: Reader) -> Tensor:
            return experts.shared_weight(of(source.point, source.norm))

        def written(experts: SharedExperts, of: Reader) -> Tensor:
            routed = experts.of_chosen(of(source.point, source.norm), of(Point.EXPERT_WEIGHTS))
            return routed + of(share.point) * experts.shared.write(of(post.point))

        return {
            **routed,
            **owned("shared", shared),
            share: Recipe(shared_weight, (source,)),
            out: Recipe(written, (*last.needs, share, post)),
        }


# ---- the weights of the experts ------------------------------------------------------------------


@runtime_checkable
class Routing(Protocol):
    """From the router's logits to the weights of the experts."""

    def __call__(self, logits: Weights) -> Weights:
        """The weight of each expert, or 0."""
        ...


@dataclass(frozen=True)
class LargestShares:
    """A softmax over all experts, of which the ``n`` largest shares are kept.

    Attributes:
        n: number of experts per token.
        renormalised: whether the shares that are kept are divided by their sum.
    """

    n: int
    renormalised: bool

    def __call__(self, logits: Weights) -> Weights:
        """The shares, computed in float32 for half-precision logits."""
        half = logits.dtype in (torch.float16, torch.bfloat16)
        shares = logits.softmax(-1, dtype=torch.float32 if half else None)
        largest, chosen = shares.topk(self.n, dim=-1)
        largest = largest / largest.sum(-1, keepdim=True) if self.renormalised else largest
        return torch.zeros_like(shares).scatter(-1, chosen, largest).to(logits.dtype)


@dataclass(frozen=True)
class SparseMixer:
    r"""Two experts, each with its share of a softmax over those whose logits are nearly as large.

    SparseMixer (Liu et al. 2023, arXiv:2310.00811) as Phi-3.5-MoE evaluates it: the second expert's
    softmax leaves the first one out. A logit l is nearly the largest, L, if
    (L − l) / max(\|l\|, L) ≤ margin.

    Attributes:
        margin: the largest relative difference.
    """

    margin: float

    def __call__(self, logits: Weights) -> Weights:
        """The shares, which do not sum to one."""
        first, share = self._largest(logits, logits)
        others = logits.scatter(-1, first, -torch.inf)
        second, other_share = self._largest(others, logits)
        weights = torch.zeros_like(logits).scatter(-1, first, share)
        return weights.scatter(-1, second, other_share)

    def _largest(self, candidates: Weights, logits: Weights) -> tuple[Tensor, Tensor]:
        """The index of the largest candidate, and its share."""
        largest, index = candidates.max(-1, keepdim=True)
        far = (largest - logits) / logits.abs().clamp(min=largest) > self.margin
        shares = candidates.masked_fill(far.detach(), -torch.inf).softmax(-1)
        return index, shares.gather(-1, index)


def _of_each(x: Stream, weight: Tensor, bias: Tensor | None) -> Neurons:
    """``x @ W + b`` for every expert."""
    product = einsum(x, weight, "batch pos d, expert d_mlp d -> batch pos expert d_mlp")
    return product if bias is None else product + bias


def _of_expert(biases: Tensor | None, e: int) -> Tensor | None:
    """The bias of one expert."""
    return None if biases is None else biases[e]


def _biases(n: int, size: int, *, present: bool) -> nn.Parameter | None:
    """Trainable zeros, or none."""
    return nn.Parameter(torch.zeros(n, size)) if present else None


def _matrices(n: int, n_out: int, n_in: int) -> nn.Parameter:
    """Random weights [n out in] that preserve the variance of their input."""
    return nn.Parameter(torch.randn(n, n_out, n_in).div_(n_in**0.5))


def mlp_of(config: StackConfig, d_model: int, out: Point) -> MLP | Experts:
    """The MLP of a configuration, whose output is at the point ``out``."""
    mlp = config.mlp
    if mlp is None:
        raise TypeError("mlp_of: this stack has no MLP.")
    if mlp.experts is not None:
        kind = Experts if mlp.experts.d_shared is None else SharedExperts
        return kind(mlp, mlp.experts, d_model, out)
    return GatedMLP(mlp, d_model, out) if mlp.gated else MLP(mlp, d_model, out)
