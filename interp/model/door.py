"""Where can a forward of a block be entered? Before a step, in its middle, after its sum.

A sub-layer has two halves, and what is said between them (heads' z, neurons' post) is where most
edits are made: a forward that begins there computes nothing before it again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from interp.model.context import Context
from interp.model.recipe import Layout
from interp.model.tap import Tap
from interp.points import Place, Point

Stream = Float[Tensor, "batch pos d_model"]


@runtime_checkable
class Sublayer(Protocol):
    """What a step wraps: the f of x + f(norm(x)), in two halves: f(x) = outer(inner(x)).

    The tensor between them is what heads or neurons have to say, before it is written.
    """

    def inner(self, x: Stream, context: Context, tap: Tap) -> Tensor:
        """What the heads (z) or the neurons (post) say."""
        ...

    def outer(self, inner: Tensor, tap: Tap) -> Stream:
        """What is written of it."""
        ...

    @property
    def between(self) -> Point:
        """The point of the tensor between the halves."""
        ...

    def layout(self, source: Place) -> Layout:
        """Its places, given where it reads."""
        ...


Through = Callable[[Sequence[Tensor], Context, Tap], Stream]


@dataclass(frozen=True)
class Door:
    """Where in a block a forward can be entered, given the tensors that it would have made there.

    Attributes:
        first: the first place that a forward passes after entering here.
        needs: the places of the tensors to enter with.
        step: which step of the block comes next.
        through: ``through(tensors, context, tap)``, the stream before that step.
    """

    first: Place
    needs: tuple[Place, ...]
    step: int
    through: Through
