"""Finds where NaN comes from: the first tensor of a forward that contains one."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from interp.errors import InvalidInput, NotANumber
from interp.execution.run import run
from interp.model import Batch, Network
from interp.points import Place

ROWS = 64
"""Maximum number of prompts per forward."""


def first_nan(model: Network, batches: Sequence[Batch]) -> Place | None:
    """The first place, in the order of the forward, that has NaN at a real token, or ``None``.

    Every tensor of the forward is recorded, so pass few prompts.
    """
    cache = run(model, *batches, record="all").cache
    real = {stack.name: batch.is_real for stack, batch in zip(model.stacks, batches, strict=True)}
    last = model.stacks[-1].name
    for place in model.layout:
        tensor, axes = cache[place], place.point.axes
        tokens = real[place.stack or last]
        if axes[:2] == ("batch", "pos") and tokens.shape == tensor.shape[:2]:
            tensor = tensor[tokens]
        if bool(torch.isnan(tensor).any()):
            return place
    return None


@contextmanager
def naming_first_nan(model: Network, *prompts: Sequence[Batch]) -> Generator[None]:
    """Where a metric or logits are refused as NaN, name the place that the NaN comes from.

    Args:
        model: the model.
        *prompts: the batches of each stack, once for each forward that may hold NaN.

    Raises:
        InvalidInput: as :func:`check_no_nan`, if NaN comes from a plain forward over the prompts;
            else the error that was raised inside the ``with`` block.
    """
    try:
        yield
    except NotANumber:
        for batches in prompts:
            check_forward(model, batches)
        raise


def check_forward(model: Network, batches: Sequence[Batch]) -> None:
    """Check what a plain forward computes, some prompts at a time.

    Raises:
        InvalidInput: as :func:`check_no_nan`.
    """
    first = batches[0].ids
    for part in torch.arange(len(first), device=first.device).split(ROWS):
        part_batches = [batch.rows(part) for batch in batches]
        done = run(model, *part_batches)
        check_no_nan(model, part_batches, *(x for x in (done.logits, done.stream) if x is not None))


def check_no_nan(model: Network, batches: Sequence[Batch], *tensors: Tensor) -> None:
    """Check tensors of a forward, whose first axis is the batch.

    Raises:
        InvalidInput: one holds NaN, which comes from a real token; the message names the place that
            it comes from.
    """
    for tensor in tensors:
        rows = tensor.isnan().reshape(len(tensor), -1).any(-1).nonzero()[:, 0]
        place = first_nan(model, [batch.rows(rows[:1]) for batch in batches]) if len(rows) else None
        if place is not None:
            raise InvalidInput(
                f"The model computes NaN on these prompts, first at {place} of prompt "
                f"{int(rows[0])}. Where its weights are finite, its numbers overflow: load it with "
                "a wider dtype, or look for weights that are too large."
            )
