"""Other exits: scaled or projected logits, no logits; head and pooler of a masked language model.

A masked language model has norm(act(x·W + b)) in place of the final norm (Devlin et al. 2019) or
after it (ModernBERT), and may have a pooler, which maps the first token's stream to one vector.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.config import NO_NORM, Config, HeadConfig, NormConfig, StackConfig
from interp.model.embedding_kinds import Projection
from interp.model.linear import Linear
from interp.model.mean_pooling import MeanPooledNorm
from interp.model.mlp import ACTIVATIONS, bias_of, matrix
from interp.model.norm import FINAL, HEAD, Norm, ScaledNorm
from interp.model.norm_kinds import norm_of
from interp.model.recipe import Layout, Reader, Recipe, owned
from interp.model.shapes import Stream
from interp.model.tap import Tap, untouched
from interp.model.unembedding import Exit, Unembedding
from interp.points import Place, Point


class StreamExit(Exit):
    """x ↦ x: the exit of a model without logits, which returns its last stream."""

    def forward(self, x: Stream, tap: Tap = untouched) -> Tensor:  # noqa: ARG002
        """x, unchanged."""
        return x


class ProjectedExit(Exit):
    """x ↦ x·W_P: the exit of a model without logits that projects its last stream (OPT-350m)."""

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        self.project = Projection(d_model, width)

    def forward(self, x: Stream, tap: Tap = untouched) -> Tensor:  # noqa: ARG002
        """x·W_P."""
        return self.read(x)

    def read(self, x: Stream) -> Float[Tensor, "batch pos width"]:
        """x·W_P."""
        return self.project(x)


class ScaledUnembedding(Unembedding):
    """x ↦ scale·x·W_U + b_U (T5, whose W_U is W_E)."""

    def __init__(self, config: Config, tied_to: nn.Parameter | None, scale: float) -> None:
        super().__init__(config, tied_to)
        self.scale = scale

    def read(self, x: Stream) -> Stream:
        """scale·x."""
        return x * self.scale

    @property
    def W_U(self) -> Float[Tensor, "d_model vocab"]:
        """The matrix from the stream to the logits (a copy)."""
        return self.scale * self.weight.mT


class ProjectedUnembedding(Unembedding):
    """x ↦ x·W_P·W_U + b_U (OPT-350m, whose W_U is narrower than the stream)."""

    def __init__(self, config: Config, tied_to: nn.Parameter | None, width: int) -> None:
        super().__init__(config, tied_to)
        self.project = Projection(config.d_model, width)

    def read(self, x: Stream) -> Float[Tensor, "batch pos width"]:
        """x·W_P."""
        return self.project(x)

    @property
    def W_U(self) -> Float[Tensor, "d_model vocab"]:
        """The matrix from the stream to the logits (a copy)."""
        return self.project.weight.mT @ self.weight.mT


class MaskedHead(Linear, Norm):
    """x ↦ norm(act(x·W + b)), between the last block and the unembedding of a masked LM.

    Args:
        config: configuration of the head.
        before: configuration of the stack's norms; the head applies it to x if it has a final norm.
        d_model: width of the stream.
    """

    def __init__(self, config: HeadConfig, before: NormConfig, d_model: int) -> None:
        super().__init__()
        width = config.width or d_model
        self.act = ACTIVATIONS[config.activation]
        self.norm_before = norm_of(before if before.final else NO_NORM, d_model, points=HEAD)
        self.weight, self.bias = matrix(width, d_model), bias_of(width, present=config.bias)
        self.norm = norm_of(config.norm, width, points=FINAL)

    def forward(self, x: Stream, tap: Tap = untouched) -> Float[Tensor, "batch pos width"]:
        """norm(act(x·W + b))."""
        post = self.act(tap(Point.HEAD_PRE, self.pre(self.norm_before(x, tap))))
        return self.norm(tap(Point.HEAD_POST, post), tap)

    def pre(self, x: Stream) -> Float[Tensor, "batch pos width"]:
        """``x @ W + b``."""
        return self.linear(x, self.weight, self.bias)

    def layout(self, source: Place, norm: str | None = None) -> Layout:  # noqa: ARG002
        """Its places; ``source`` is the place of the last stream."""
        pre, post = Place(Point.HEAD_PRE), Place(Point.HEAD_POST)
        read = self.norm_before.output(source)

        def compute(head: MaskedHead, of: Reader) -> Tensor:
            return head.pre(of(read.point, read.norm))

        return {
            **owned("norm_before", self.norm_before.layout(source)),
            pre: Recipe(compute, (read,)),
            post: Recipe(lambda head, of: head.act(of(Point.HEAD_PRE)), (pre,)),
            **owned("norm", self.norm.layout(post)),
        }


class Pooler(Linear):
    """x ↦ tanh(x·W + b): one vector per text, from its first token's stream (Devlin et al. 2019).

    It is not part of the forward: call ``model.pooler(stream[:, 0])``, where the stream is the
    output of a model without a head (with a head, the output of the last block:
    ``("normalized", -1, "ln2")``).
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight, self.bias = matrix(d_model, d_model), bias_of(d_model, present=True)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """tanh(x·W + b)."""
        return torch.tanh(self.linear(x, self.weight, self.bias))


def exit_of(config: Config, embedding: nn.Parameter | None) -> Exit:
    """The exit of a configuration, tied to the last stack's ``embedding`` if configured so."""
    tied_to = embedding if config.tied else None
    if not config.unembeds:
        width = config.d_unembed
        return StreamExit() if width is None else ProjectedExit(config.d_model, width)
    if config.logit_scale is not None:
        return ScaledUnembedding(config, tied_to, config.logit_scale)
    if config.d_unembed is not None:
        return ProjectedUnembedding(config, tied_to, config.d_unembed)
    return Unembedding(config, tied_to)


def final_norm_of(config: StackConfig, d_model: int, head: HeadConfig | None) -> Norm:
    """What follows the last block of a stack, before the unembedding."""
    if head is not None:
        return MaskedHead(head, config.norm, d_model)
    norm = norm_of(config.norm, d_model, points=FINAL) if config.norm.final else Norm()
    patches = config.embedding.patches
    if patches is not None and patches.mean_pooled and isinstance(norm, ScaledNorm):
        return MeanPooledNorm(norm, patches.n_special)
    return norm
