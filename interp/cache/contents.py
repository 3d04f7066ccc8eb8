"""What a cache is restored from; a file has the same."""

from dataclasses import dataclass

import torch
from torch import Tensor

from interp.config import Config
from interp.model import Context
from interp.points import Place


@dataclass(frozen=True, eq=False)
class Contents:
    """What a cache is restored from, with the model that ran or one of its structure.

    Attributes:
        config: configuration of the model that ran.
        weights: SHA-256 of its weights.
        recorded: the recorded places, in order.
        stored: the stored tensors, by place.
        gradients: the gradients, by place.
        contexts: positions and padding, by stack.
        dtype: dtype that the cache was cast to; ``None`` if it was not cast.
    """

    config: Config
    weights: str
    recorded: list[Place]
    stored: dict[Place, Tensor]
    gradients: dict[Place, Tensor]
    contexts: dict[str | None, Context]
    dtype: torch.dtype | None = None
