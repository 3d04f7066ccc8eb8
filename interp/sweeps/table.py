"""How does the result of a sweep fill up, and how is one that was stopped taken up again?"""

import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch

from interp.errors import InvalidInput
from interp.execution.provenance import Provenance
from interp.metrics import Metric, MetricLike
from interp.model.batch import Batch
from interp.model.network import Network
from interp.sweeps.baseline import Job
from interp.sweeps.cases import Item
from interp.sweeps.executors import Outcome
from interp.sweeps.result import Sweep


class Table:
    """What was found so far."""

    def __init__(
        self,
        model: Network,
        batches: Sequence[Batch],
        items: Sequence[Item],
        metric: Metric | MetricLike,
    ) -> None:
        shape = (len(items), len(batches[0].ids))
        self.done = torch.zeros(shape, dtype=torch.bool)
        self._values = torch.full(shape, torch.nan, dtype=torch.float64)
        self._clean = torch.full(shape[1:], torch.nan, dtype=torch.float64)
        self._edits = tuple(tuple(edit for _, edit in item.planned) for item in items)
        self._metric = metric
        made = [edit for several in self._edits for edit in several]
        self._provenance = Provenance.of(model, *batches, edits=made)
        self._notes: dict[str, None] = {}

    def fill(self, outcome: Outcome) -> None:
        """Enter what one forward found; a note is said aloud, too."""
        cells = torch.tensor(outcome.indices)[:, None], torch.tensor(outcome.prompts)
        self._values[cells] = outcome.values
        self._clean[cells[1]] = outcome.clean
        self.done[cells] = True
        if outcome.note is not None and outcome.note not in self._notes:
            self._notes[outcome.note] = None
            warnings.warn(outcome.note, ResourceWarning, stacklevel=3)

    def resume(self, earlier: object) -> None:
        """Take over what was done earlier, if anything was.

        Raises:
            InvalidInput: it was another sweep.
        """
        if earlier is None:
            return
        if not isinstance(earlier, Sweep) or not self._is_of(earlier):
            raise InvalidInput(
                "resume= takes the result of a sweep with the same model, weights, tokens, edits "
                "and metric; this one differs in one of them."
            )
        self.done |= earlier.done
        self._values = earlier.values.clone()
        self._clean = earlier.clean.clone()
        self._notes |= dict.fromkeys(earlier.notes)

    def left_of(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs without the items whose every cell is done."""
        found: list[Job] = []
        for job in jobs:
            done = self.done[:, list(job.rows)].all(dim=1)
            left = tuple(item for item in job.items if not bool(done[item.index]))
            found += [replace(job, items=left)] if left else []
        return found

    def result(self) -> Sweep:
        """All that is known now."""
        metric, unit = self._named()
        return Sweep(
            values=self._values.clone(),
            clean=self._clean.clone(),
            done=self.done.clone(),
            edits=self._edits,
            metric=metric,
            unit=unit,
            measured=self._metric,
            provenance=self._provenance,
            notes=tuple(self._notes),
        )

    def _is_of(self, earlier: Sweep) -> bool:
        """Whether an earlier result is of this very sweep."""
        same_edits = earlier.edits == self._edits and earlier.measured == self._metric
        return same_edits and earlier.provenance == self._provenance

    def _named(self) -> tuple[str, str]:
        """What was measured, and its unit."""
        if isinstance(self._metric, Metric):
            return self._metric.name, self._metric.unit
        return getattr(
            self._metric, "__name__", "a function of the logits"
        ), "as the function has it"
