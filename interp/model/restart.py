"""Intermediate states of a block's forward from which it can be continued."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from interp.model.context import Context
from interp.model.tap import Tap
from interp.points import Place

State = Sequence[Tensor]
Resume = Callable[[State, Context, Tap], Float[Tensor, "batch pos d_model"]]


@dataclass(frozen=True, eq=False)
class RestartPoint:
    """A state of a block's forward from which the rest of the block can be computed.

    Attributes:
        first: the first place that the continued forward passes.
        state: the places of the tensors to continue with.
        resume: ``resume(tensors, context, tap)``, the stream after the step that the state is in.
        mixes_positions: whether attention is computed from here on.
        next_step: index of the step that follows (set by the block).
    """

    first: Place
    state: tuple[Place, ...]
    resume: Resume
    mixes_positions: bool = False
    next_step: int = 0
