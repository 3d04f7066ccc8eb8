"""What a figure shows, however it is drawn: numbers, labels, units and scales.

Results describe their figures so. :mod:`analyses.results.figures` draws a description with Plotly,
and the widget of :mod:`apps.widget` on a canvas.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from math import isfinite, nan
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

Numbers = Tensor | Sequence[Any]
"""Numbers in a tensor or in lists of any depth."""
Side = Literal["above", "below"]
"""A side of zero."""
HELPS: dict[str, Side] = {
    **dict.fromkeys(("loss", "masked loss"), "above"),
    **dict.fromkeys(("logit difference", "logit", "probability", "accuracy"), "below"),
}
"""By metric, the side of zero on which the effect of ablating a component is if it helps."""


@dataclass(frozen=True)
class Scale:
    """The range of values that colours or lengths stand for.

    Attributes:
        kind: ``diverging`` if zero is the middle of the colours, ``sequential`` if it is one end.
        low: the lower end.
        high: the upper end.
        helps: of a diverging scale, the side on which numbers say that a component helps, which has
            one colour in all figures; ``None`` if neither does, which is coloured as ``above``.
    """

    kind: Literal["sequential", "diverging"]
    low: float
    high: float
    helps: Side | None = None

    @classmethod
    def around_zero(cls, values: Numbers, least: float = 0.0, helps: Side | None = None) -> "Scale":
        """From −x to x, where x is the largest absolute value, or ``least`` if that is larger.

        If both are 0, x is 1.
        """
        sizes = torch.as_tensor(values, dtype=torch.float64).abs()
        high = max([least, *sizes[sizes.isfinite()].tolist()]) or 1.0
        return cls("diverging", -high, high, helps)

    @classmethod
    def from_zero(cls, values: Numbers, least: float = 0.0) -> "Scale":
        """From 0 to that x."""
        return cls("sequential", 0.0, cls.around_zero(values, least).high)


PROBABILITIES = Scale("sequential", 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A table of numbers as colours.

    Attributes:
        values: the numbers; the first row is at the top; cells that are not finite stay empty.
        title: title of the figure.
        rows: label of each row.
        columns: label of each column.
        axes: titles of the row axis and the column axis.
        unit: unit of the values, shown beside the colours.
        diverging: centre the colour scale on zero instead of starting it there.
        top: end of the colour scale, to share it between figures; ``None`` takes the largest value.
        places: decimals of the values in hover texts, to share them with a table or a text;
            ``None`` shows three digits of the largest value.
        hover: hover text of each cell, in lines; ``None`` shows row, column and value.
        text: text shown in each cell, such as tokens.
        beside: other numbers of each cell, in the same unit, by name: hover texts show them.
        helps: as for a :class:`Scale`.
    """

    values: Float[Tensor, "row column"]
    _: KW_ONLY
    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    axes: tuple[str, str]
    unit: str
    diverging: bool = False
    top: float | None = None
    places: int | None = None
    hover: Sequence[Sequence[str]] | None = None
    text: Sequence[Sequence[str]] | None = None
    beside: Mapping[str, Float[Tensor, "row column"]] = field(default_factory=dict[str, Tensor])
    helps: Side | None = None

    @property
    def table(self) -> Float[Tensor, "row column"]:
        """The numbers in double precision, on the CPU; NaN where they are not finite."""
        table = self.values.detach().cpu().double()
        return table.where(table.isfinite(), nan)

    @property
    def scale(self) -> Scale:
        """The scale of the colours."""
        numbers = self.values.detach().cpu() if self.top is None else [self.top]
        if self.diverging:
            return Scale.around_zero(numbers, helps=self.helps)
        return Scale.from_zero(numbers)


def cell_heatmap(  # noqa: PLR0913 - labels and units that make a figure readable alone
    values: Float[Tensor, " cell"],
    rows: Sequence[object],
    columns: Sequence[object],
    *,
    title: str,
    axes: tuple[str, str],
    unit: str,
    places: int | None = None,
    helps: Side | None = None,
) -> Heatmap:
    """Heatmap of cells that are given by the labels of their row and column; others stay empty.

    Args:
        values: value of each cell; the scale is centred on zero.
        rows: the row of each cell; rows appear in the order in which they occur first.
        columns: the column of each cell, likewise.
        title: title of the figure.
        axes: titles of the row axis and the column axis.
        unit: unit of the values.
        places: as for a :class:`Heatmap`.
        helps: likewise.
    """
    down, across = (
        {label: n for n, label in enumerate(dict.fromkeys(labels))} for labels in (rows, columns)
    )
    table = values.new_full((len(down), len(across)), nan)
    for row, column, value in zip(rows, columns, values, strict=True):
        table[down[row], across[column]] = value
    return Heatmap(
        table,
        title=title,
        rows=[str(row).strip() for row in down],
        columns=[str(column) for column in across],
        axes=axes,
        unit=unit,
        diverging=True,
        places=places,
        helps=helps,
    )


def token_strips(  # noqa: PLR0913 - as for cells
    values: Sequence[Sequence[float]],
    tokens: Sequence[Sequence[str]],
    *,
    title: str,
    rows: Sequence[str],
    unit: str,
    diverging: bool = False,
    top: float | None = None,
) -> Heatmap:
    """Texts as rows of tokens, each coloured by its value.

    Args:
        values: value of each token; NaN for none.
        tokens: label of each token.
        title: title of the figure.
        rows: label of each text.
        unit: unit of the values.
        diverging: as for a :class:`Heatmap`.
        top: likewise.
    """
    width = max(map(len, tokens))
    table = [[*row, *[nan] * (width - len(row))] for row in values]
    return Heatmap(
        torch.tensor(table, dtype=torch.float64),
        title=title,
        rows=rows,
        columns=[""] * width,
        axes=("text", "tokens around the cell"),
        unit=unit,
        diverging=diverging,
        top=top,
        text=[[*row, *[""] * (width - len(row))] for row in tokens],
    )


@dataclass(frozen=True, eq=False)
class Bars:
    """Horizontal bars, the first at the top, with their intervals.

    Attributes:
        values: length of each bar.
        low: lower end of its interval; NaN for none.
        high: upper end of its interval.
        title: title of the figure.
        labels: label of each bar.
        unit: unit of the values.
        places: as for a :class:`Heatmap`.
        name: what the bars are, in the legend, where there are marks.
        marks: at most three other numbers of each row, in the same unit, by name: drawn over its
            bar as marks of different shapes and colours. NaN for none.
        helps: as for a :class:`Scale`.
    """

    values: Float[Tensor, " cell"]
    low: Float[Tensor, " cell"]
    high: Float[Tensor, " cell"]
    _: KW_ONLY
    title: str
    labels: Sequence[str]
    unit: str
    places: int | None = None
    name: str = ""
    marks: Mapping[str, Float[Tensor, " cell"]] = field(default_factory=dict[str, Tensor])
    helps: Side | None = None

    @property
    def scale(self) -> Scale:
        """The range of zero, the bars, their intervals and marks."""
        numbers = torch.cat([self.values, self.low, self.high, *self.marks.values()])
        low, high = ends([0.0, *numbers.tolist()])
        return Scale("diverging" if low < 0 else "sequential", low, high, self.helps)


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Attributes:
        name: name in the legend.
        x: coordinates along the shared axis.
        y: values.
        faint: whether it is drawn in grey.
    """

    name: str
    x: Sequence[int] | Sequence[float]
    y: Sequence[float]
    faint: bool = False


@dataclass(frozen=True)
class Curves:
    """Line plots in panels, one above the other, over a shared x axis.

    Attributes:
        panels: the lines of each panel, by the title of its y axis; empty panels are left out.
        title: title of the figure.
        axis: title of the shared x axis.
        units: unit of each panel.
        marked: x coordinates of vertical dotted lines.
        log: whether the x axis is logarithmic.
    """

    panels: Mapping[str, Sequence[Curve]]
    _: KW_ONLY
    title: str
    axis: str
    units: Sequence[str]
    marked: Sequence[int] | Sequence[float] = ()
    log: bool = False

    @property
    def filled(self) -> list[tuple[str, str, Sequence[Curve]]]:
        """Title, unit and lines of each panel that is not empty."""
        units = zip(self.panels.items(), self.units, strict=True)
        return [(name, unit, lines) for (name, lines), unit in units if lines]


@dataclass(frozen=True)
class Node:
    """A node of a drawn graph.

    Attributes:
        name: its name; the part before ``@`` is drawn inside it.
        x: its column.
        y: its row; rows are counted from below.
        label: text below its name.
        note: text that is shown when it is pointed at.
    """

    name: str
    x: float
    y: float
    label: str = ""
    note: str = ""

    @property
    def short_name(self) -> str:
        """The name without its position."""
        return self.name.partition("@")[0]

    def read_as(self, letter: str) -> str:
        """The name with the letter of what it reads: ``L1H0.k@3`` for ``L1H0@3``."""
        if not letter:
            return self.name
        return f"{self.short_name}.{letter}{self.name.removeprefix(self.short_name)}"


Line = tuple[int, int, float, str]
"""An edge of a graph: the indices of its nodes, its weight, and the letter by which it is read."""


@dataclass(frozen=True)
class Network:
    """A graph whose lines are as wide as their weights.

    Attributes:
        nodes: the nodes with their places.
        edges: weight of the line between two nodes, by their indices.
        title: title of the figure.
        unit: unit of the weights.
        read_as: weights of further lines, by the letter of what a head reads; those of ``q`` and
            ``k`` are dashed.
        columns: label of each column, if columns have a meaning; columns and rows without a node
            are then left out.
        rows: label of each row, likewise.
        root: index of the node to which all drawn lines lead; ``None`` draws all lines.
        least: absolute weight from which lines are drawn at first.
    """

    nodes: Sequence[Node]
    edges: Mapping[tuple[int, int], float]
    _: KW_ONLY
    title: str
    unit: str
    read_as: Mapping[str, Mapping[tuple[int, int], float]] = field(
        default_factory=dict[str, Mapping[tuple[int, int], float]]
    )
    columns: Sequence[str] = ()
    rows: Sequence[str] = ()
    root: int | None = None
    least: float = 0.0

    @property
    def lines(self) -> list[Line]:
        """All lines, whatever their weights."""
        by_letter = {"": self.edges, **self.read_as}
        return [
            (*ends, weight, letter)
            for letter, weights in by_letter.items()
            for ends, weight in weights.items()
        ]

    @property
    def drawn_lines(self) -> list[Line]:
        """The lines that are drawn at first: large ones that lead to the root by large ones."""
        if self.root is None:
            return self.lines
        large = [line for line in self.lines if abs(line[2]) >= self.least]
        reached, count = {self.root}, 0
        while len(reached) > count:
            count = len(reached)
            reached |= {writer for writer, reader, *_ in large if reader in reached}
        return [line for line in large if line[1] in reached]


@dataclass(frozen=True, eq=False)
class Scatter:
    """Points in a plane, each with a label.

    Attributes:
        x: coordinate across of each point; points that are not finite are left out.
        y: coordinate down.
        title: title of the figure.
        labels: label of each point.
        axes: titles of the two axes.
        units: units of the two axes.
        groups: group of each point, which its colour shows, in the order of a sequence such as
            layers; empty for none.
    """

    x: Float[Tensor, " point"]
    y: Float[Tensor, " point"]
    _: KW_ONLY
    title: str
    labels: Sequence[str]
    axes: tuple[str, str]
    units: tuple[str, str]
    groups: Sequence[str] = ()

    @property
    def points(self) -> list[tuple[float, float, str, str]]:
        """Coordinates, label and group of each finite point."""
        groups = self.groups or [""] * len(self.labels)
        xs, ys = (values.detach().cpu().double().tolist() for values in (self.x, self.y))
        each = zip(xs, ys, self.labels, groups, strict=True)
        return [point for point in each if isfinite(point[0]) and isfinite(point[1])]


Drawing = Heatmap | Bars | Curves | Network | Scatter


def ends(values: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest finite number; zeros if there is none."""
    finite = [value for value in values if isfinite(value)]
    return min(finite, default=0.0), max(finite, default=0.0)
