"""The pass over a corpus: its texts in batches, what is kept of them, and where it was stopped."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from analyses.methods.corpus import texts_of
from analyses.scan_heads.measure import Forward, Plan, measured
from analyses.scan_heads.partial import PartialScan
from analyses.scan_heads.sequences import LONGEST, Text
from analyses.scan_heads.totals import Sizes, Totals
from interp import Transformer
from interp.errors import InvalidInput, OutOfResources
from interp.execution import free_bytes, size_of
from interp.executors import map_batches
from interp.integers import as_seed, at_least, within
from interp.io import Progress
from interp.model import Batch, weight_hash
from interp.prompts import Pool, pools_of

POOL = 256
"""Number of texts in memory at a time, which are sorted by length and divided into batches."""
FARTHEST = 2**10
"""The largest number of offsets."""
COUNTERS = 1024
"""Number of tokens, and of pairs, whose masses each head keeps."""


def planned(
    model: Transformer, offsets: int, max_length: int, sample: int, shuffled: int, seed: int
) -> tuple[Plan, Sizes]:
    """What is measured of a model, and the sizes of what is kept.

    Raises:
        InvalidInput: a setting is out of range.
    """
    offsets = within(1, FARTHEST, offsets, "offsets")
    sample, shuffled = at_least(10, sample, "sample"), at_least(1, shuffled, "shuffled")
    max_length = at_least(2, max_length, "max_length")
    plan = Plan(model, offsets, max_length, shuffled, as_seed(seed))
    sizes = Sizes(
        units=len(plan.heads),
        statistics=len(plan.statistics),
        stacks=len(model.stacks),
        vocab=0 if plan.reads_images else model.d_vocab,
        layers=sum(len(stack.blocks) for stack in model.stacks),
        d_model=model.d_model,
        farthest=plan.farthest,
        longest=min(LONGEST, plan.farthest + 1) if plan.is_cut else plan.farthest + 1,
        sample=sample,
        counters=COUNTERS,
    )
    return plan, sizes


def check_memory(plan: Plan, sizes: Sizes, memory: object) -> None:
    """Check that what is kept is within the memory.

    Raises:
        OutOfResources: it is not.
    """
    allowed = free_bytes(plan.model.device) / 2 if memory is None else memory
    if not isinstance(allowed, int | float) or isinstance(allowed, bool) or not allowed > 0:
        raise InvalidInput(f"memory={memory!r:.80} should be a number of bytes above 0.")
    if sizes.nbytes > allowed:
        raise OutOfResources(
            f"{sizes.statistics} statistics of {sizes.units} heads with {sizes.sample} texts keep "
            f"{size_of(sizes.nbytes)}; {size_of(int(allowed))} are allowed. Give fewer offsets=, a "
            "smaller sample=, or more memory=."
        )


@dataclass(frozen=True, eq=False)
class TextsRead:
    """The texts of a forward.

    Attributes:
        pool: the texts that were read with them.
        number: number of the forward in its pool.
        rows: which texts of the pool they are.
        batches: their tokens.
        n_done: number of texts of the pool in this forward and those before it.
    """

    pool: Pool
    number: int
    rows: Int[Tensor, " row"]
    batches: tuple[Batch, ...]
    n_done: int

    def __str__(self) -> str:
        return self.pool.names(self.rows)


class CorpusPass:
    """The pass over a corpus.

    Attributes:
        plan: what is measured.
        rows: maximum number of texts per forward.
        totals: the numbers so far.
        texts: the texts of the sample, by their numbers.
        sources: where they were read.
    """

    def __init__(self, plan: Plan, sizes: Sizes, rows: int) -> None:
        self.plan, self.rows = plan, rows
        self.totals = Totals(sizes)
        self.texts: dict[int, Text] = {}
        self.sources: dict[int, str] = {}
        self._digest = hashlib.sha256()
        self._resumed: PartialScan | None = None
        self._saved: tuple[dict[str, Tensor], str] = self.totals.snapshot(), ""

    @property
    def settings(self) -> dict[str, Any]:
        """What the numbers depend on, but the texts."""
        model, plan = self.plan.model, self.plan
        return {
            "model": model.config.name or "unnamed",
            "config": model.config.digest,
            "weights": weight_hash(model),
            "dtype": str(model.dtype).removeprefix("torch."),
            "offsets": plan.offsets,
            "max_length": plan.max_length,
            "sample": self.totals.sizes.sample,
            "shuffled": plan.shuffled,
            "seed": plan.seed,
            "rows": self.rows,
        }

    @property
    def partial(self) -> PartialScan:
        """The numbers up to the last forward that was added whole."""
        tensors, digest = self._saved
        return PartialScan({**self.settings, "texts": digest}, tensors)

    def resume(self, partial: PartialScan) -> None:
        """Continue a scan that was stopped.

        Raises:
            InvalidInput: its numbers are damaged.
        """
        try:
            self.totals.restore(partial.tensors)
        except ValueError as error:
            raise InvalidInput(
                f"resume= is damaged: {error}. Leave it out to start from the beginning."
            ) from error
        self._resumed, self._saved = partial, (partial.tensors, partial.settings.get("texts", ""))

    def read(
        self,
        texts: Any,  # noqa: ANN401
        report: Progress | None,
        cancelled: Callable[[], bool] | None,
    ) -> bool:
        """Measure all texts that were not measured before; False if it was cancelled."""
        counts, model = self.totals.counts, self.plan.model
        texts = texts_of(model, texts)
        read, pools = self._pass_over(pools_of(model, texts, POOL, self.plan.max_length))
        function = partial(measured, self.plan, self.totals.sizes)
        current: Pool | None = None
        with closing(map_batches(model, function, self._forwards(pools))) as results:
            for texts_read, totals in results:
                pool = texts_read.pool
                if pool is not current:
                    read = read if current is None else current.done
                    current = pool
                    self._begin(pool)
                self.totals.add(totals)
                counts["batches"] = texts_read.number + 1
                self._keep(pool, texts_read.rows, texts_read.batches)
                if texts_read.n_done == len(pool.sources):
                    self._end(pool)
                self._save()
                report_rows = pool.progress(report, read)
                if report_rows is not None:
                    report_rows(texts_read.n_done, len(pool.sources))
                # A result needs a text of two tokens, and the shortest texts are read first.
                if cancelled is not None and self.has_values and cancelled():
                    return False
        self._check_digest()
        return True

    def _pass_over(self, pools: Iterator[Pool]) -> tuple[int, Iterator[Pool]]:
        """Read the texts that a stopped scan has measured; how much it was, and the other pools."""
        counts, read = self.totals.counts, 0
        for pool in pools:
            forwards = list(self.plan.forwards(pool.batches, self.rows))
            is_last = pool.first == counts["first"] and counts["batches"] == len(forwards)
            if pool.first >= counts["first"] and not is_last:
                return read, chain([pool], pools)
            if is_last:  # of a scan that was stopped between its last forward and its end
                self._begin(pool)
                self._end(pool)
            else:
                pool.digest(self._digest)
                self._keep(pool, torch.arange(len(pool.sources)), pool.batches)
            read = pool.done
        return read, iter(())

    def _forwards(self, pools: Iterator[Pool]) -> Iterator[tuple[TextsRead, Forward]]:
        """The texts of each forward that is left."""
        n_before = self.totals.counts["batches"]
        for pool in pools:
            n_done = 0
            for number, (rows, batches) in enumerate(self.plan.forwards(pool.batches, self.rows)):
                n_done += len(rows)
                if number >= n_before:
                    numbers = rows.cpu() + pool.first
                    yield TextsRead(pool, number, rows, batches, n_done), (numbers, batches)
            n_before = 0

    def _begin(self, pool: Pool) -> None:
        """Add the texts of a pool to the hash, and keep those that a stopped scan has measured."""
        n_before = self.totals.counts["batches"]
        if not n_before:
            self._check_digest()
        pool.digest(self._digest)
        self._check_digest()
        self.totals.counts["cut"] += 0 if n_before else pool.n_cut
        for rows, batches in islice(self.plan.forwards(pool.batches, self.rows), n_before):
            self._keep(pool, rows, batches)

    def _end(self, pool: Pool) -> None:
        """All texts of a pool are measured."""
        counts = self.totals.counts
        counts["first"], counts["batches"] = pool.first + len(pool.sources), 0

    def _save(self) -> None:
        self._resumed = None
        self._saved = self.totals.snapshot(), self._digest.hexdigest()

    def _check_digest(self) -> None:
        """Check, where a stopped scan is resumed, that the texts before are those that it read.

        Raises:
            InvalidInput: they are not.
        """
        if self._resumed is None:
            return
        if self._digest.hexdigest() != self._resumed.settings.get("texts"):
            raise InvalidInput(
                "resume= is a scan of other texts: those that it read have changed. Give the same "
                "texts, from the first on, or leave out resume=."
            )
        self._resumed = None

    def _keep(self, pool: Pool, rows: Int[Tensor, " row"], batches: Sequence[Any]) -> None:
        """Keep the texts of the sample, and drop those that have left it."""
        sampled = set(self.totals.sampled.tolist())
        self.texts = {n: text for n, text in self.texts.items() if n in sampled}
        for row, number in enumerate((rows.cpu() + pool.first).tolist()):
            if number in sampled:
                index = torch.tensor([row], device=batches[0].ids.device)
                self.texts[number] = tuple(batch.rows(index).padded_right() for batch in batches)
                self.sources[number] = pool.sources[number - pool.first]

    @property
    def has_values(self) -> bool:
        """Whether a text had two tokens, so that heads attend by choice."""
        return bool((self.totals.value.n[0, :, 0] > 0).any())

    @property
    def digest(self) -> str:
        """The hash of all texts so far."""
        return self._digest.hexdigest()
