"""What every report has: the page, its scripts and their policy, the provenance."""

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from analyses.result import Result
from apps.figure_layout import PLOTLY_CONFIG
from apps.presentation import conclusion, provenance_of
from apps.report.contents import Report

HERE = Path(__file__).parent
OPEN_ROWS = 12
"""Rows and prompts listed before the rest is collapsed."""


def render(template: str, report: Report, figures: Sequence[go.Figure], **contents: object) -> str:
    """The page of one result from its template.

    Args:
        template: its file name.
        report: what it shows.
        figures: the first is drawn in the element ``map-0``, and so on.
        contents: what this template has beside the others.
    """
    result = report.result
    return page(
        template,
        figures,
        model=provenance_of(result).model,
        conclusion=conclusion(result),
        prompts=report.prompts,
        facts={**report.facts, **provenance_facts(result)},
        **contents,
    )


def page(template: str, figures: Sequence[go.Figure], **contents: object) -> str:
    """A page from its template.

    Args:
        template: its file name.
        figures: the first is drawn in the element ``map-0``, and so on.
        contents: what the template names.
    """
    plotly, script = _script(get_plotlyjs()), _script(_asset("page.js"))
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(
        **contents,
        open_rows=OPEN_ROWS,
        figures=[
            _json_for_script({**json.loads(figure.to_json() or "{}"), "config": PLOTLY_CONFIG})
            for figure in figures
        ],
        policy=_policy([plotly, script]),
        plotly=plotly,
        script=script,
        style=Markup(_asset("page.css")),
    )


def provenance_facts(result: Result) -> dict[str, str]:
    """What a page lists of a result's provenance."""
    origin = provenance_of(result)
    fields = vars(result)
    method = {"method": str(fields["method"])} if "method" in fields else {}
    metric = {"metric": f"{fields['metric']}, {fields['unit']}"} if "metric" in fields else {}
    loaded = {"difference from the model it was loaded from": f"{origin.agreement or 0:.1e}"}
    return {
        "model": origin.model,
        "weights SHA-256": origin.weights,
        "tokens SHA-256": origin.tokens,
        **({} if origin.lens is None else {"lens SHA-256": origin.lens}),
        **method,
        **metric,
        "dtype, device": f"{origin.dtype} (products {origin.precision}), {origin.device}",
        "kernels": f"attention {origin.kernel}, products {origin.products}",
        "seed": str(origin.seed),
        **({} if origin.agreement is None else loaded),
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
