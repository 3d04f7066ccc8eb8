"""The result of a sweep: edits down, prompts across; filled as the sweep runs."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.edits import Edit
from interp.errors import InvalidInput
from interp.execution.provenance import Provenance
from interp.metrics import Metric, MetricLike
from interp.model.batch import Batch
from interp.model.network import Network
from interp.sweeps.cases import Case
from interp.sweeps.executors import Outcome
from interp.sweeps.schedule import Job
from interp.table import Table


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The metric under every edit, prompt by prompt.

    Attributes:
        values: the metric with the edit made; NaN where it was not run.
        baseline: the metric without an edit; NaN where it was not run.
        done: where ``values`` were computed: everywhere, unless the sweep was stopped.
        edits: those of each row: one edit, or several together.
        metric: name of the metric.
        unit: of the metric.
        measured: the metric itself.
        provenance: what these numbers depend on.
    """

    values: Float[Tensor, "edit prompt"]
    baseline: Float[Tensor, " prompt"]
    done: Bool[Tensor, "edit prompt"]
    edits: tuple[tuple[Edit, ...], ...]
    metric: str
    unit: str
    measured: Metric | MetricLike
    provenance: Provenance
    _notes: dict[str, None] = field(default_factory=dict)

    @classmethod
    def empty(
        cls,
        model: Network,
        batches: Sequence[Batch],
        cases: Sequence[Case],
        measured: Metric | MetricLike,
    ) -> "Sweep":
        """The result before anything was run."""
        shape = (len(cases), len(batches[0].ids))
        edits = tuple(tuple(edit for _, edit in case.edits) for case in cases)
        metric, unit = named(measured)
        return cls(
            values=torch.full(shape, torch.nan, dtype=torch.float64),
            baseline=torch.full(shape[1:], torch.nan, dtype=torch.float64),
            done=torch.zeros(shape, dtype=torch.bool),
            edits=edits,
            metric=metric,
            unit=unit,
            measured=measured,
            provenance=Provenance.of(model, *batches, edits=[e for row in edits for e in row]),
        )

    def __repr__(self) -> str:
        """Metric and size; the numbers themselves may be very many."""
        edits, prompts = self.values.shape
        left = "" if self.complete else f", {int((~self.done).sum())} cells not done"
        return f"Sweep({self.metric} under {edits} edits of {prompts} prompts{left})"

    def _repr_html_(self) -> str:
        return self.description().to_html()

    def description(self) -> Table:
        """Each row's edits, with the mean over prompts of baseline, value and effect."""
        means = torch.stack([self.baseline.expand_as(self.values), self.values, self.effect])
        rows = [
            (" + ".join(map(str, edits)), *row)
            for edits, row in zip(self.edits, means.nanmean(-1).T.tolist(), strict=True)
        ]
        return Table(repr(self), ("edits", "baseline", self.metric, "effect"), rows)

    @property
    def effect(self) -> Float[Tensor, "edit prompt"]:
        """Edited minus baseline, in the metric's unit."""
        return self.values - self.baseline

    @property
    def complete(self) -> bool:
        """Whether every cell was computed."""
        return bool(self.done.all())

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of how the numbers were computed."""
        return tuple(self._notes)

    def rows(self) -> Iterator[dict[str, object]]:
        """One row per computed cell: edit (index), kind, where, prompt, baseline, value, effect."""
        effect = self.effect
        for number, edits in enumerate(self.edits):
            for prompt in self.done[number].nonzero()[:, 0].tolist():
                yield {
                    "edit": number,
                    "kind": " + ".join(edit.kind for edit in edits),
                    "where": " + ".join(",".join(map(str, edit.where)) for edit in edits),
                    "prompt": prompt,
                    "baseline": self.baseline[prompt].item(),
                    "value": self.values[number, prompt].item(),
                    "effect": effect[number, prompt].item(),
                }

    # ---- while the sweep runs -----------------------------------------------------------------

    def fill(self, outcome: Outcome) -> None:
        """Enter the outcome of a forward; a new note is also issued as a warning."""
        cells = torch.tensor(outcome.cases)[:, None], torch.tensor(outcome.prompts)
        self.values[cells] = outcome.values
        self.baseline[cells[1]] = outcome.baseline
        self.done[cells] = True
        if outcome.note is not None and outcome.note not in self._notes:
            self._notes[outcome.note] = None
            warnings.warn(outcome.note, ResourceWarning, stacklevel=3)

    def resume(self, earlier: object) -> None:
        """Take over what an earlier result has, if there is one.

        Raises:
            InvalidInput: it is of another sweep.
        """
        if earlier is None:
            return
        if not isinstance(earlier, Sweep) or not self._is_same_sweep(earlier):
            raise InvalidInput(
                "resume= takes the result of a sweep with the same model, weights, tokens, edits "
                "and metric; this one differs in one of them."
            )
        self.done.logical_or_(earlier.done)
        self.values.copy_(earlier.values)
        self.baseline.copy_(earlier.baseline)
        self._notes.update(earlier._notes)

    def left_of(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs without the cases whose every cell is done."""
        found: list[Job] = []
        for job in jobs:
            done = self.done[:, list(job.rows)].all(dim=1)
            left = tuple(case for case in job.cases if not bool(done[case.index]))
            found += [replace(job, cases=left)] if left else []
        return found

    def snapshot(self) -> "Sweep":
        """A copy that later outcomes do not change."""
        return replace(
            self,
            values=self.values.clone(),
            baseline=self.baseline.clone(),
            done=self.done.clone(),
            _notes=dict(self._notes),
        )

    def _is_same_sweep(self, earlier: "Sweep") -> bool:
        same_edits = earlier.edits == self.edits and earlier.measured == self.measured
        return same_edits and earlier.provenance == self.provenance


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; ``result`` holds what was done until then.

    It propagates as any KeyboardInterrupt; ``interp.sweep(..., resume=error.result)`` computes what
    is left.
    """

    def __init__(self, result: Sweep) -> None:
        cells = result.done.numel()
        super().__init__(
            f"The sweep was stopped with {int(result.done.sum())} of {cells} cells done."
        )
        self.result = result


def named(metric: Metric | MetricLike) -> tuple[str, str]:
    """Name and unit of a metric."""
    if isinstance(metric, Metric):
        return metric.name, metric.unit
    return getattr(metric, "__name__", "a function of the logits"), "unit of the function"
