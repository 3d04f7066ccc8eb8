"""Sums of weights, which show whether a weight has changed and whether its values are finite."""

from collections.abc import Sequence

import torch
from torch import Tensor

AT_A_TIME = 2**20
"""Number of values that are converted to float64 at a time; PyTorch would convert all of them."""


@torch.no_grad()
def weight_sums(weights: Sequence[Tensor]) -> tuple[float, ...]:
    """The sum of each weight in float64, read from the device at once."""
    # In one tensor: separate sums would lie between the converted values, whose memory could then
    # not be reused.
    sums = torch.zeros(len(weights), dtype=torch.float64, device=weights[0].device)
    for number, weight in enumerate(map(torch.atleast_1d, weights)):
        rows = max(1, AT_A_TIME * len(weight) // max(1, weight.numel()))
        for part in weight.split(rows):
            sums[number] += part.sum(dtype=torch.float64)
    return tuple(sums.tolist())
