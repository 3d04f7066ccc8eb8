"""What a harvest takes: bytes, and the time of its first texts, scaled to the whole corpus."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan
from time import perf_counter
from typing import Any

from torch import Tensor

from interp.execution import size_of
from interp.harvests.forwards import CELLS, ROWS, planned
from interp.harvests.index import IDS, row_bytes
from interp.integers import at_least
from interp.model import Batch
from interp.names import Request
from interp.prompts import by_length, no_texts, pools_of
from interp.transformer import Transformer

Forward = tuple[Tensor, tuple[Batch, ...]]
"""Indices of texts, and a batch of them per stack."""
FEW = 256
"""Number of texts from which tokens per text are estimated."""
SECONDS = 2.0
"""Forwards are timed for so long, or until these texts have been run."""


@dataclass(frozen=True)
class HarvestEstimate:
    """What a harvest takes, from its first texts.

    Attributes:
        n_rows: number of rows, a row for each token; NaN for an iterator, whose length is not
            known.
        nbytes: bytes on the disk: activations, and the integers beside each row; likewise.
        seconds: time of all forwards; likewise.
        tokens_per_second: tokens that are run in a second.
        row_bytes: bytes of a row's activations at all places.
    """

    n_rows: float
    nbytes: float
    seconds: float
    tokens_per_second: float
    row_bytes: int

    def __str__(self) -> str:
        if isnan(self.n_rows):
            return f"{self.row_bytes} bytes a token, {self.tokens_per_second:.3g} tokens a second"
        return (
            f"about {self.n_rows:.3g} tokens, {size_of(int(self.nbytes))}, {self.seconds:.3g} s at "
            f"{self.tokens_per_second:.3g} tokens a second"
        )


def estimate_harvest(
    model: Transformer,
    texts: Any,  # noqa: ANN401 - what interp.prompts.pools_of reads
    record: Request,
    *,
    dtype: object = None,
    max_length: int | None = None,
    rows: int = ROWS,
) -> HarvestEstimate:
    """Estimate the bytes and the time of :func:`interp.harvest` from the first 256 texts.

    Args:
        model: the model.
        texts: as for :func:`interp.harvest`; of an iterator, the first texts are consumed.
        record: likewise.
        dtype: likewise.
        max_length: likewise.
        rows: likewise.

    Returns:
        Rows, bytes, seconds, and tokens a second.

    Raises:
        UnknownPlace: as for :func:`interp.harvest`.
        InvalidInput: likewise.

    Examples:
        >>> model, texts = interp.load("python-2l"), ["def f(x): return x", "class A: pass"]
        >>> interp.estimate_harvest(model, texts, ("resid_post", 1), dtype="float16").row_bytes
        512
    """
    plan = planned(model, record, dtype)
    pool = next(iter(pools_of(model, texts, FEW, max_length)), None)
    if pool is None:
        raise no_texts()
    n_rows = int(pool.batches[plan.stack].is_real.sum())
    batches = list(by_length(pool.batches, at_least(1, rows, "rows"), CELLS, plan.forward_tokens))
    plan.rows(batches[0][1])  # what is allocated once is not timed
    seconds, timed = 0.0, 0
    for _, some in _from_both_ends(batches):
        began = perf_counter()
        plan.rows(some)
        seconds += perf_counter() - began
        timed += int(some[plan.stack].is_real.sum())
        if seconds > SECONDS:
            break
    is_known = isinstance(texts, str) or not hasattr(texts, "__next__")
    whole = float(round(n_rows * pool.total / pool.done)) if is_known else nan
    stored = row_bytes(plan.stored_places, plan.dtype)
    beside = sum(integer.itemsize for integer in IDS.values())
    return HarvestEstimate(
        n_rows=whole,
        nbytes=whole * (stored + beside),
        seconds=whole * seconds / timed,
        tokens_per_second=timed / seconds,
        row_bytes=stored,
    )


def _from_both_ends(batches: Sequence[Forward]) -> list[Forward]:
    """Batches of short texts and of long ones in turn, so that any part is of average length."""
    last = len(batches) - 1
    order = sorted(range(len(batches)), key=lambda number: min(number, last - number))
    return [batches[number] for number in order]
