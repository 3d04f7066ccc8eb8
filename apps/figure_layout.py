"""How does an analysis's figure sit on a page? Under the page's own heading, however narrow."""

from typing import Any

import plotly.graph_objects as go

LABELS = {"bottom": 18, "left": 32}
"""As many tick labels as a side has room for; pointing at a cell tells the others."""
SHORT = 2
"""Longer labels below a figure stand upright."""
CHART: dict[str, Any] = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtons": [["toImage", "resetScale2d"]],
}
"""Plotly's settings: a picture can be saved, nothing is sent anywhere."""


def fitted(figure: go.Figure, height: int, gap: int = 0) -> go.Figure:
    """The figure without its title, so high, its colour bar slim and its labels few enough.

    Args:
        figure: a heatmap; it is changed.
        height: in pixels.
        gap: between cells, in pixels.
    """
    drawn: Any = figure.data[0]
    unit = drawn.colorbar.title.text
    figure.update_layout(title=None, height=height, margin={"l": 20, "r": 0, "t": 30, "b": 20})
    # Above the bar: beside it, it would lie over the numbers.
    bar = {"title": {"text": unit, "side": "top"}, "thickness": 14, "outlinewidth": 0}
    figure.update_traces(colorbar=bar, xgap=gap, ygap=gap)
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        below = axis.side == "bottom"
        step = -(-len(axis.tickvals) // LABELS["bottom" if below else "left"])
        longest = max(len(label) for label in axis.ticktext)
        axis.update(
            tickvals=axis.tickvals[::step],
            ticktext=axis.ticktext[::step],
            automargin=True,
            tickangle=-90 if below and longest > SHORT else 0,
            title={"standoff": 8},
        )
    return figure
