"""The result of a sweep: one row per edit, one column per prompt."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.edits import Edit, Selection
from interp.execution import Provenance
from interp.io import DataFrame, Table, frame_of
from interp.metrics import Metric, MetricLike
from interp.sweeps.schedule import PlacedEdits, label_of


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The metric under every edit, for each prompt.

    Attributes:
        values: the metric with the edit applied; NaN where it was not computed, and where the
            metric itself is NaN (:attr:`notes` then lists these cells).
        baseline: the metric without an edit; NaN where it was not computed.
        done: where ``values`` were computed: everywhere, unless the sweep was stopped.
        placed: the edits of each row, one or several together, each with its place.
        metric: name of the metric.
        unit: unit of the metric.
        measured: the metric itself.
        provenance: everything that the values depend on.
        remarks: how the values were computed, in the order in which that was found; the first of
            :attr:`notes`.

    Examples:
        >>> model, metric = interp.load("python-2l"), interp.metrics.loss()
        >>> heads = [interp.edits.zero("z", layer=1, head=h) for h in range(8)]
        >>> table = interp.sweep(model, ["def f(x):", "class A:"], heads, metric)
        >>> table, table.values.shape, table.baseline.shape
        (Sweep(loss under 8 edits of 2 prompts), torch.Size([8, 2]), torch.Size([2]))
    """

    values: Float[Tensor, "edit prompt"]
    baseline: Float[Tensor, " prompt"]
    done: Bool[Tensor, "edit prompt"]
    placed: tuple[PlacedEdits, ...]
    metric: str
    unit: str
    measured: Metric | MetricLike
    provenance: Provenance
    remarks: dict[str, None] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Metric and size; there may be too many values to show."""
        edits, prompts = self.values.shape
        missing = "" if self.complete else f", {int((~self.done).sum())} cells not done"
        what = f"{edits} edit{'s' * (edits != 1)} of {prompts} prompt{'s' * (prompts != 1)}"
        return f"Sweep({self.metric} under {what}{missing})"

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
    def edits(self) -> tuple[tuple[Edit, ...], ...]:
        """The edits of each row: one, or several together."""
        return tuple(tuple(edit for _, edit in row) for row in self.placed)

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
        """Remarks on how the values were computed, and on which of them are NaN."""
        nan = nan_note(self.values, self.done, self.placed)
        return (*self.remarks, *([] if nan is None else [nan]))

    def rows(self) -> Iterator[dict[str, object]]:
        """One row per computed cell.

        The keys are: edit (index), kind, where, point, layer, the selected indices (head, pos,
        batch, key, unit, expert; ``None`` for all), norm, stack, prompt, baseline, value, effect.
        For edits that are applied together, their values are joined with ``+``.
        """
        baseline, values, effect = (
            self.baseline.tolist(),
            self.values.tolist(),
            self.effect.tolist(),
        )
        for number, edits in enumerate(self.placed):
            edited = {"edit": number, **columns_of(edits)}
            for prompt in self.done[number].nonzero()[:, 0].tolist():
                yield edited | {
                    "prompt": prompt,
                    "baseline": baseline[prompt],
                    "value": values[number][prompt],
                    "effect": effect[number][prompt],
                }

    def to_frame(self) -> DataFrame:
        """:meth:`rows` as a pandas ``DataFrame``, without columns that no edit uses.

        Raises:
            InvalidInput: pandas is not installed.
        """
        return frame_of(self.rows(), OPTIONAL)

    def save(self, path: str | Path) -> None:
        """Write the sweep to a file, atomically; :meth:`load` reads it, and it can be resumed.

        Raises:
            InvalidInput: an edit or the metric is a Python function, or there is no such folder.
            OutOfResources: the file can't be written.
        """
        import_module("interp.saved").write_sweep(self, Path(path))  # of a package above this one

    @staticmethod
    def load(path: str | Path) -> "Sweep":
        """Read a sweep that :meth:`save` wrote.

        Raises:
            InvalidInput: there is no such file, or it is damaged, of another kind or version.
        """
        return import_module("interp.saved").read_sweep(Path(path))


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; ``result`` has the cells that were done until then.

    It propagates like any ``KeyboardInterrupt``; ``interp.sweep(..., resume=error.result)``
    computes the rest.
    """

    def __init__(self, result: Sweep) -> None:
        cells = result.done.numel()
        super().__init__(
            f"The sweep was stopped with {int(result.done.sum())} of {cells} cells done; the same "
            "call with resume=error.result computes the rest."
        )
        self.result = result

    def __reduce__(self) -> tuple[type["Interrupted"], tuple[Sweep]]:
        """Pickle the exception with its result."""
        return Interrupted, (self.result,)


FIRST = ("head", "pos")
SELECTED = tuple(field.name for field in fields(Selection) if field.name not in FIRST)
OPTIONAL = (*SELECTED, "norm", "stack")
"""Columns that most sweeps do not need."""
SHOWN = 4
"""Maximum number of edits, and of prompts per edit, that a note lists."""


def columns_of(edits: PlacedEdits) -> dict[str, object]:
    """The columns that describe edits applied together; indices are as given by the caller."""
    places = [place for place, _ in edits]
    selected = {
        name: joined([getattr(edit.select, name) for _, edit in edits])
        for name in (*FIRST, *SELECTED)
    }
    return {
        "kind": " + ".join(edit.kind for _, edit in edits),
        "where": " + ".join(",".join(map(str, edit.where)) for _, edit in edits),
        "point": joined([place.point.label for place in places]),
        "layer": joined([place.layer for place in places]),
        **selected,
        "norm": joined([place.norm for place in places]),
        "stack": joined([place.stack for place in places]),
    }


def joined(values: Sequence[object]) -> object:
    """The value of a single edit, or the values of several joined as text (``-`` for ``None``)."""
    if len(values) == 1:
        return values[0]
    if all(value is None for value in values):
        return None
    return " + ".join("-" if value is None else str(value) for value in values)


def nan_note(values: Tensor, done: Tensor, placed: Sequence[PlacedEdits]) -> str | None:
    """A note on the computed cells ``[edit prompt]`` that are NaN; ``None`` if none is."""
    nan = values.isnan() & done
    edits = nan.any(1).nonzero()[:, 0].tolist()
    if not edits:
        return None
    listed = [
        f"{label_of(edit, placed[edit])} on prompt {_listed(nan[edit].nonzero()[:, 0].tolist())}"
        for edit in edits[:SHOWN]
    ]
    more = f"; and {len(edits) - SHOWN} more edits" if len(edits) > SHOWN else ""
    return (
        f"The metric is NaN in {int(nan.sum())} cells: {'; '.join(listed)}{more}. There the edited "
        "logits hold NaN or infinity, or a function of them gives NaN."
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:SHOWN])) + (", …" if len(numbers) > SHOWN else "")
