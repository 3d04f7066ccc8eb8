"""Does a model that was loaded compute what its origin does? What both give out is compared."""

import torch
from torch import Tensor

from interp.errors import ModelLoadError

FAR = {torch.float64: 1e-5, torch.float32: 1e-2}
"""A difference, of the largest number, that only another function can make. (Attention and norms
of ``transformers`` round to float32 whatever the type of the weights.)"""
FAR_IN_HALF = 0.3


def agreement(found: Tensor, expected: Tensor, origin: str) -> float:
    """The largest difference of what both give out, of the largest number.

    Args:
        found: by the model that was loaded.
        expected: by its origin.
        origin: what that is called.

    Raises:
        ModelLoadError: it is so large that the two compute different things.
    """
    if found.shape != expected.shape:
        raise ModelLoadError(
            f"{origin} gives out numbers of shape {tuple(expected.shape)}, this model "
            f"{tuple(found.shape)}: it has a part that is not known here."
        )
    gap = (found.double().cpu() - expected.double().cpu()).abs().max()
    error = (gap / expected.double().abs().max().clamp(min=1.0).cpu()).item()
    bound = max(FAR.get(dtype, FAR_IN_HALF) for dtype in (found.dtype, expected.dtype))
    if not error <= bound:
        raise ModelLoadError(
            f"What this model gives out differs from {origin} by {error:.2g} of the largest number "
            f"({bound:.2g} is allowed): it has a part that is not known here. Please report its "
            "config."
        )
    return error
