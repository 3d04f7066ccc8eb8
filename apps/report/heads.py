"""The report page of a head ablation: table and map of heads, and a strip plot over prompts."""

from math import isnan

from analyses import Ablation
from analyses.results import fixed, percent, signed
from apps.report.contents import Report
from apps.report.page import render
from apps.report.strip import StripPlot, strip_plot
from apps.report.views import figure_views
from apps.wording import HeadEffect, decimals, explanation, ranked_heads, role

TOP = 8
"""Number of heads in the strip plot."""


def heads_page(report: Report, result: Ablation) -> str:
    """The report of a head ablation as one HTML page."""
    heads = ranked_heads(result)
    places = decimals(heads)
    return render(
        "heads.html",
        report,
        {"map": figure_views(result, "map")},
        metric=result.metric,
        unit=result.unit,
        method=result.method,
        explanation=explanation(result),
        notes=result.notes,
        rows=[_row(head, places, result.metric) for head in heads],
        strip_plot=_strip_plot(result, heads, places),
    )


def _row(head: HeadEffect, places: int, metric: str) -> dict[str, str | bool]:
    return {
        "name": head.name,
        "effect": signed(head.effect, places),
        "interval": head.interval(places),
        "size": fixed(head.size, places),
        "share": percent(head.share),
        "q": head.corrected(),
        "significant": head.significant,
        "role": role(head, metric),
    }


def _strip_plot(result: Ablation, heads: list[HeadEffect], places: int) -> StripPlot:
    effect = result.effect
    largest = [head for head in heads if not isnan(head.effect)][:TOP]
    values = {
        head.name: [float(x) for x in effect[head.layer, head.head].tolist()] for head in largest
    }
    return strip_plot(largest, values, result.unit, places)
