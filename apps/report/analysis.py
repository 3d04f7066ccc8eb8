"""The page of any analysis: its conclusion, a table, its figure, and how it is computed."""

import re
from html import unescape
from typing import Any

import plotly.graph_objects as go

from apps.figure_layout import apply_page_layout, is_heatmap
from apps.method_text import method_text, paragraphs, question
from apps.presentation import figures, table
from apps.report.contents import Report
from apps.report.page import render

MAX_ROWS = 500
"""Rows of the table on the page."""
HEIGHT = 520
"""Of a figure that is no heatmap, in pixels."""


def analysis_page(report: Report) -> str:
    """The report of an analysis as one HTML page."""
    result = report.result
    columns, rows = table(result)
    drawn, text = figures(result), method_text(result)
    titles = [title_of(figure) for figure in drawn]
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(result).__name__).capitalize()
    return render(
        "analysis.html",
        report,
        [page_figure(figure) for figure in drawn],
        kind=kind,
        question=question(text),
        columns=columns,
        rows=rows[:MAX_ROWS],
        left_out=max(0, len(rows) - MAX_ROWS),
        summary=result.summary(),
        method=paragraphs(text),
        titles=titles,
    )


def title_of(figure: Any) -> str:  # noqa: ANN401 - plotly has no types
    """The title of a figure as text."""
    return unescape(figure.layout.title.text or "")


def page_figure(figure: go.Figure) -> go.Figure:
    """A figure as it stands on a page, where its title is text."""
    if is_heatmap(figure):
        heatmap: Any = figure.data[0]
        rows = len(heatmap.z)
        return apply_page_layout(figure, min(900, 150 + 34 * rows), gap=1)
    return figure.update_layout(title=None, height=HEIGHT, margin={"t": 30})
