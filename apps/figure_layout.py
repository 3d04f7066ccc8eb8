"""Layout of an analysis's heatmap on a page: no title, few tick labels, any width."""

from typing import Any

import plotly.graph_objects as go

MAX_LABELS = {"bottom": 18, "left": 32}
"""Tick labels that a side has room for; hovering over a cell shows the others."""
MAX_HORIZONTAL = 2
"""Characters of a tick label below a figure that is not turned upright."""
PLOTLY_CONFIG: dict[str, Any] = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtons": [["toImage", "resetScale2d"]],
}
"""Plotly's settings: an image can be saved; no button sends data anywhere."""


def apply_page_layout(figure: go.Figure, height: int, gap: int = 0) -> go.Figure:
    """The figure without its title, with a thin colour bar and fewer tick labels.

    Args:
        figure: a heatmap; it is changed in place.
        height: in pixels.
        gap: between cells, in pixels.
    """
    heatmap: Any = figure.data[0]
    unit = heatmap.colorbar.title.text
    figure.update_layout(title=None, height=height, margin={"l": 20, "r": 0, "t": 30, "b": 20})
    # Above the bar: beside it, the unit would overlap the numbers.
    bar = {"title": {"text": unit, "side": "top"}, "thickness": 14, "outlinewidth": 0}
    figure.update_traces(colorbar=bar, xgap=gap, ygap=gap)
    layout: Any = figure.layout
    for axis in (layout.xaxis, layout.yaxis):
        below = axis.side == "bottom"
        step = -(-len(axis.tickvals) // MAX_LABELS["bottom" if below else "left"])
        longest = max(len(label) for label in axis.ticktext)
        axis.update(
            tickvals=axis.tickvals[::step],
            ticktext=axis.ticktext[::step],
            automargin=True,
            tickangle=-90 if below and longest > MAX_HORIZONTAL else 0,
            title={"standoff": 8},
        )
    return figure
