"""The exit of a model: logits = x·W_U + b_U, possibly soft-capped.

Other exits are in :mod:`interp.model.unembedding_kinds`.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.config import Config
from interp.model.attention.attention import soft_cap_of
from interp.model.linear import Linear
from interp.model.mlp import bias_of
from interp.model.recipe import STORED, Layout
from interp.model.shapes import Logits, Stream
from interp.model.tap import Tap, untouched
from interp.points import Place, Point


class Exit(Linear):
    """Base class: from the last stream to what the model returns."""

    def forward(self, x: Stream, tap: Tap = untouched) -> Tensor:
        """The model's output."""
        raise NotImplementedError

    def layout(self) -> Layout:
        """Its places: none."""
        return {}


class Unembedding(Exit):
    """x ↦ x·W_U + b_U."""

    def __init__(self, config: Config, tied_to: nn.Parameter | None) -> None:
        super().__init__()
        width = config.unembed_width
        free = torch.randn(config.n_logits, width).div_(width**0.5)
        self.weight = nn.Parameter(free) if tied_to is None else tied_to
        self.b_U = bias_of(config.n_logits, config.bias_u)
        self.soft_cap = soft_cap_of(config.logit_cap)

    def forward(self, x: Stream, tap: Tap = untouched) -> Logits:
        """``x @ W_U + b_U``."""
        return tap(Point.LOGITS, self.soft_cap(self.linear(self.read(x), self.weight, self.b_U)))

    def some(self, x: Stream, columns: Int[Tensor, " column"]) -> Float[Tensor, "batch pos column"]:
        """The logits of some vocabulary columns."""
        return self.soft_cap(self.before_soft_cap(x, columns))

    def before_soft_cap(
        self, x: Stream, columns: Int[Tensor, " column"]
    ) -> Float[Tensor, "batch pos column"]:
        """``x @ W_U + b_U`` for some vocabulary columns."""
        bias = None if self.b_U is None else self.b_U[columns]
        return F.linear(self.read(x), self.weight[columns], bias)

    def read(self, x: Stream) -> Float[Tensor, "batch pos width"]:
        """The input of W_U: x, unchanged."""
        return x

    @property
    def W_U(self) -> Float[Tensor, "d_model vocab"]:
        """The matrix from the stream to the logits."""
        return self.weight.mT

    def layout(self) -> Layout:
        """The logits."""
        return {Place(Point.LOGITS): STORED}
