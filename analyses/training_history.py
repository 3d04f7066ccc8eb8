"""When did a circuit form? What was measured while a model was trained, step by step.

Losses, in nats, fall slowly at first and at once when a circuit forms; the scores of its heads rise
at the same steps (Olsson et al. 2022; Nanda et al. 2023 for sums modulo p).
"""

from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from analyses.figures import Curve, curves
from interp.errors import InvalidInput
from interp.zoo.history import History

BATCH = "loss of the batch (nats)"
NATS = "(nats)"


@dataclass(frozen=True, eq=False)
class TrainingHistory:
    """What happened in a training.

    Attributes:
        name: of the model.
        history: losses in nats, figures, and the steps whose weights were kept.
    """

    name: str
    history: History

    def to_frame(self) -> pd.DataFrame:
        """One row a figure and step: step (updates done), figure, value, kept.

        The loss of a batch is that of the weights before they learn from it.
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
        """Losses above, scores below, over the steps; a dotted line where weights were kept."""
        dotted = " (dotted: weights of these steps were kept)" if self.history.checkpoints else ""
        return curves(
            {"loss": self._losses(), "score": self._scores()},
            title=f"How {self.name} was trained{dotted}",
            axis="steps of training",
            units=("nats", "0 to 1"),
            marked=self.history.checkpoints,
        )

    def summary(self) -> str:
        """When each figure made most of its way."""
        lines = [f"{self.name}: {len(self.history.losses)} steps, last {self._last()}"]
        for name in self._names():
            steps, values = self.history.curve(name)
            lines.append(
                f"{name}: {values[0]:.3g} → {values[-1]:.3g}, half of it by step "
                f"{steps[_half_way(values)]}"
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
    """The history of a training, to be looked at.

    Args:
        name: of the model.
        history: as ``interp.history(name)`` gives it.

    Raises:
        InvalidInput: nothing was noted in it.
    """
    if not history.losses:
        raise InvalidInput(f"The history of {name} is empty: no step was trained.")
    return TrainingHistory(name, history)


def _half_way(values: list[float]) -> int:
    """Where a curve has first made half of the way from its first value to its last."""
    middle = (values[0] + values[-1]) / 2
    passed = (n for n, value in enumerate(values) if (value - middle) * (values[0] - middle) <= 0)
    return next(passed, len(values) - 1)
