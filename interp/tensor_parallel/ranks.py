"""The processes that hold a model together, and what they exchange.

Each process has a rank. Four functions and their gradients are all that a sharded model needs
(Megatron-LM, Shoeybi et al. 2019, arXiv:1909.08053); x is the same on all ranks, y is not:

    copied(x)        x                              gradient: Σ over ranks
    summed(y)        Σ over ranks                   gradient: unchanged
    joined(y, s)     the shares s of all ranks      gradient: the share of this rank
    share(x, s)      the share of this rank         gradient: the shares of all ranks, copies added

All ranks must call them in the same order: whatever runs a sharded model runs on all ranks.
"""

import atexit
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from interp.errors import InvalidInput, OutOfResources, first_line

GRACE = 5.0
"""Seconds in which every rank that is alive reports that a collective failed."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Which indices of an axis each rank holds.

    Attributes:
        of_rank: the indices of each rank, in order. Several ranks may hold the same index.
    """

    of_rank: tuple[Tensor, ...]

    @classmethod
    def even(cls, total: int, size: int) -> "Shares":
        """Consecutive indices; the first ranks hold one more where ``total`` does not divide."""
        return cls(torch.arange(total).tensor_split(size))

    def times(self, width: int) -> "Shares":
        """The shares of an axis that has ``width`` consecutive entries for each index."""
        within = torch.arange(width)
        return Shares(tuple((n[:, None] * width + within).flatten() for n in self.of_rank))

    def then(self, others: "Shares") -> "Shares":
        """The shares of this axis followed by another one."""
        total = self.total
        pairs = zip(self.of_rank, others.of_rank, strict=True)
        return Shares(tuple(torch.cat([here, total + there]) for here, there in pairs))

    @cached_property
    def total(self) -> int:
        """Number of indices of the axis."""
        return int(torch.cat(self.of_rank).max()) + 1

    @cached_property
    def has_copies(self) -> bool:
        """Whether several ranks hold the same index."""
        return sum(map(len, self.of_rank)) > self.total

    @cached_property
    def largest(self) -> int:
        """Number of indices of the rank that holds most."""
        return max(map(len, self.of_rank))

    @cached_property
    def sources(self) -> Tensor:
        """For each index, where it is in the padded shares of all ranks, one after another."""
        sources = torch.zeros(self.total, dtype=torch.long)
        for rank in reversed(range(len(self.of_rank))):  # the first rank that holds an index last
            indices = self.of_rank[rank]
            sources[indices] = rank * self.largest + torch.arange(len(indices))
        return sources

    def is_source(self, rank: int) -> Tensor:
        """Which indices of a rank are read from it, and not from an earlier rank."""
        places = rank * self.largest + torch.arange(len(self.of_rank[rank]))
        return self.sources[self.of_rank[rank]] == places


@dataclass(frozen=True, eq=False)
class Ranks:
    """The processes that hold one model.

    Attributes:
        rank: the rank of this process.
        size: number of processes.
        group: their process group; ``None`` means that of all processes.
        sent: number of bytes that this rank gave to each kind of collective so far.
    """

    rank: int
    size: int
    group: dist.ProcessGroup | None = None
    sent: Counter[str] = None  # pyright: ignore[reportAssignmentType] - set below

    def __post_init__(self) -> None:
        object.__setattr__(self, "sent", Counter())

    # ---- the four functions -----------------------------------------------------------------

    def copied(self, x: Tensor) -> Tensor:
        """``x``, whose gradient is summed over the ranks."""
        return _Copied.apply(x, self) if _has_gradient(x) else x

    def summed(self, y: Tensor) -> Tensor:
        """The sum over the ranks."""
        return _Summed.apply(y, self) if _has_gradient(y) else self.sum(y)

    def joined(self, y: Tensor, shares: Shares, axis: int) -> Tensor:
        """The tensor of which each rank has its share along ``axis``."""
        if _has_gradient(y):
            return _Joined.apply(y, self, shares, axis)
        return self.join(y, shares, axis)

    def share(self, x: Tensor, shares: Shares, axis: int) -> Tensor:
        """The share of this rank along ``axis``."""
        if _has_gradient(x):
            return _Share.apply(x, self, shares, axis)
        return self.select(x, shares, axis)

    def depending(self, y: Tensor, *inputs: Tensor) -> Tensor:
        """``y``, as a function of ``inputs`` even where this rank did not read them.

        Their gradient is then zero, and this rank takes part in what their gradients exchange.
        """
        differentiated = any(map(_has_gradient, inputs))
        return _Depending.apply(y, *inputs) if differentiated else y

    # ---- without gradients --------------------------------------------------------------------

    def sum(self, y: Tensor) -> Tensor:
        """The sum over the ranks, with the same bits on each."""
        total = y.detach().clone(memory_format=torch.contiguous_format)

        def reduce() -> None:
            dist.all_reduce(total, group=self.group)

        self._run("all_reduce", total, reduce)
        return total

    def join(self, y: Tensor, shares: Shares, axis: int) -> Tensor:
        """The tensor of which each rank has its share along ``axis``."""
        if y.is_meta:
            shape = list(y.shape)
            shape[axis] = shares.total
            return y.new_empty(shape)
        moved = y.detach().movedim(axis, 0)
        padded = moved.new_zeros(shares.largest, *moved.shape[1:])
        padded[: len(moved)] = moved
        gathered = padded.new_empty(self.size * shares.largest, *moved.shape[1:])

        def gather() -> None:
            dist.all_gather(list(gathered.chunk(self.size)), padded, group=self.group)

        self._run("all_gather", padded, gather)
        return gathered.index_select(0, shares.sources.to(y.device)).movedim(0, axis)

    def added(self, y: Tensor, shares: Shares, axis: int) -> Tensor:
        """The tensor of which each rank has its share: the sum where several have an index."""
        if not shares.has_copies:
            return self.join(y, shares, axis)
        shape = list(y.shape)
        shape[axis] = shares.total
        indices = shares.of_rank[self.rank].to(y.device)
        return self.sum(y.new_zeros(shape).index_copy(axis, indices, y.detach()))

    def select(self, x: Tensor, shares: Shares, axis: int) -> Tensor:
        """The share of this rank along ``axis``: a view if its indices are consecutive."""
        indices = shares.of_rank[self.rank]
        first, n = int(indices[0]), len(indices)
        if int(indices[-1]) - first == n - 1:
            return x.narrow(axis, first, n)
        return x.index_select(axis, indices.to(x.device))

    def objects(self, value: object) -> list[Any]:
        """A small object of each rank, in the order of the ranks."""
        values: list[Any] = [None] * self.size
        nothing = torch.empty(0)
        self._run(
            "objects", nothing, lambda: dist.all_gather_object(values, value, group=self.group)
        )
        return values

    def check_alike(self, name: str) -> None:
        """Make sure that all ranks are about to join the same tensor: others may have its shape.

        Raises:
            InvalidInput: another rank is about to join another.
        """
        names = self.objects(name)
        if len(set(names)) > 1:
            read = ", ".join(f"rank {rank}: {name}" for rank, name in enumerate(names))
            raise InvalidInput(
                f"The ranks read different places ({read}). All ranks must read the same places in "
                "the same order; .keep(places) before, on all ranks, to read them on one alone."
            )

    def _run(self, kind: str, tensor: Tensor, collective: Callable[[], object]) -> None:
        """Run a collective and count its bytes.

        Raises:
            OutOfResources: another rank did not take part in it.
        """
        if tensor.is_meta or (self.size == 1 and kind == "all_reduce"):
            return
        self.sent[kind] += tensor.numel() * tensor.element_size()
        try:
            collective()
        except RuntimeError as error:
            raise OutOfResources(self._failure(kind, error)) from error

    def _failure(self, kind: str, error: RuntimeError) -> str:
        """What is known about a collective that failed: the ranks that do not answer any more."""
        missing = self._missing()
        names = ", ".join(map(str, missing)) if missing else "none is known to be missing"
        return (
            f"Rank {self.rank}: {kind} with {self.size} ranks failed; ranks that do not answer: "
            f"{names}. All ranks must run the same calls; start them again together. "
            f"({first_line(error)})"
        )

    def _missing(self) -> list[int]:
        """The ranks that do not report a failure, too, within a few seconds."""
        with contextlib.suppress(RuntimeError, ValueError):
            store = dist.distributed_c10d._get_default_store()  # pyright: ignore[reportPrivateUsage]
            store.set(f"interp/failed/{self.rank}", "1")
            time.sleep(GRACE)
            names = {rank: f"interp/failed/{rank}" for rank in range(self.size)}
            return [rank for rank, name in names.items() if not store.check([name])]
        return []


def default_ranks(timeout: float) -> Ranks:
    """All processes that ``torchrun`` started.

    Args:
        timeout: seconds after which a collective that another rank does not join fails.

    Raises:
        InvalidInput: this process was not started by ``torchrun`` and has no process group.
    """
    if not dist.is_initialized():
        if not dist.is_torchelastic_launched():
            raise InvalidInput(
                "A sharded model runs on several processes, and this one was started alone: use "
                "torchrun --nproc-per-node N PROGRAM."
            )
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
        atexit.register(_end_process_group)
    return ranks_of(None)


def _end_process_group() -> None:
    """End the threads of the process group before Python ends: one left may abort the process."""
    if dist.is_initialized():
        dist.destroy_process_group()


def ranks_of(group: dist.ProcessGroup | None) -> Ranks:
    """The ranks of a process group; ``None`` means that of all processes."""
    return Ranks(dist.get_rank(group), dist.get_world_size(group), group)


def _has_gradient(x: Tensor) -> bool:
    return x.requires_grad and torch.is_grad_enabled()


class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:  # noqa: ANN401 - as in PyTorch
        ctx.ranks = ranks
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401  # pyright: ignore[reportIncompatibleMethodOverride]
        return ctx.ranks.sum(grad), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, ranks: Ranks) -> Tensor:  # noqa: ANN401, ARG004
        return ranks.sum(y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401, ARG004  # pyright: ignore[reportIncompatibleMethodOverride]
        return grad, None


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, ranks: Ranks, shares: Shares, axis: int) -> Tensor:  # noqa: ANN401
        ctx.ranks, ctx.shares, ctx.axis = ranks, shares, axis
        return ranks.join(y, shares, axis)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401  # pyright: ignore[reportIncompatibleMethodOverride]
        ranks, shares, axis = ctx.ranks, ctx.shares, ctx.axis
        of_rank = ranks.select(grad, shares, axis)
        is_source = shares.is_source(ranks.rank).to(grad.device)
        shape = [-1 if number == axis % grad.ndim else 1 for number in range(grad.ndim)]
        return of_rank * is_source.view(shape), None, None, None


class _Share(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks, shares: Shares, axis: int) -> Tensor:  # noqa: ANN401
        ctx.ranks, ctx.shares, ctx.axis = ranks, shares, axis
        return ranks.select(x, shares, axis).clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401  # pyright: ignore[reportIncompatibleMethodOverride]
        return ctx.ranks.added(grad, ctx.shares, ctx.axis), None, None, None


class _Depending(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, *inputs: Tensor) -> Tensor:  # noqa: ANN401
        ctx.shapes = [(x.shape, x.dtype) for x in inputs]
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:  # noqa: ANN401  # pyright: ignore[reportIncompatibleMethodOverride]
        return grad, *(grad.new_zeros(shape, dtype=dtype) for shape, dtype in ctx.shapes)
