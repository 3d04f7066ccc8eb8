"""How is one job of a sweep done? One clean forward, then fold after fold within the budget."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from interp.edits import Edit
from interp.errors import InterpError, OutOfResources
from interp.metrics import AtPosition, Metric, MetricLike
from interp.model.network import Network
from interp.points import Place, Point
from interp.sweeps.baseline import Clean, Job, wanted_by
from interp.sweeps.batched import Fold, Folded, is_exit
from interp.sweeps.cases import Item
from interp.sweeps.executors import Outcome
from interp.sweeps.memory import Budget, Footprint, footprint, size_of
from interp.sweeps.restart import Ways
from interp.sweeps.schedule import folds_of
from interp.sweeps.validate import shape_at


@dataclass
class Worker:
    """Does the jobs of one sweep.

    Attributes:
        ways: of the model.
        budget: what its forwards may take.
        most: copies a forward, after memory gave out with twice as many; it may do so once.
    """

    ways: Ways
    budget: Budget
    most: int | None = None

    def __call__(self, job: Job) -> Iterator[Outcome]:
        """What each fold finds."""
        copies = self.copies(job)
        clean, unedited = self._unedited(job)
        for fold in folds_of(self.ways, job, copies):
            for part in self._cut(fold):
                yield from self._outcomes(clean, job, part, unedited)

    def copies(self, job: Job) -> int:
        """How many edited forwards of a job's prompts fit at once.

        Raises:
            OutOfResources: not one.
        """
        one, prompts = self.footprint(job), len(job.rows)
        if one.least(prompts) > self.budget.nbytes:
            raise OutOfResources(
                f"One edited forward of {prompts} prompts, and what is kept of the clean one, take "
                f"about {size_of(one.least(prompts))}; the sweep may take "
                f"{size_of(self.budget.nbytes)}. Give it more with memory=, or fewer or shorter "
                "prompts."
            )
        return one.copies(self.budget, prompts)

    def footprint(self, job: Job) -> Footprint:
        """Of one prompt."""
        width = max(batch.ids.shape[1] for batch in job.batches)
        planned = [planned for item in job.items for planned in item.planned]
        kept = (shape_at(self.ways, job.batches, place) for place in wanted_by(self.ways, job))
        return footprint(
            self.ways.model,
            width,
            logits_formed(self.ways.model, job.metric, planned, width),
            [place for place, _ in planned],
            kept=sum(prod(shape[1:]) for shape in kept),
            padded=any(batch.real is not None for batch in job.batches),
        )

    def _unedited(self, job: Job) -> tuple[Clean, Tensor]:
        """What is kept of the clean forward, and its metric.

        Raises:
            OutOfResources: memory gave out.
        """
        try:
            with torch.no_grad():
                clean = Clean.of(self.ways, job)
                return clean, Folded(clean, job, nothing_done(self.ways, job)).values()[0]
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise self._gave_out(job, "the unedited forward", 1) from error

    def _cut(self, fold: Fold) -> Iterator[Fold]:
        """The fold in parts that are small enough by what is known now."""
        most = self.most or len(fold.items)
        for begun in range(0, len(fold.items), most):
            yield Fold(fold.items[begun : begun + most], fold.first)

    def _outcomes(
        self, clean: Clean, job: Job, fold: Fold, unedited: Tensor, note: str | None = None
    ) -> Iterator[Outcome]:
        values = self._values(clean, job, fold)
        if values is not None:
            indices = tuple(item.index for item in fold.items)
            yield Outcome(indices, job.rows, values, unedited, note)
            return
        self.most = (len(fold.items) + 1) // 2
        note = f"Memory gave out with {len(fold.items)} edits a forward: went on with {self.most}."
        for part in self._cut(fold):
            yield from self._outcomes(clean, job, part, unedited, note)

    def _values(self, clean: Clean, job: Job, fold: Fold) -> Tensor | None:
        """The metric of a fold; ``None`` if memory gave out for the first time.

        Raises:
            OutOfResources: it gave out again, or with a single edit.
        """
        try:
            with torch.no_grad():
                return Folded(clean, job, fold).values()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if self.most is not None or len(fold.items) == 1:
                edited = f"{len(fold.items)} edits a forward"
                raise self._gave_out(job, edited, len(fold.items)) from error
        return None

    def _gave_out(self, job: Job, what: str, copies: int) -> OutOfResources:
        one = self.footprint(job).peak
        return OutOfResources(
            f"Memory gave out with {what}, {len(job.rows)} prompts each: about "
            f"{size_of(one * len(job.rows) * copies)}. Say what the sweep may take with memory=, "
            "or give it fewer or shorter prompts."
        )


def logits_formed(
    model: Network, metric: Metric | MetricLike, planned: Sequence[tuple[Place, Edit]], width: int
) -> int:
    """How many logits are formed for each prompt, of ``width`` columns."""
    at_the_exit = [(place, edit) for place, edit in planned if is_exit(place)]
    if not isinstance(metric, AtPosition) or not all(edit.pointwise for _, edit in at_the_exit):
        return model.config.n_logits * width
    edited = any(place.point == Point.LOGITS for place, _ in at_the_exit)
    return model.config.n_logits if edited or metric.columns is None else len(metric.columns)


def nothing_done(ways: Ways, job: Job) -> Fold:
    """The fold that changes nothing: what it measures is the clean metric."""
    return Fold((Item(-1, (), ways.entrances([]), job.items[0].freedom),), 0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory gave out, on whatever device."""
    if isinstance(error, InterpError):
        return False
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(
        said in str(error) for said in ("can't allocate memory", "not enough memory")
    )
