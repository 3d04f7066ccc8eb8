"""When did a circuit form? Losses and scores measured during training.

    halfway(f) = the first step with (f(step) − m) (f(first) − m) ≤ 0
    m          = (f(first) + f(last)) / 2

When a circuit forms, the loss (in nats) drops within a few steps, and the scores of its heads rise
at the same steps (Olsson et al. 2022; Nanda et al. 2023 for addition modulo p).
"""

from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from analyses.figures import Curve, curves
from analyses.result import Result
from interp.errors import InvalidInput
from interp.zoo.history import History

BATCH = "loss of the batch (nats)"
NATS = "(nats)"


@dataclass(frozen=True, eq=False, repr=False)
class TrainingHistory(Result):
    """Losses and scores over the steps of a training.

    Attributes:
        name: the model's name.
        history: losses in nats, measured figures, and the steps of the checkpoints.
    """

    name: str
    history: History

    def to_frame(self) -> pd.DataFrame:
        """One row a figure and step: step (updates done), figure, value, kept (as a checkpoint).

        The loss of a batch is measured before the update that uses it.
        """
        kept = set(self.history.checkpoints)
        rows = [(step, BATCH, loss) for step, loss in enumerate(self.history.losses)]
        rows += [
            (step, name, value)
            for step, figures in self.history.measured.items()
            for name, value in figures.items()
        ]
        frame = pd.DataFrame(rows, columns=["step", "figure", "value"])
        return frame.assign(kept=frame["step"].isin(kept))

    def figure(self) -> go.Figure:
        """Losses above, scores below, over the steps; a dotted line at each checkpoint."""
        dotted = " (dotted: checkpoints)" if self.history.checkpoints else ""
        return curves(
            {"loss": self._losses(), "score": self._scores()},
            title=f"Training of {self.name}{dotted}",
            axis="training step",
            units=("nats", "0 to 1"),
            marked=self.history.checkpoints,
        )

    def summary(self) -> str:
        """First and last value of each figure, and the step at which it was halfway between."""
        lines = [f"{self.name}: {len(self.history.losses)} steps, last {self._last()}"]
        for name in self._names():
            steps, values = self.history.curve(name)
            lines.append(
                f"{name}: {values[0]:.3g} → {values[-1]:.3g}, halfway by step "
                f"{steps[_halfway(values)]}"
            )
        return "\n".join(lines)

    def _last(self) -> str:
        return f"{self.history.losses[-1]:.3g} nats" if self.history.losses else "nothing"

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


def training_history(name: str, history: History) -> TrainingHistory:
    """Losses and scores of a training, as a table and a figure.

    Args:
        name: the model's name.
        history: as ``interp.history(name)`` returns it.

    Raises:
        InvalidInput: the history holds no step.
    """
    if not history.losses:
        raise InvalidInput(f"The history of {name} is empty: it holds no training step.")
    return TrainingHistory(name, history)


def _halfway(values: list[float]) -> int:
    """The index of the first value at or beyond the midpoint of the first and the last."""
    middle = (values[0] + values[-1]) / 2
    beyond = (n for n, value in enumerate(values) if (value - middle) * (values[0] - middle) <= 0)
    return next(beyond, len(values) - 1)
