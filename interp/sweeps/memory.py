"""Estimates how many edited forwards fit into memory at once, before the first one runs.

At its peak a forward holds several tensors of the size of the stream, and those of one sub-layer:
neurons, attention matrices if they are formed, or the logits at the end.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from typing import SupportsFloat

import torch

from interp.config import StackConfig
from interp.errors import InterpError, InvalidInput, shorten
from interp.execution import free_bytes
from interp.model import Network
from interp.points import Place, Point

SHARE = 0.25
"""Share of the free memory that the forwards of a sweep may take by default."""
MOST_ON_CPU = 2**30
"""On a CPU, maximum bytes that they may take by default: more rows at once are not faster there."""
WIDEST = 20 * 2**20
"""On a CPU, maximum bytes of the largest tensor of a forward: larger tensors are allocated anew
each time, page by page, which costs more than running a few more forwards."""
STREAMS = 6
"""Number of tensors of the size of the stream that exist at a time."""
NEURONS = 3
MATRICES = 3
LOGITS = 3
"""Number of tensors of each size (of neurons, attention matrices and logits) that exist at a
time."""


@dataclass(frozen=True)
class Budget:
    """The memory that the forwards of a sweep may take.

    Attributes:
        nbytes: total number of bytes.
        widest: maximum bytes of the largest tensor; ``None`` if it is not limited.
    """

    nbytes: int
    widest: int | None = None

    @classmethod
    def of(cls, model: Network, requested: object) -> "Budget":
        """The requested number of bytes, or a share of the free memory, limited on a CPU.

        Raises:
            InvalidInput: ``requested`` is not a positive number of bytes.
        """
        on_gpu = model.device.type == "cuda"
        widest = None if on_gpu else WIDEST
        if requested is None:
            share = int(free_bytes(model.device) * SHARE)
            return cls(share if on_gpu else min(share, MOST_ON_CPU), widest)
        is_number = isinstance(requested, SupportsFloat) and requested is not True
        number = float(requested) if is_number else 0.0  # pyright: ignore[reportArgumentType]
        if not isfinite(number) or number <= 0:
            raise InvalidInput(
                f"memory={shorten(requested)} must be a positive number of bytes, or None."
            )
        return cls(int(number), widest)


@dataclass(frozen=True)
class Footprint:
    """Bytes that one edited forward of one prompt takes.

    Attributes:
        peak: largest number of bytes allocated at a time.
        widest: bytes of its largest tensor.
        stored: bytes of the stored baseline tensors, which exist twice while they are read.
    """

    peak: int
    widest: int
    stored: int

    def least(self, prompts: int) -> int:
        """Bytes of one edited forward of ``prompts`` prompts and of their stored baseline."""
        return prompts * (max(self.peak, self.stored) + self.stored)

    def prompts(self, budget: Budget) -> int:
        """Number of prompts to run together, at least one."""
        return max(1, self._narrow(budget, budget.nbytes // self.least(1), 1))

    def copies(self, budget: Budget, prompts: int) -> int:
        """Number of edited forwards of ``prompts`` prompts to run as one, at least one."""
        free = budget.nbytes - prompts * self.stored
        return max(1, self._narrow(budget, free // (prompts * self.peak), prompts))

    def _narrow(self, budget: Budget, most: int, prompts: int) -> int:
        if budget.widest is None:
            return most
        return min(most, budget.widest // (prompts * self.widest))


def footprint(
    model: Network, width: int, logits: int, edited: Iterable[Place], stored: int, *, padded: bool
) -> Footprint:
    """The memory of one edited forward of one prompt.

    Args:
        model: the model.
        width: number of columns that are computed in the longest stack.
        logits: number of logits that are formed.
        edited: places that are edited, and are therefore formed.
        stored: number of stored elements of the baseline.
        padded: whether prompts are padded, so that each has its own distances.
    """
    stream, points = width * model.config.d_model, {place.point for place in edited}
    sizes = [stream, logits * LOGITS]
    peaks = [logits * LOGITS]
    for stack in model.config.stacks.values():
        for config in stack.layer_kinds:
            attention, heads = config.attention, config.attention.n_heads
            neurons = width * neurons_of(config, points)
            joint = width * attention.d_head * (heads + 2 * attention.kv_heads)
            biased = padded and stack.positions.kind in ("alibi", "buckets")
            formed = any(point.is_matrix for point in points) or attention.cap is not None or biased
            matrix = heads * width * width if formed else 0
            result = stream * heads if points & RESULTS else 0
            sizes += [neurons, joint, matrix, result]
            peaks += [neurons * NEURONS, 3 * joint + matrix * MATRICES, 2 * result]
    size = model.dtype.itemsize
    peak = STREAMS * stream + max(peaks)
    return Footprint(size * peak, size * max(sizes), size * stored)


def neurons_of(config: StackConfig, points: set[Point]) -> int:
    """Number of neurons per token that exist at a time: those of all experts if they are formed."""
    if config.mlp is None:
        return 0
    experts = config.mlp.experts
    if experts is None:
        return config.mlp.d_mlp
    n = experts.n_experts if points & EACH_EXPERT else experts.n_chosen
    return config.mlp.d_mlp * n + (experts.d_shared or 0)


EACH_EXPERT = {point for point in Point if point.axes[-2:] == ("expert", "d_mlp")}
RESULTS = {point for point in Point if point.axes[-2:] == ("head", "d_model")}


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of PyTorch or Python means that memory was exhausted, on any device."""
    if isinstance(error, InterpError):
        return False
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    messages = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, RuntimeError) and any(m in str(error).lower() for m in messages)
