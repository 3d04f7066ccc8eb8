"""The report page of any analysis: conclusion, table, figures and method."""

import re

from apps.method_text import kind_of, method_text, paragraphs, question
from apps.presentation import table
from apps.report.contents import Report
from apps.report.page import render
from apps.report.views import figure_views

MAX_ROWS = 500
"""Largest number of rows of the table on the page."""


def analysis_page(report: Report) -> str:
    """The report of an analysis as one HTML page."""
    result = report.result
    columns, rows = table(result)
    text, views = method_text(result), figure_views(result)
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind_of(result).__name__).capitalize()
    return render(
        "analysis.html",
        report,
        {"figures": views},
        kind=kind,
        question=question(text),
        columns=columns,
        rows=rows[:MAX_ROWS],
        left_out=max(0, len(rows) - MAX_ROWS),
        summary=result.summary(),
        method=paragraphs(text),
        several=len(views) > 1,
    )
