"""MLPs: act(x·W_in + b_in)·W_out + b_out, one neuron per column of W_in.

The gated form multiplies by a second projection of the stream (GLU variants, Shazeer 2020):
(act(x·W_gate) * (x·W_in))·W_out. Weights are stored [out in], so that each projection is a product
with a contiguous matrix; ``W_in [d_model d_mlp]`` and so on are views.
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.config import Activation, MLPConfig
from interp.model.context import Context
from interp.model.linear import Linear
from interp.model.recipe import Layout, Reader, Recipe
from interp.model.shapes import Stream
from interp.model.tap import Tap, untouched
from interp.points import Place, Point

Neurons = Float[Tensor, "batch pos d_mlp"]


def gelu_bloom(x: Tensor) -> Tensor:
    """The tanh approximation of GELU with √(2/π) rounded to eight digits, as in BLOOM."""
    return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1.0 + 0.044715 * x * x)))


def quick_gelu(x: Tensor) -> Tensor:
    """x·σ(1.702 x)."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "gelu_bloom": gelu_bloom,
    "quick_gelu": quick_gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


class Gating:
    """post = act(gate) * pre."""

    def __init__(self, config: MLPConfig) -> None:
        self.act = ACTIVATIONS[config.activation]

    def __call__(self, gate: Tensor, pre: Tensor) -> Tensor:
        """The activations of the neurons, given both projections."""
        return self.act(gate) * pre


class ClampedGating(Gating):
    """post = act(min(gate, c)) * (1 + max(−c, min(pre, c))) (GPT-OSS)."""

    def __init__(self, config: MLPConfig, limit: float) -> None:
        super().__init__(config)
        self.limit = limit

    def __call__(self, gate: Tensor, pre: Tensor) -> Tensor:
        """The activations of the neurons, given both projections."""
        clamped = pre.clamp(-self.limit, self.limit)
        return (clamped + 1) * self.act(gate.clamp(max=self.limit))


def gating_of(config: MLPConfig) -> Gating:
    """The function by which a gated MLP computes the activations of its neurons."""
    return Gating(config) if config.clamp is None else ClampedGating(config, config.clamp)


def matrix(n_out: int, n_in: int) -> nn.Parameter:
    """Random weights [out in] that preserve the variance of their input."""
    return nn.Parameter(torch.randn(n_out, n_in).div_(n_in**0.5))


def bias_of(n: int, present: bool) -> nn.Parameter | None:  # noqa: FBT001 - reads as its config
    """A trainable bias initialized to zeros, or ``None``."""
    return nn.Parameter(torch.zeros(n)) if present else None


class MLP(Linear):
    """x ↦ act(x·W_in + b_in)·W_out + b_out."""

    hidden_point = Point.POST
    mixes_positions = False

    def __init__(self, config: MLPConfig, d_model: int, out: Point = Point.MLP_OUT) -> None:
        super().__init__()
        self.out = out
        self.act = ACTIVATIONS[config.activation]
        self.weight_in = matrix(config.d_mlp, d_model)
        self.weight_out = matrix(d_model, config.d_mlp)
        self.b_in = bias_of(config.d_mlp, config.bias_in)
        self.b_out = bias_of(d_model, config.bias_out)

    def forward(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """``act(x @ W_in + b_in) @ W_out + b_out``."""
        return self.output(self.hidden(x, context, tap), tap)

    def written(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """Its output, which is not given to ``tap``."""
        return self.write(tap(Point.POST, self.hidden(x, context, tap)))

    def hidden(self, x: Stream, context: Context, tap: Tap = untouched) -> Neurons:  # noqa: ARG002
        """``act(x @ W_in + b_in)``, the activations of the neurons."""
        return self.act(tap(Point.PRE, self.pre(x)))

    def output(self, hidden: Neurons, tap: Tap = untouched) -> Stream:
        """``hidden @ W_out + b_out``."""
        return tap(self.out, self.write(tap(Point.POST, hidden)))

    def pre(self, x: Stream) -> Neurons:
        """x·W_in + b_in."""
        return self.linear(x, self.weight_in, self.b_in)

    def write(self, post: Neurons) -> Stream:
        """post·W_out + b_out."""
        return self.linear(post, self.weight_out, self.b_out)

    @property
    def W_in(self) -> Float[Tensor, "d_model d_mlp"]:
        """Input weights of each neuron (a view)."""
        return self.weight_in.mT

    @property
    def W_out(self) -> Float[Tensor, "d_mlp d_model"]:
        """Output weights of each neuron (a view)."""
        return self.weight_out.mT

    def layout(self, source: Place) -> Layout:
        """Its places; ``source`` is the place of its input."""
        pre, post, out = Place(Point.PRE), Place(Point.POST), Place(self.out)
        return {
            pre: Recipe(lambda mlp, of: mlp.pre(of(source.point, source.norm)), (source,)),
            post: Recipe(lambda mlp, of: mlp.act(of(Point.PRE)), (pre,)),
            out: Recipe(lambda mlp, of: mlp.write(of(Point.POST)), (post,)),
        }


class GatedMLP(MLP):
    """x ↦ (act(x·W_gate + b_gate) * (x·W_in + b_in))·W_out + b_out."""

    def __init__(self, config: MLPConfig, d_model: int, out: Point = Point.MLP_OUT) -> None:
        super().__init__(config, d_model, out)
        self.gating = gating_of(config)
        self.weight_gate = matrix(config.d_mlp, d_model)
        self.b_gate = bias_of(config.d_mlp, config.bias_in)

    def hidden(self, x: Stream, context: Context, tap: Tap = untouched) -> Neurons:  # noqa: ARG002
        """``act(x @ W_gate + b_gate) * (x @ W_in + b_in)``."""
        return self.gating(tap(Point.GATE, self.gate(x)), tap(Point.PRE, self.pre(x)))

    def gate(self, x: Stream) -> Neurons:
        """x·W_gate + b_gate."""
        return self.linear(x, self.weight_gate, self.b_gate)

    @property
    def W_gate(self) -> Float[Tensor, "d_model d_mlp"]:
        """Gate weights of each neuron (a view)."""
        return self.weight_gate.mT

    def layout(self, source: Place) -> Layout:
        """The places of an MLP and the gate, which TransformerLens calls ``hook_pre``."""
        gate, pre, post = Place(Point.GATE), Place(Point.PRE), Place(Point.POST)

        def read_gate(mlp: GatedMLP, of: Reader) -> Tensor:
            return mlp.gate(of(source.point, source.norm))

        def gated(mlp: GatedMLP, of: Reader) -> Tensor:
            return mlp.gating(of(Point.GATE), of(Point.PRE))

        plain = super().layout(source)
        return {
            gate: Recipe(read_gate, (source,), hook="mlp.hook_pre"),
            pre: Recipe(plain[pre].compute, (source,), hook="mlp.hook_pre_linear"),
            post: Recipe(gated, (gate, pre)),
            Place(self.out): plain[Place(self.out)],
        }
