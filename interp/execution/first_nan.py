"""Finds where NaN comes from: the first tensor of a forward that contains one."""

from collections.abc import Sequence

import torch
from torch import Tensor

from interp.errors import InvalidInput
from interp.execution.run import run
from interp.model.batch import Batch
from interp.model.network import Network
from interp.points import Place


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
