"""The interface of sub-layers, which residual steps wrap: the f of x + f(norm(x))."""

from typing import Protocol, runtime_checkable

from torch import Tensor

from interp.model.context import Context
from interp.model.recipe import Layout
from interp.model.shapes import Stream
from interp.model.tap import Tap
from interp.points import Place, Point


@runtime_checkable
class Sublayer(Protocol):
    """Attention or MLP: the f of x + f(norm(x)), where f(x) = output(hidden(x))."""

    mixes_positions: bool

    def __call__(self, x: Stream, context: Context, tap: Tap) -> Stream:
        """f(x)."""
        ...

    def hidden(self, x: Stream, context: Context, tap: Tap) -> Tensor:
        """z of the heads, or the activations of the neurons."""
        ...

    def output(self, hidden: Tensor, tap: Tap) -> Stream:
        """f(x), given its hidden tensor."""
        ...

    @property
    def hidden_point(self) -> Point:
        """The point of the hidden tensor."""
        ...

    def layout(self, source: Place) -> Layout:
        """Its places; ``source`` is the place of its input."""
        ...
