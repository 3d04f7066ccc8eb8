"""Mixtures of experts: Σ_e w_e(x) · MLP_e(x), with few w_e other than zero.

The router's logits become weights by softmax; the largest few are kept, and divided by their sum if
the model is configured so (Shazeer et al. 2017; Mixtral, Jiang et al. 2024). Each expert is a gated
MLP and runs only on the tokens that have a weight for it.
"""

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn

from interp.config import ExpertsConfig, MLPConfig
from interp.model.context import Context
from interp.model.linear import Linear
from interp.model.mlp import bias_of, gating_of, matrix
from interp.model.recipe import Layout, Reader, Recipe
from interp.model.shapes import Stream
from interp.model.tap import Tap, untouched
from interp.points import Place, Point

Weights = Float[Tensor, "batch pos expert"]
Neurons = Float[Tensor, "batch pos expert d_mlp"]


class Experts(Linear):
    """x ↦ Σ_e w_e(x) · (act(x·W_gate_e) * (x·W_in_e))·W_out_e, and biases if it has any."""

    mixes_positions = False

    def __init__(self, config: MLPConfig, experts: ExpertsConfig, d_model: int, out: Point) -> None:
        super().__init__()
        self.out = self.hidden_point = out
        self.gating = gating_of(config)
        self.top_k = experts.n_chosen
        self.rescale = sum_to_one if experts.renormalised else unchanged
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
        # The gradient by a weight needs the expert's output also where the weight is 0.
        by_weights = weights is not formed and torch.is_grad_enabled()
        per_expert = (Point.EXPERT_GATE, Point.EXPERT_PRE, Point.EXPERT_POST)
        if not (by_weights or tap.must_form(*per_expert)):
            return self.of_chosen(x, weights)
        gate, pre = tap(Point.EXPERT_GATE, self.gate(x)), tap(Point.EXPERT_PRE, self.pre(x))
        return self.of_all(weights, tap(Point.EXPERT_POST, self.gating(gate, pre)))

    def output(self, hidden: Stream, tap: Tap = untouched) -> Stream:
        """``hidden``, unchanged."""
        return tap(self.out, hidden)

    def router(self, x: Stream) -> Weights:
        """``x @ W_router + b_router``."""
        return self.linear(x, self.weight_router, self.b_router)

    def weights(self, logits: Weights) -> Weights:
        """Softmax, of which the largest are kept; of half precision, computed in float32."""
        half = logits.dtype in (torch.float16, torch.bfloat16)
        shares = logits.softmax(-1, dtype=torch.float32 if half else None)
        largest, chosen = shares.topk(self.top_k, dim=-1)
        return torch.zeros_like(shares).scatter(-1, chosen, self.rescale(largest)).to(logits.dtype)

    def of_chosen(self, x: Stream, weights: Weights) -> Stream:
        """Σ_e w_e · MLP_e(x), each expert run on the tokens that have a weight for it."""
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
        """MLP_e(x) of the tokens routed to one expert."""
        gate = self.linear(x, self.weight_gate[e], _of_expert(self.b_gate, e))
        pre = self.linear(x, self.weight_in[e], _of_expert(self.b_in, e))
        return self.linear(self.gating(gate, pre), self.weight_out[e], _of_expert(self.b_out, e))

    # ---- all experts on all tokens, where their points are read or edited ---------------------

    def gate(self, x: Stream) -> Neurons:
        """``x @ W_gate + b_gate`` of every expert."""
        return _of_each(x, self.weight_gate, self.b_gate)

    def pre(self, x: Stream) -> Neurons:
        """``x @ W_in + b_in`` of every expert."""
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
        """Its places; those of every expert are formed only if they are read or edited."""
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


def sum_to_one(weights: Tensor) -> Tensor:
    """Weights divided by their sum over the last axis."""
    return weights / weights.sum(-1, keepdim=True)


def unchanged(weights: Tensor) -> Tensor:
    """The weights themselves."""
    return weights


def _of_each(x: Stream, weight: Tensor, bias: Tensor | None) -> Neurons:
    """``x @ W + b`` of every expert."""
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
    return nn.Parameter(torch.randn(n, n_out, n_in) / n_in**0.5)
