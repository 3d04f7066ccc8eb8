"""The HTML report of a head ablation: one file without remote assets.

The conclusion, the tables and the prompts are plain HTML and need no script. Jinja escapes every
text; a content security policy allows only the scripts inlined here, by their hashes.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from analyses import HeadAblation
from apps.figure_layout import PLOTLY_CONFIG, apply_page_layout
from apps.report.strip import StripPlot, strip_plot
from apps.wording import (
    HeadEffect,
    conclusion,
    decimals,
    explanation,
    ranked_heads,
    role,
    signed,
)

HERE = Path(__file__).parent
TOP = 8
"""Heads in the strip plot."""
OPEN_ROWS = 12
"""Heads and prompts listed before the rest is collapsed."""


@dataclass(frozen=True)
class ReportPrompt:
    """A prompt in a report.

    Attributes:
        tokens: printable labels of its tokens.
        target: printable label of the target, if the metric reads one.
        distractor: printable label of the distractor, likewise.
    """

    tokens: tuple[str, ...]
    target: str | None = None
    distractor: str | None = None


@dataclass(frozen=True, eq=False)
class Report:
    """The contents of a report.

    Attributes:
        result: the ablation.
        prompts: in the order of the result.
        facts: entries listed beside the result's provenance.
    """

    result: HeadAblation
    prompts: Sequence[ReportPrompt]
    facts: dict[str, str]


def write_report(report: Report, path: Path) -> None:
    """Write the report as one HTML file; what UTF-8 lacks (of a path) is written as an escape."""
    path.write_text(to_html(report), encoding="utf-8", errors="backslashreplace")


def to_html(report: Report) -> str:
    """The report as one HTML page."""
    result = report.result
    heads = ranked_heads(result)
    places = decimals(heads)
    plotly, script = _script(get_plotlyjs()), _script(_asset("page.js"))
    style = Markup(_asset("page.css"))
    page = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("page.html")
    return page.render(
        model=result.provenance.model,
        metric=result.metric,
        unit=result.unit,
        method=result.method,
        conclusion=conclusion(result),
        explanation=explanation(result),
        notes=result.notes,
        rows=[_row(head, places, result.metric) for head in heads],
        open_rows=OPEN_ROWS,
        figure=_json_for_script(
            {**json.loads(_heatmap(result).to_json() or "{}"), "config": PLOTLY_CONFIG}
        ),
        strip_plot=_strip_plot(result, heads, places),
        prompts=[
            {**vars(prompt), "clean": f"{clean:.3g} {result.unit}"}
            for prompt, clean in zip(report.prompts, result.clean.tolist(), strict=True)
        ],
        facts={**report.facts, **_provenance(result)},
        policy=_policy([plotly, script]),
        plotly=plotly,
        script=script,
        style=style,
    )


def _row(head: HeadEffect, places: int, metric: str) -> dict[str, str | bool]:
    return {
        "name": head.name,
        "effect": signed(head.effect, places),
        "interval": head.interval(places),
        "size": signed(head.size, places).lstrip("+"),
        "q": head.corrected(),
        "matters": head.matters,
        "role": role(head, metric),
    }


def _strip_plot(result: HeadAblation, heads: list[HeadEffect], places: int) -> StripPlot:
    effect = result.effect
    shown = [head for head in heads if not isnan(head.effect)][:TOP]
    values = {
        head.name: [float(x) for x in effect[head.layer, head.head].tolist()] for head in shown
    }
    return strip_plot(shown, values, result.unit, places)


def _heatmap(result: HeadAblation) -> go.Figure:
    height = min(900, 150 + 34 * result.ablated.shape[0])
    return apply_page_layout(result.figure(), height, gap=1)


def _provenance(result: HeadAblation) -> dict[str, str]:
    origin = result.provenance
    agreement = origin.agreement
    return {
        "model": origin.model,
        "weights SHA-256": origin.weights,
        "tokens SHA-256": origin.tokens,
        "method": result.method,
        "metric": f"{result.metric}, {result.unit}",
        "dtype, device": f"{origin.dtype} (products {origin.precision}), {origin.device}",
        "kernels": f"attention {origin.kernel}, products {origin.products}",
        "seed": str(origin.seed),
        **(
            {}
            if agreement is None
            else {"difference from the model it was loaded from": f"{agreement:.1e}"}
        ),
        "versions": ", ".join(f"{name} {number}" for name, number in origin.versions.items()),
    }


def _json_for_script(values: dict[str, Any]) -> Markup:
    """JSON in a script element, with ``<``, ``>`` and ``&`` escaped so that it can't end early."""
    text = json.dumps(values, ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _policy(scripts: Sequence[str]) -> str:
    """The content security policy: these scripts, inline styles and data images, nothing else.

    Styles have no hash, since Plotly adds its own when it draws; they can't load anything.
    """
    allowed = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        f"img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _hash(inlined: str) -> str:
    digest = hashlib.sha256(inlined.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _script(source: str) -> Markup:
    """A script to inline, with LF line ends, since browsers normalise them before hashing."""
    return Markup(source.replace("\r\n", "\n").replace("\r", "\n"))


def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
