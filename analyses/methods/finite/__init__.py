"""Refuses NaN and infinity, in the weights of a model and in what a forward computes.

No analysis has an answer of them: what it would show is not a finding.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from math import isfinite

import torch
from torch import Tensor

from interp.cache import Cache
from interp.errors import InvalidInput, NotANumber
from interp.execution import first_nan, run
from interp.model import Batch, Network, weight_state

__all__ = [
    "check_finite_weights",
    "check_forward",
    "check_no_nan",
    "check_total",
    "naming_first_nan",
]

ROWS = 64
"""Maximum number of prompts per forward."""


def check_finite_weights(model: Network) -> None:
    """Check that all weights are finite numbers, which takes one pass over them.

    A model that is loaded has finite weights, but they may be changed later, for example by a step
    of training that diverges.

    Raises:
        InvalidInput: a weight holds NaN or infinity; the message names it.
    """
    _, sums = weight_state(model)
    for (name, weight), total in zip(model.named_parameters(), sums, strict=True):
        # A sum of finite numbers may overflow.
        if isfinite(total) or bool(weight.isfinite().all()):
            continue
        wrong = (~weight.isfinite()).nonzero()
        raise InvalidInput(
            f"{name} of {model.config.name or 'this model'}, {list(weight.shape)}, is NaN or "
            f"infinite at {len(wrong)} of {weight.numel()} indices, first at {wrong[0].tolist()}. "
            "Analyses need finite weights: load the model anew, or find what changed this weight."
        )


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


def check_total(
    total: Tensor,
    cache: Cache,
    problem: str,
    *,
    name: str = "logits",
    look_for: str = "non-finite weights before it",
) -> None:
    """Check what the terms of an analysis are to sum to.

    Args:
        total: the sums, of any shape.
        cache: the activations that they were computed from.
        problem: what is wrong if one is not finite, as the beginning of the message.
        name: what is not finite if all activations are.
        look_for: what the reader of the message should look for.

    Raises:
        InvalidInput: one is not finite; the message names the first place that is not.
    """
    if bool(total.isfinite().all()):
        return
    first = next((place for place, x in cache.items() if not bool(x.isfinite().all())), name)
    raise InvalidInput(
        f"{problem}; of what was recorded, {first} is the first that is not finite. Look for "
        f"{look_for}."
    )
