"""What does a mixture of experts write? Σ_e w_e(x) · MLP_e(x), with few w_e other than zero.

The router's logits become weights by softmax; the highest few are kept, and divided by their sum
where a model says so (Shazeer et al. 2017; Jiang et al. 2024, Mixtral). Each expert is a gated
MLP, and is run on those tokens alone that were given to it.
"""

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn

from interp.config import ExpertsConfig, MLPConfig
from interp.model.context import Context
from interp.model.linear import Linear
from interp.model.mlp import ACTIVATIONS, matrix
from interp.model.recipe import Layout, Reader, Recipe
from interp.model.tap import Tap, untouched
from interp.points import Place, Point

Stream = Float[Tensor, "batch pos d_model"]
Weights = Float[Tensor, "batch pos expert"]
Neurons = Float[Tensor, "batch pos expert d_mlp"]


class Experts(Linear):
    """x ↦ Σ_e w_e(x) · (act(x·W_gate_e) * (x·W_in_e))·W_out_e."""

    def __init__(self, config: MLPConfig, experts: ExpertsConfig, d_model: int, out: Point) -> None:
        super().__init__()
        self.out = out
        self.act = ACTIVATIONS[config.activation]
        self.n_chosen, self.renormalised = experts.n_chosen, experts.renormalised
        self.weight_router = matrix(experts.n_experts, d_model)
        self.weight_gate = _matrices(experts.n_experts, config.d_mlp, d_model)
        self.weight_in = _matrices(experts.n_experts, config.d_mlp, d_model)
        self.weight_out = _matrices(experts.n_experts, d_model, config.d_mlp)

    def forward(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """Write what the chosen experts have to say, weighed."""
        return self.outer(self.inner(x, context, tap), tap)

    def inner(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:  # noqa: ARG002
        """Σ_e w_e · MLP_e(x)."""
        formed = self.weights(tap(Point.ROUTER, self.router(x)))
        weights = tap(Point.EXPERT_WEIGHTS, formed)
        # Who differentiates by the weights needs those, too, that are 0 and choose nobody.
        by_weights = weights is not formed and torch.is_grad_enabled()
        if not (by_weights or tap.forms(Point.EXPERT_GATE, Point.EXPERT_PRE, Point.EXPERT_POST)):
            return self.of_chosen(x, weights)
        gate, pre = tap(Point.EXPERT_GATE, self.gate(x)), tap(Point.EXPERT_PRE, self.pre(x))
        return self.of_all(weights, tap(Point.EXPERT_POST, self.act(gate) * pre))

    def outer(self, inner: Stream, tap: Tap = untouched) -> Stream:
        """It is written as it is."""
        return tap(self.out, inner)

    @property
    def between(self) -> Point:
        """What the experts say together is what is written."""
        return self.out

    def router(self, x: Stream) -> Weights:
        """x·W_router."""
        return self.linear(x, self.weight_router, None)

    def weights(self, logits: Weights) -> Weights:
        """The softmax, of which the highest are kept; of half precision, computed in float32."""
        half = logits.dtype in (torch.float16, torch.bfloat16)
        shares = logits.softmax(-1, dtype=torch.float32 if half else None)
        highest, chosen = shares.topk(self.n_chosen, dim=-1)
        if self.renormalised:
            highest = highest / highest.sum(-1, keepdim=True)
        return torch.zeros_like(shares).scatter(-1, chosen, highest).to(logits.dtype)

    def of_chosen(self, x: Stream, weights: Weights) -> Stream:
        """Each expert run on the tokens that have a weight for it."""
        tokens, shares = x.flatten(0, 1), weights.flatten(0, 1)
        written = torch.zeros_like(tokens)
        for expert in range(shares.shape[1]):
            (mine,) = shares[:, expert].nonzero(as_tuple=True)
            if len(mine):
                said = self._expert(expert, tokens[mine]) * shares[mine, expert, None]
                written = written.index_add(0, mine, said.to(written.dtype))
        return written.view_as(x)

    def _expert(self, e: int, x: Float[Tensor, "token d_model"]) -> Float[Tensor, "token d_model"]:
        gate, pre = (
            self.linear(x, weight[e], None) for weight in (self.weight_gate, self.weight_in)
        )
        return self.linear(self.act(gate) * pre, self.weight_out[e], None)

    # ---- all of them, where somebody wants to see them ------------------------------------------

    def gate(self, x: Stream) -> Neurons:
        """x·W_gate of every expert."""
        return einsum(x, self.weight_gate, "batch pos d, expert d_mlp d -> batch pos expert d_mlp")

    def pre(self, x: Stream) -> Neurons:
        """x·W_in of every expert."""
        return einsum(x, self.weight_in, "batch pos d, expert d_mlp d -> batch pos expert d_mlp")

    def of_all(self, weights: Weights, post: Neurons) -> Stream:
        """Σ_e w_e · post_e·W_out_e."""
        weighed = post * weights[..., None]
        return einsum(
            weighed, self.weight_out, "batch pos expert d_mlp, expert d d_mlp -> batch pos d"
        )

    @property
    def W_in(self) -> Float[Tensor, "expert d_model d_mlp"]:
        """What each neuron reads (a view)."""
        return self.weight_in.mT

    @property
    def W_gate(self) -> Float[Tensor, "expert d_model d_mlp"]:
        """What opens each neuron (a view)."""
        return self.weight_gate.mT

    @property
    def W_out(self) -> Float[Tensor, "expert d_mlp d_model"]:
        """What each neuron writes (a view)."""
        return self.weight_out.mT

    def layout(self, source: Place) -> Layout:
        """Its places; what all experts have to say is formed only if somebody wants it."""
        router, gate, pre = Place(Point.ROUTER), Place(Point.EXPERT_GATE), Place(Point.EXPERT_PRE)
        shares = Place(Point.EXPERT_WEIGHTS)

        def read(name: str) -> Recipe:
            def make(experts: Experts, of: Reader) -> Tensor:
                return getattr(experts, name)(of(source.point, source.norm))

            return Recipe(make, (source,), on_demand=name != "router")

        def post(experts: Experts, of: Reader) -> Tensor:
            return experts.act(of(Point.EXPERT_GATE)) * of(Point.EXPERT_PRE)

        def written(experts: Experts, of: Reader) -> Tensor:
            return experts.of_chosen(of(source.point, source.norm), of(Point.EXPERT_WEIGHTS))

        return {
            router: read("router"),
            shares: Recipe(lambda experts, of: experts.weights(of(Point.ROUTER)), (router,)),
            gate: read("gate"),
            pre: read("pre"),
            Place(Point.EXPERT_POST): Recipe(post, (gate, pre), on_demand=True),
            Place(self.out): Recipe(written, (source, shares)),
        }


def _matrices(n: int, n_out: int, n_in: int) -> nn.Parameter:
    """Random weights [n out in] that keep the variance of what they read."""
    return nn.Parameter(torch.randn(n, n_out, n_in) / n_in**0.5)
