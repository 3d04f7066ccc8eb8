"""Comparison of a loaded model with the model that it was loaded from.

Both models compute their outputs for the same short input. The largest difference is kept as the
model's ``agreement``; a difference that rounding can't explain raises an error.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from interp.errors import ModelLoadError
from interp.transformer import Transformer

N_TOKENS = 8
"""Length of the input that is compared."""
MOST = {torch.float64: 1e-5, torch.float32: 1e-2}
"""Largest relative difference that is accepted for a model of any size, by dtype."""
MOST_OF_HALF = 0.3
"""The same for dtypes of half precision."""
SAFETY = 4
"""Factor by which a difference may exceed the expected one. Small models of all families, and
larger ones with large weights, stay below a quarter of the tolerance
(tests/agreement/test_rounding.py)."""
TF32 = 2.0**-10
"""Spacing of numbers next to 1 in products of float32 that may be rounded to TF32."""


def expected_rounding(model: Transformer) -> float:
    """The expected size of a rounding difference, in units of the dtype's machine epsilon.

    The rounding error of a sum of n products is about √n times that of one of its terms (Higham
    and Mary 2019, SIAM J. Sci. Comput. 41:A2815), and each block adds its own error to the stream.
    """
    blocks = sum(len(stack.blocks) for stack in model.stacks)
    return (blocks + 1) * model.config.d_model**0.5


def tolerance(dtype: torch.dtype, rounding: float) -> float:
    """The largest relative difference that rounding explains.

    Args:
        dtype: the dtype of an output. float64 has the tolerance of float32, because attention and
            norms of ``transformers`` round to float32 even in float64 models.
        rounding: the value of :func:`expected_rounding`.
    """
    exact = torch.get_float32_matmul_precision() == "highest"
    spacing = max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps if exact else TF32)
    return min(MOST.get(dtype, MOST_OF_HALF), SAFETY * rounding * spacing)


def check_agreement(computed: Tensor, expected: Tensor, origin: str, rounding: float) -> float:
    """The largest relative difference, max |computed − expected| / max(1, max |expected|).

    Args:
        computed: output of the loaded model.
        expected: output of the model that it was loaded from.
        origin: the name of that model, for error messages.
        rounding: the value of :func:`expected_rounding`.

    Raises:
        ModelLoadError: the shapes differ, or the difference exceeds the tolerance of the dtypes.
    """
    if computed.shape != expected.shape:
        raise ModelLoadError(
            f"{origin} returns a tensor of shape {tuple(expected.shape)}, the loaded model one of "
            f"{tuple(computed.shape)}: it has a part that is not supported."
        )
    difference = (computed.double().cpu() - expected.double().cpu()).abs().max()
    error = (difference / expected.double().abs().max().clamp(min=1.0).cpu()).item()
    most = max(tolerance(tensor.dtype, rounding) for tensor in (computed, expected))
    if not error <= most:
        raise ModelLoadError(
            f"The output of the loaded model differs from {origin} by {error:.2g}, relative to the "
            f"largest value ({most:.2g} is allowed): it has a part that is not supported. "
            "Please report its config."
        )
    return error


def random_ids(model: Transformer, n_tokens: int, excluded: object = None) -> list[Tensor]:
    """Random token ids ``[1 n_tokens]`` for each stack, the same in every call.

    Args:
        model: the model whose vocabularies the ids belong to.
        n_tokens: the number of tokens.
        excluded: the id that does not occur, such as that of padding; the last id of the
            vocabulary, unless it is an int.
    """
    generator = torch.Generator().manual_seed(0)
    all_ids: list[Tensor] = []
    for stack in model.stacks:
        others = max(1, model.config.vocabulary_of(stack.name) - 1)
        ids = torch.randint(others, (1, n_tokens), generator=generator)
        if isinstance(excluded, int) and others > 1:
            ids += ids >= excluded
        all_ids.append(ids)
    return all_ids


@contextmanager
def evaluating(module: nn.Module) -> Generator[None]:
    """Put a module in evaluation mode, and restore the mode of every submodule on exit."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


@contextmanager
def attending_by(
    config: Any,  # noqa: ANN401 - of transformers
    implementation: str,
) -> Generator[None]:
    """Let a model of ``transformers`` compute attention by another implementation.

    Args:
        config: its configuration.
        implementation: its name, such as ``"sdpa"``; empty for the present one.
    """
    before = config._attn_implementation
    config._attn_implementation = implementation or before
    try:
        yield
    finally:
        config._attn_implementation = before
