"""How many edited forwards fit into memory at once? Worked out before the first of them runs.

A forward holds, at its peak, the stream a few times over and what one sub-layer forms beside it:
neurons, attention matrices where they are formed, the logits at the end.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, SupportsFloat

import torch

from interp.config import StackConfig
from interp.errors import InvalidInput
from interp.model.network import Network
from interp.points import Place, Point

SHARE = 0.25
"""How much of the free memory a sweep takes for its forwards, if nothing else is said."""
WIDEST = 20 * 2**20
"""On a CPU, bytes of the largest tensor of a forward: larger ones are allocated anew each time,
page by page, which costs more than running a few more forwards."""
CGROUP = Path("/sys/fs/cgroup")
UNKNOWN = 4 * 2**30
"""Free memory where the system does not tell."""
STREAMS = 6
"""How often the stream, or a copy of its size, is there at a time."""
NEURONS = 3
MATRICES = 3
LOGITS = 3
"""How often what a sub-layer forms is there at a time."""


@dataclass(frozen=True)
class Budget:
    """What the forwards of a sweep may take.

    Attributes:
        nbytes: in all.
        widest: of the largest tensor; ``None`` if it does not matter.
    """

    nbytes: int
    widest: int | None = None

    @classmethod
    def of(cls, model: Network, asked: object) -> "Budget":
        """The bytes asked for, or a share of those free.

        Raises:
            InvalidInput: not a positive number of bytes.
        """
        widest = None if model.device.type == "cuda" else WIDEST
        if asked is None:
            return cls(int(free_bytes(model.device) * SHARE), widest)
        told: Any = asked if isinstance(asked, SupportsFloat) and asked is not True else 0.0
        number = float(told)
        if not isfinite(number) or number <= 0:
            raise InvalidInput(f"memory={asked!r} must be a positive number of bytes, or None.")
        return cls(int(number), widest)


@dataclass(frozen=True)
class Footprint:
    """Bytes that one edited forward of one prompt takes.

    Attributes:
        peak: at the most, at a time.
        widest: of its largest tensor.
        kept: of what is kept of the clean forward, and is there twice while it is taken out.
    """

    peak: int
    widest: int
    kept: int

    def least(self, prompts: int) -> int:
        """Bytes of one edited forward of so many prompts, and what is kept of the clean one."""
        return prompts * (max(self.peak, self.kept) + self.kept)

    def prompts(self, budget: Budget) -> int:
        """How many prompts to run together: at least one."""
        return max(1, self._narrow(budget, budget.nbytes // self.least(1), 1))

    def copies(self, budget: Budget, prompts: int) -> int:
        """How many edited forwards of so many prompts to run as one: at least one."""
        free = budget.nbytes - prompts * self.kept
        return max(1, self._narrow(budget, free // (prompts * self.peak), prompts))

    def _narrow(self, budget: Budget, most: int, prompts: int) -> int:
        if budget.widest is None:
            return most
        return min(most, budget.widest // (prompts * self.widest))


def footprint(
    model: Network, width: int, read: int, formed: Iterable[Place], kept: int, *, padded: bool
) -> Footprint:
    """What one edited forward of one prompt takes.

    Args:
        model: the model.
        width: columns that are computed, of the longest stack.
        read: how many logits are formed.
        formed: places that are edited, and so formed.
        kept: numbers that are kept of the clean forward.
        padded: whether prompts are padded, so that each has distances of its own.
    """
    stream, points = width * model.config.d_model, {place.point for place in formed}
    sizes = [stream, read * LOGITS]
    peaks = [read * LOGITS]
    for stack in model.config.stacks.values():
        for config in {stack.of_layer(layer) for layer in range(stack.n_layers)}:
            attention, heads = config.attention, config.attention.n_heads
            neurons = width * neurons_of(config, points)
            joint = width * attention.d_head * (heads + 2 * attention.kv_heads)
            lowered = padded and stack.positions.kind in SCORED_BY_DISTANCE
            forms = points & MATRIX_POINTS or attention.cap is not None or lowered
            square = heads * width * width if forms else 0
            result = stream * heads if points & RESULT_POINTS else 0
            sizes += [neurons, joint, square, result]
            peaks += [neurons * NEURONS, 3 * joint + square * MATRICES, 2 * result]
    size = model.dtype.itemsize
    peak = STREAMS * stream + max(peaks)
    return Footprint(size * peak, size * max(sizes), size * kept)


def neurons_of(config: StackConfig, points: set[Point]) -> int:
    """Neurons that a forward has at once for each token: those of all experts if it forms them."""
    if config.mlp is None:
        return 0
    experts = config.mlp.experts
    if experts is None:
        return config.mlp.d_mlp
    return config.mlp.d_mlp * (experts.n_experts if points & EXPERT_POINTS else experts.n_chosen)


EXPERT_POINTS = {Point.EXPERT_GATE, Point.EXPERT_PRE, Point.EXPERT_POST}
SCORED_BY_DISTANCE = ("alibi", "buckets")
"""Positions that add a matrix to the scores."""
MATRIX_POINTS = {Point.SCORES, Point.PATTERN, Point.CROSS_SCORES, Point.CROSS_PATTERN}
RESULT_POINTS = {Point.RESULT, Point.CROSS_RESULT}


def free_bytes(device: torch.device) -> int:
    """Memory that is free where the model lives."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    found = [_meminfo(), _of_container()]
    return min((free for free in found if free is not None), default=UNKNOWN)


def _meminfo() -> int | None:
    """What the system says could be used without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    said = [line.split() for line in lines if line.startswith("MemAvailable")]
    return int(said[0][1]) * 1024 if said else None


def _of_container() -> int | None:
    """What a container's limit leaves, if there is one.

    Files that were read count as used, but give way when memory is asked for.
    """
    try:
        limit, used, told = (
            (CGROUP / name).read_text(encoding="ascii").strip()
            for name in ("memory.max", "memory.current", "memory.stat")
        )
    except OSError:
        return None
    stat = dict(line.split() for line in told.splitlines())
    gives_way = int(stat.get("inactive_file", 0))
    return None if limit == "max" else max(0, int(limit) - int(used) + gives_way)


def size_of(nbytes: int) -> str:
    """For a reader."""
    return f"{nbytes / 2**20:,.0f} MiB" if nbytes >= TEN_MEGABYTES else f"{nbytes / 2**10:,.1f} KiB"


TEN_MEGABYTES = 10 * 2**20
