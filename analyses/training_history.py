"""When did a circuit form? Losses and scores measured during training.

    halfway(f) = the first step with (f(step) − m) (f(first) − m) ≤ 0
    m          = (f(first) + f(last)) / 2

When a circuit forms, the loss (in nats) drops within a few steps, and the scores of its heads rise
at the same steps (Olsson et al. 2022; Nanda et al. 2023 for addition modulo p).

A history holds what was measured during training. On steps whose weights were kept, any analysis
can be run: ``score=``. Its rows (heads, say) are joined across all steps, as
:func:`analyses.compare` joins those of two models.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.results import (
    Curve,
    Curves,
    Drawing,
    Result,
    check_same_rows,
    number,
    rows_of,
    titles,
)
from interp import Transformer, load
from interp.errors import InvalidInput, shorten
from interp.zoo import History

BATCH = "loss of the batch (nats)"
NATS = "(nats)"
SHOWN = 6
"""Rows of a scored analysis that a figure and a summary show: those that change most."""


@dataclass(frozen=True, eq=False)
class Scores:
    """The numbers of an analysis at each step whose weights were kept.

    Attributes:
        values: mean over prompts.
        rows: title of each row, e.g. ``L0H5 previous-token``.
        steps: number of updates done; the last is the trained model.
        column: the column of the analysis's table.
        unit: unit of the values; ``""`` if the result names none.
    """

    values: Float[Tensor, "row step"]
    rows: tuple[str, ...]
    steps: tuple[int, ...]
    column: str
    unit: str

    @property
    def changes(self) -> list[tuple[str, list[float]]]:
        """The rows and their values, those that change most first."""
        spread = (self.values.amax(-1) - self.values.amin(-1)).nan_to_num()
        order = spread.argsort(descending=True, stable=True).tolist()
        return [(self.rows[row], self.values[row].tolist()) for row in order]


@dataclass(frozen=True, eq=False, repr=False)
class TrainingHistory(Result):
    """Losses and scores over the steps of a training.

    Attributes:
        model: the model's name.
        history: losses in nats, measured figures, and the steps of the checkpoints.
        checkpoint_scores: the numbers of ``score=`` at the checkpoints; ``None`` without it.
    """

    model: str
    history: History
    checkpoint_scores: Scores | None = None

    def to_frame(self) -> pd.DataFrame:
        """One row per figure and step: step (updates done), figure, value, kept (as a checkpoint).

        The loss of a batch is measured before the update that uses it. Figures of ``score=`` are
        named by row and column: ``L1H0 induction score``.
        """
        checkpoints = set(self.history.checkpoints)
        rows = [(step, BATCH, loss) for step, loss in enumerate(self.history.losses)]
        rows += [
            (step, name, value)
            for step, figures in self.history.measured.items()
            for name, value in figures.items()
        ]
        if self.checkpoint_scores is not None:
            rows += [
                (step, f"{name} {self.checkpoint_scores.column}", value)
                for name, values in self.checkpoint_scores.changes
                for step, value in zip(self.checkpoint_scores.steps, values, strict=True)
            ]
        frame = pd.DataFrame(rows, columns=["step", "quantity", "value"])
        return frame.assign(kept=frame["step"].isin(checkpoints))

    def drawing(self) -> Drawing:
        """Losses above, scores below, over the steps; a dotted line at each checkpoint."""
        dotted = " (dotted: checkpoints)" if self.history.checkpoints else ""
        panels, units = {"loss": self._losses(), "score": self._scores()}, ["nats", "0 to 1"]
        if (scores := self.checkpoint_scores) is not None:
            changes = scores.changes[:SHOWN]
            lines = [Curve(name, scores.steps, values) for name, values in changes]
            panels["at checkpoints"] = lines
            units.append(scores.unit or scores.column)
        return Curves(
            panels,
            title=f"Training of {self.model}{dotted}",
            axis="training step",
            units=units,
            marked=self.history.checkpoints,
        )

    def summary(self) -> str:
        """First and last value of each figure, and the step at which it was halfway between."""
        lines = [self.headline()]
        for name in self._names():
            steps, values = self.history.curve(name)
            lines.append(
                f"{name}: {number(values[0], 3)} → {number(values[-1], 3)}, halfway by step "
                f"{steps[_halfway(values)]}"
            )
        if (scores := self.checkpoint_scores) is not None:
            lines += [
                f"{name}, {scores.column}: {number(values[0], 3)} → {number(values[-1], 3)}, "
                "halfway by step "
                f"{scores.steps[_halfway(values)]}"
                for name, values in scores.changes[:SHOWN]
            ]
        return "\n".join(lines)

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        return f"{self.model}: {len(self.history.losses)} steps, last {self._last()}"

    def _last(self) -> str:
        return f"{number(self.history.losses[-1], 3)} nats" if self.history.losses else "nothing"

    def _names(self) -> list[str]:
        every = (name for figures in self.history.measured.values() for name in figures)
        return list(dict.fromkeys(every))

    def _losses(self) -> list[Curve]:
        losses = self.history.losses
        batch = Curve(BATCH, list(range(len(losses))), losses, faint=True)
        return [batch, *(self._curve(name) for name in self._names() if NATS in name)]

    def _scores(self) -> list[Curve]:
        return [self._curve(name) for name in self._names() if NATS not in name]

    def _curve(self, name: str) -> Curve:
        return Curve(name, *self.history.curve(name))


def training_history(
    name: str,
    history: History,
    *,
    score: Callable[[Transformer], Result] | None = None,
    column: str | None = None,
) -> TrainingHistory:
    """Losses and scores of a training, as a table and a figure.

    Args:
        name: the model's name.
        history: as ``interp.history(name)`` returns it.
        score: an analysis to run on every step whose weights were kept, and on the trained model:
            ``head_roles``, or a function that calls an analysis with its prompts.
        column: the column of its table; by default the first of ``effect``, ``value`` and ``score``
            that it has.

    Raises:
        InvalidInput: the history holds no step; ``score`` is given, but no weights were kept, or
            its rows differ between steps.
        ModelLoadError: there is no such model.

    Examples:
        >>> analyses.training_history("python-2l", interp.history("python-2l"))
        TrainingHistory(python-2l: 2500 steps, last 2.04 nats)
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"name={shorten(name)} should be the name of a model.")
    if not isinstance(history, History):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(
            f"history={shorten(history)} should be what interp.history(name) returns."
        )
    if not isinstance(column, str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"column={shorten(column)} should be the name of a column.")
    if not (score is None or callable(score)):
        raise InvalidInput(f"score={shorten(score)} should be an analysis, such as head_roles.")
    if not history.losses:
        raise InvalidInput(f"The history of {name} is empty: it holds no training step.")
    return TrainingHistory(name, history, score and _scores(name, history, score, column))


def _scores(
    name: str, history: History, score: Callable[[Transformer], Result], column: str | None
) -> Scores:
    """The means of an analysis at every step whose weights were kept."""
    if not history.checkpoints:
        raise InvalidInput(f"No weights of the steps of {name} were kept, so none can be scored.")
    last = len(history.losses)
    steps = [step for step in history.checkpoints if step < last]
    names = [*(f"{name}@{step}" for step in steps), name]
    results = [score(load(step_name)) for step_name in names]
    rows = [rows_of(result, column) for result in results]
    check_same_rows(rows, names)
    return Scores(
        values=torch.stack([table.in_order_of(rows[0]).nanmean(-1) for table in rows], -1),
        rows=tuple(titles(rows[0].cells)),
        steps=(*steps, last),
        column=rows[0].column,
        unit=results[0].unit_of_column(rows[0].column),
    )


def _halfway(values: list[float]) -> int:
    """The index of the first value at or beyond the midpoint of the first and the last."""
    middle = (values[0] + values[-1]) / 2
    beyond = (n for n, value in enumerate(values) if (value - middle) * (values[0] - middle) <= 0)
    return next(beyond, len(values) - 1)
