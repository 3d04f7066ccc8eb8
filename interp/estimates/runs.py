"""Estimates the memory of a run before it is computed.

    interp.estimate(model, tokens, record="all")        # Estimate(peak=…, kept=…), in bytes

The run is executed on shapes only, by a model without data (on PyTorch's meta device), while the
bytes of live tensors are counted. Memory allocated inside fused kernels and the number of tokens
per expert are not known from shapes and are approximated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, Unpack
from weakref import finalize

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from interp.cache import storage_of
from interp.edits import Edit, EditSite
from interp.errors import OutOfResources
from interp.execution import (
    Change,
    Options,
    Prepared,
    execute,
    free_bytes,
    prepare,
    size_of,
)
from interp.kernels import DispatchMode
from interp.model import Attention, Batch, Experts, Network

ESTIMATED_SHARE, REFUSED_SHARE = 0.25, 1.25
"""A run is estimated if its results take at least ``ESTIMATED_SHARE`` of the free memory, and
refused if the estimate is more than ``REFUSED_SHARE`` times the free memory."""


@dataclass(frozen=True)
class Estimate:
    """Bytes that a run or a sweep takes, beyond the model and the tokens.

    Attributes:
        peak: largest number of bytes allocated at a time.
        kept: bytes of the returned logits and cache.
    """

    peak: int
    kept: int

    def __str__(self) -> str:
        return f"{size_of(self.peak)} at the peak, {size_of(self.kept)} kept"


def estimate(
    model: Network,
    *tokens: Any,  # noqa: ANN401 - what model.check reads
    **options: Unpack[Options],
) -> Estimate:
    """The memory that ``interp.run(model, *tokens, **options)`` would take; nothing is computed.

    The estimate is within 20 % of what PyTorch allocates on a CPU, for forwards of at least a few
    hundred kilobytes. Functions given to ``edits.apply`` are assumed to allocate one copy.

    Args:
        model: the model.
        *tokens: as for :func:`interp.run`.
        **options: as for :func:`interp.run`: ``record=``, ``edits=``, ``kernel=``, ….

    Raises:
        InterpError: as for :func:`interp.run`, for everything that it checks before the forward.

    Examples:
        >>> print(interp.estimate(interp.load("python-2l"), "def f(x):", record="all"))
        84.0 KiB at the peak, 78.0 KiB kept
    """
    return estimate_of(model, prepare(model, tokens, **options))


def refuse_too_large(model: Network, prepared: Prepared) -> None:
    """Make sure that the free memory suffices for a run.

    Raises:
        OutOfResources: it clearly does not suffice; the message names the largest tensors.
    """
    sizes = {place: prod(model.shape_at(prepared.batches, place)) for place in prepared.returned}
    free = sum(map(free_bytes, (model.device, *model.other_devices)))
    if sum(sizes.values()) * model.dtype.itemsize < ESTIMATED_SHARE * free:
        return
    estimated = estimate_of(model, prepared)
    if estimated.peak > REFUSED_SHARE * free:
        largest: dict[str, int] = {}
        for place, size in sizes.items():
            label = place.point.label
            largest[label] = largest.get(label, 0) + size * model.dtype.itemsize
        labels = sorted(largest, key=lambda label: -largest[label])[:3]
        named = ", ".join(f"{label} ({size_of(largest[label])})" for label in labels)
        raise OutOfResources(
            f"This run takes about {estimated}; {size_of(free)} are free. The largest: {named}. "
            "Leave places out of record=, or run fewer or shorter prompts at a time."
        )


# ---- a run on shapes only ------------------------------------------------------------------------


def estimate_of(model: Network, prepared: Prepared) -> Estimate:
    """The memory of a prepared run."""
    shapes, stream = Shapes(model), prepared.span.stream
    edits = {
        place: [_allocating_edit(edit) for edit in several]
        for place, several in prepared.placed.items()
    }
    without_data = replace(
        prepared,
        batches=[batch.to("meta") for batch in prepared.batches],
        span=replace(prepared.span, stream=None if stream is None else stream.to("meta")),
        plan=replace(prepared.plan, edits=edits),
        total=None if prepared.total is None else _log_probabilities,
    )
    with LiveBytes([*given_to(shapes, without_data.batches), without_data.span.stream]) as live:
        done = execute(shapes, without_data)
        kept_bytes = live.now
        del done
    return Estimate(live.peak, kept_bytes)


def given_to(model: Network, batches: Sequence[Batch]) -> list[Tensor | None]:
    """The tensors that exist before a forward: weights, buffers and inputs."""
    inputs = [tensor for b in batches for tensor in (b.ids, b.real, b.types, b.images)]
    return [*model.parameters(), *model.buffers(), *inputs]


class Shapes(Network):
    """A model without data that has the shapes of another.

    Args:
        model: the other model, whose device is reported as that of this one.
    """

    def __init__(self, model: Network) -> None:
        with torch.device("meta"):
            super().__init__(model.config)
        self.to(model.dtype)
        model.add_parts(self)
        self.requires_grad_(any(weight.requires_grad for weight in model.parameters()))
        self._device = model.device
        for part in self.modules():
            if isinstance(part, Attention):
                object.__setattr__(part, "fused", partial(_fused, part))
            if isinstance(part, Experts):
                object.__setattr__(part, "of_chosen", partial(_of_chosen, part))

    def check(self, *tokens: Any, mask: object = None) -> list[Batch]:  # noqa: ANN401, ARG002
        """The given batches, which were checked when they had data."""
        return list(tokens)

    @property
    def device(self) -> torch.device:
        """The device of the model that it represents."""
        return self._device


def _fused(attention: Attention, q: Tensor, k: Tensor, v: Tensor, context: Any) -> Tensor:  # noqa: ANN401
    """z by the fused kernel for CPUs, which PyTorch does not choose for tensors without data."""
    mask = attention.masking.fused(q.dtype, context)
    if mask is not None and mask.requires_grad:  # the CPU kernel can't differentiate a mask
        return Attention.fused(attention, q, k, v, context)
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -torch.inf)
    heads = [x.transpose(1, 2) for x in (q, k, v)]
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return fused(*heads, attn_mask=mask)[0].transpose(1, 2)


def _of_chosen(experts: Experts, x: Tensor, weights: Tensor) -> Tensor:
    """The output of experts that all get the same number of tokens."""
    tokens, shares = x.flatten(0, 1), weights.flatten(0, 1)
    written, n = torch.zeros_like(tokens), shares.shape[1]
    routed = torch.arange(-(-len(tokens) * experts.top_k // n), device=x.device)
    for expert in range(n):
        out = experts.run_expert(expert, tokens[routed]) * shares[routed, expert, None]
        written = written.index_add(0, routed, out.to(written.dtype))
    return written.view_as(x)


def _allocating_edit(edit: Edit) -> Change:
    """An edit that allocates as ``edit`` does: a copy, and another for values of the same size."""

    def changed(x: Tensor, site: EditSite) -> Tensor:  # noqa: ARG001 - as edits are called
        return (x + 0).clone() if edit.select.selects_all else x.clone()

    return changed


def _log_probabilities(logits: Tensor, batch: Batch) -> Tensor:  # noqa: ARG001 - as a metric
    """A scalar metric that computes log-probabilities, as most metrics do."""
    return logits.log_softmax(-1).sum()


class LiveBytes(DispatchMode):
    """Counts the bytes of live storages that operations have created.

    Args:
        given: tensors whose storages are not counted.

    Attributes:
        now: bytes that are alive now.
        peak: largest number of bytes alive at a time.
    """

    def __init__(self, given: Sequence[Tensor | None]) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._alive = {storage_of(tensor): 0 for tensor in given if tensor is not None}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operation returns
        """Run an operation and count the tensors that it returns."""
        returned = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(returned):
            if isinstance(tensor, Tensor) and storage_of(tensor) not in self._alive:
                self._count(tensor)
        return returned

    def _count(self, tensor: Tensor) -> None:
        storage, size = tensor.untyped_storage(), tensor.untyped_storage().nbytes()
        self._alive[storage_of(tensor)] = size
        self.now += size
        self.peak = max(self.peak, self.now)
        finalize(storage, self._release, storage_of(tensor))

    def _release(self, storage: int) -> None:
        self.now -= self._alive.pop(storage)
