"""Finds where NaN comes from: the first tensor of a forward that contains one."""

from collections.abc import Sequence

import torch

from interp.execution.run import run
from interp.model import Batch, Network
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
