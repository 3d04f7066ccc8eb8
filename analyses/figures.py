"""How do results look? The one module that knows colours, fonts and templates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots
from torch import Tensor

TEMPLATE = "plotly_white"
SEQUENTIAL = "Cividis"
"""From nothing to much; readable without colour vision."""
DIVERGING = "PuOr_r"
"""Below and above zero; purple and orange stay apart without colour vision."""
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Of curves: told apart without colour vision (Okabe and Ito 2008)."""
FAINT = "#b8bfca"
FONT = "system-ui, sans-serif"


def heatmap(  # noqa: PLR0913 - what a figure needs so that it can be read alone
    values: Float[Tensor, "row column"],
    *,
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    axes: tuple[str, str],
    unit: str,
    diverging: bool = False,
    top: float | None = None,
    hover: Sequence[Sequence[str]] | None = None,
) -> go.Figure:
    """A table of numbers as colours.

    Args:
        values: what is shown; the first row stands on top.
        title: what it shows.
        rows: label of each row.
        columns: label of each column.
        axes: what rows and columns are.
        unit: of the values, at the colour bar.
        diverging: centre the colours on zero; else they begin there.
        top: where the colours end, to share a scale between figures; ``None`` takes the largest.
        hover: what each cell says when pointed at; ``None`` gives row, column and value.
    """
    table = values.detach().cpu().double()
    largest = top if top is not None else float(table.abs().max()) or 1.0
    figure = go.Figure(
        go.Heatmap(
            z=table.tolist(),
            zmin=-largest if diverging else 0.0,
            zmax=largest,
            colorscale=DIVERGING if diverging else SEQUENTIAL,
            colorbar={"title": {"text": unit, "side": "right"}},
            hovertext=hover,
            hovertemplate=None if hover is None else "%{hovertext}<extra></extra>",
        )
    )
    if hover is None:
        figure.update_traces(
            hovertemplate=f"{axes[0]} %{{y}}, {axes[1]} %{{x}}: %{{z:.4g}} {unit}<extra></extra>"
        )
    figure.update_layout(**_layout(title))
    figure.update_xaxes(title=axes[1], **_ticks(columns), side="bottom", constrain="domain")
    figure.update_yaxes(title=axes[0], **_ticks(rows), autorange="reversed")
    return figure


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Attributes:
        name: what it is.
        x: where.
        y: how much.
        faint: drawn behind the others, without colour.
    """

    name: str
    x: Sequence[int] | Sequence[float]
    y: Sequence[float]
    faint: bool = False


def curves(
    panels: Mapping[str, Sequence[Curve]],
    *,
    title: str,
    axis: str,
    units: Sequence[str],
    marked: Sequence[int] | Sequence[float] = (),
) -> go.Figure:
    """Lines over one axis, in panels one above the other.

    Args:
        panels: the lines of each, by what its axis is.
        title: what they show.
        axis: what they go over.
        units: of each panel.
        marked: where dotted lines stand.
    """
    shown = [(name, unit) for name, unit in zip(panels, units, strict=True) if panels[name]]
    figure = make_subplots(len(shown), 1, shared_xaxes=True, vertical_spacing=0.08)
    colours = cycle(LINES)
    for row, (name, unit) in enumerate(shown, 1):
        for curve in panels[name]:
            colour = FAINT if curve.faint else next(colours)
            line = go.Scatter(
                x=list(curve.x), y=list(curve.y), name=escaped(curve.name), line={"color": colour}
            )
            figure.add_trace(line, row=row, col=1)
        figure.update_yaxes(title=f"{name} ({unit})", row=row, col=1)
    figure.update_xaxes(title=axis, row=len(shown), col=1)
    for place in marked:
        figure.add_vline(place, line={"dash": "dot", "width": 1, "color": FAINT})
    figure.update_layout(**_layout(title), legend={"orientation": "h", "y": -0.2})
    return figure


def escaped(label: str) -> str:
    """A label as text: Plotly reads a little HTML, and tokens may contain it."""
    return label.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _ticks(labels: Sequence[str]) -> dict[str, Any]:
    """Labels at their indices: equal labels stay apart."""
    texts = [escaped(label) for label in labels]
    return {"tickmode": "array", "tickvals": list(range(len(texts))), "ticktext": texts}


def _layout(title: str) -> dict[str, Any]:
    return {
        "template": TEMPLATE,
        "title": {"text": escaped(title), "x": 0.0, "xanchor": "left"},
        "font": {"family": FONT, "size": 13, "color": "#1f2430"},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 80, "r": 20, "t": 60, "b": 70},
    }
