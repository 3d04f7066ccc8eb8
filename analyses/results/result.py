"""What every analysis returns: numbers, as a table, as a figure and as text."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from html import escape
from typing import Any, ClassVar

import pandas as pd
import plotly.graph_objects as go
from jaxtyping import Float
from torch import Tensor

from analyses.results.drawing import Drawing
from analyses.results.figures import plotly_figure
from analyses.results.payload import plain

MAX_LINES = 40
"""The most lines of a summary in the HTML that notebooks show."""

UNITLESS = ("share", "n", "p", "q", "significant")
"""Columns of :func:`analyses.results.effect_frame` that have no unit."""


@dataclass(frozen=True, eq=False)
class SeparatePrompts:
    """Says that the numbers of a prompt are those that an analysis gives of this prompt alone.

    Prompts can then be run in parts, as :func:`analyses.run_in_parts` does.

    Attributes:
        noise: means within ±noise count as zero in p-values.
        metric: the metric of each prompt without a change; ``None`` if there is none.
    """

    noise: float = 0.0
    metric: Float[Tensor, " prompt"] | None = None


class Result(ABC):
    """The result of an analysis: a frozen dataclass of tensors, which pickles and copies.

    Attributes:
        working: names of fields that are not in the payload: objects from which the analysis can
            be resumed, such as a partial sweep.
        effect_unit: the unit of effects, where no field ``unit`` has that of a metric.
        notes: what to know of the numbers, such as what was left out; reports show it.
    """

    working: ClassVar[tuple[str, ...]] = ()
    effect_unit: ClassVar[str] = ""
    notes: tuple[str, ...] = ()

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """The numbers as a tidy table."""

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """Further tables that are written beside that of :meth:`to_frame`, by name."""
        return {}

    def separate_prompts(self) -> SeparatePrompts | None:
        """What lets prompts be run in parts; ``None`` if numbers depend on the other prompts."""
        return None

    def unit_of_column(self, column: str) -> str:
        """The unit of a column of its tables; ``""`` if it has none."""
        return "" if column in UNITLESS else str(getattr(self, "unit", self.effect_unit))

    @abstractmethod
    def drawing(self) -> Drawing:
        """What the figure shows, however it is drawn."""

    def drawings(self) -> dict[str, Drawing]:
        """The drawings that reports show, by name."""
        return {"figure": self.drawing()}

    def figure(self) -> go.Figure:
        """The drawing as a Plotly figure."""
        return plotly_figure(self.drawing())

    @abstractmethod
    def headline(self) -> str:
        """The main finding in one line."""

    def summary(self) -> str:
        """A few lines of text, of which the first is the headline."""
        return self.headline()

    def conclusion(self) -> list[str]:
        """The main finding and how reliable it is, one statement each; reports show these."""
        return [self.headline()]

    def payload(self) -> dict[str, Any]:
        """The fields as plain data, which JSON can hold; see :mod:`analyses.results.payload`."""
        names = (field.name for field in fields(self) if field.name not in self.working)  # pyright: ignore[reportArgumentType] - a dataclass
        return {
            "result": type(self).__name__,
            **{name: plain(getattr(self, name)) for name in names},
        }

    def __repr__(self) -> str:
        """The headline."""
        return f"{type(self).__name__}({self.headline()})"

    def _repr_html_(self) -> str:
        """The summary, as notebooks show it."""
        lines = self.summary().split("\n")
        first = lines[:MAX_LINES]
        if len(lines) > MAX_LINES:
            first.append(f"… and {len(lines) - MAX_LINES} more lines; see .summary()")
        return "<pre>" + escape("\n".join(first)) + "</pre>"
