"""Comparison of a loaded model with the model that it was loaded from.

Both compute the outputs of the same short input. Their largest difference is kept as the model's
``agreement``; one that rounding can't explain raises an error.
"""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from interp.errors import ModelLoadError
from interp.transformer import Transformer

N_TOKENS = 8
"""Length of the input that is compared."""
MOST = {torch.float64: 1e-5, torch.float32: 1e-2}
"""Largest relative difference that is accepted of a model of any size, by dtype."""
MOST_OF_HALF = 0.3
SAFETY = 4
"""How far a difference may exceed the expected one; small models of all families, and larger ones
with large weights, stay below a quarter of the tolerance (tests/agreement/test_rounding.py)."""
TF32 = 2.0**-10
"""Spacing of numbers next to 1 in products of float32 that may be rounded to TF32."""


def expected_rounding(model: Transformer) -> float:
    """How large a difference by rounding is expected to be, in units of the dtype's spacing.

    Rounding errors of a sum of n products add up to about √n of its terms' (Higham and Mary 2019,
    SIAM J. Sci. Comput. 41:A2815), and each block adds its own to the stream.
    """
    blocks = sum(len(stack.blocks) for stack in model.stacks)
    return (blocks + 1) * model.config.d_model**0.5


def tolerance(dtype: torch.dtype, rounding: float) -> float:
    """The largest relative difference that rounding explains.

    Args:
        dtype: of an output. Attention and norms of ``transformers`` round to float32 in float64.
        rounding: as of :func:`expected_rounding`.
    """
    exact = torch.get_float32_matmul_precision() == "highest"
    spacing = max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps if exact else TF32)
    return min(MOST.get(dtype, MOST_OF_HALF), SAFETY * rounding * spacing)


def check_agreement(found: Tensor, expected: Tensor, origin: str, rounding: float) -> float:
    """The largest relative difference, max |found − expected| / max(1, max |expected|).

    Args:
        found: output of the loaded model.
        expected: output of the model that it was loaded from.
        origin: what that model is called, for error messages.
        rounding: as of :func:`expected_rounding`.

    Raises:
        ModelLoadError: the shapes differ, or the difference exceeds the tolerance of the dtypes.
    """
    if found.shape != expected.shape:
        raise ModelLoadError(
            f"{origin} returns a tensor of shape {tuple(expected.shape)}, the loaded model one of "
            f"{tuple(found.shape)}: it has a part that is not supported."
        )
    difference = (found.double().cpu() - expected.double().cpu()).abs().max()
    error = (difference / expected.double().abs().max().clamp(min=1.0).cpu()).item()
    most = max(tolerance(one.dtype, rounding) for one in (found, expected))
    if not error <= most:
        raise ModelLoadError(
            f"The output of the loaded model differs from {origin} by {error:.2g}, relative to the "
            f"largest value ({most:.2g} is allowed): it has a part that is not supported. "
            "Please report its config."
        )
    return error


def random_ids(model: Transformer, n_tokens: int, excluded: object = None) -> list[Tensor]:
    """Token ids ``[1 n_tokens]`` for each stack, of all tokens but one; the same in every call.

    Args:
        model: its vocabularies bound the ids.
        n_tokens: length.
        excluded: the token that does not occur, such as padding's; the last, unless it is an int.
    """
    generator = torch.Generator().manual_seed(0)
    found: list[Tensor] = []
    for stack in model.stacks:
        others = max(1, model.config.vocabulary_of(stack.name) - 1)
        ids = torch.randint(others, (1, n_tokens), generator=generator)
        if isinstance(excluded, int) and others > 1:
            ids += ids >= excluded
        found.append(ids)
    return found


@contextmanager
def evaluating(module: nn.Module) -> Generator[None]:
    """Put a module and its submodules in evaluation mode; each gets its own mode back after it."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
