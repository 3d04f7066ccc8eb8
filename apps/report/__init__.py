"""Which heads matter, as one file that opens anywhere: no network, no server, no remote asset.

The answer, the table and the prompts are plain HTML and need no script. Jinja escapes every text;
a content security policy lets run what is inlined here, known by its hash, and nothing else.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from analyses import HeadAblation
from apps.figure_layout import CHART, fitted
from apps.report.strip import Strip, strips
from apps.wording import Head, answer, decimals, heads_of, reading, role, signed

HERE = Path(__file__).parent
TOP = 8
"""How many heads are shown prompt by prompt."""
OPEN_ROWS = 12
"""How many heads and prompts are shown before the rest is folded."""


@dataclass(frozen=True)
class Shown:
    """A prompt as the report shows it.

    Attributes:
        tokens: one visible label a token.
        target: what should follow, visibly.
        distractor: what it is compared with.
    """

    tokens: tuple[str, ...]
    target: str | None = None
    distractor: str | None = None


@dataclass(frozen=True, eq=False)
class Report:
    """All that goes into a report.

    Attributes:
        result: the ablation.
        prompts: what was read, in the order of the result.
        facts: where the numbers come from, besides the result's own provenance.
    """

    result: HeadAblation
    prompts: Sequence[Shown]
    facts: dict[str, str]


def write_report(report: Report, path: Path) -> None:
    """Write the report as one HTML file."""
    path.write_text(to_html(report), encoding="utf-8")


def to_html(report: Report) -> str:
    """The report as one HTML page."""
    result = report.result
    heads = heads_of(result)
    places = decimals(heads)
    plotly, boot = _script(get_plotlyjs()), _script(_text("page.js"))
    style = Markup(_text("page.css"))
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
        answer=answer(result),
        reading=reading(result),
        rows=[_row(head, places, result.metric) for head in heads],
        open_rows=OPEN_ROWS,
        figure=_data({**json.loads(_map(result).to_json() or "{}"), "config": CHART}),
        strips=_strips(result, heads, places),
        prompts=[
            {"shown": shown, "clean": f"{clean:.3g} {result.unit}"}
            for shown, clean in zip(report.prompts, result.clean.tolist(), strict=True)
        ],
        facts={**report.facts, **_provenance(result)},
        policy=_policy([plotly, boot]),
        plotly=plotly,
        boot=boot,
        style=style,
    )


def _row(head: Head, places: int, metric: str) -> dict[str, str | bool]:
    return {
        "name": head.name,
        "effect": signed(head.effect, places),
        "interval": f"{signed(head.low, places)} to {signed(head.high, places)}",
        "matters": head.matters,
        "role": role(head, metric),
    }


def _strips(result: HeadAblation, heads: list[Head], places: int) -> Strip:
    effect = result.effect
    values = {
        head.name: [float(x) for x in effect[head.layer, head.head].tolist()]
        for head in heads[:TOP]
    }
    return strips(heads[:TOP], values, result.unit, places)


def _map(result: HeadAblation) -> go.Figure:
    height = min(900, 150 + 34 * result.ablated.shape[0])
    return fitted(result.figure(), height, gap=1)


def _provenance(result: HeadAblation) -> dict[str, str]:
    known = result.provenance
    loaded = known.agreement
    return {
        "model": known.model,
        "weights SHA-256": known.weights,
        "tokens SHA-256": known.tokens,
        "method": result.method,
        "metric": f"{result.metric}, {result.unit}",
        "dtype, device": f"{known.dtype} (products {known.precision}), {known.device}",
        "kernels": f"attention {known.kernel}, products {known.products}",
        "seed": str(known.seed),
        **({} if loaded is None else {"off the model it was loaded from": f"{loaded:.1e}"}),
        "versions": ", ".join(f"{name} {number}" for name, number in known.versions.items()),
    }


def _data(values: dict[str, Any]) -> Markup:
    """JSON for a script element: no ``<`` can end the element early."""
    described = json.dumps(values, ensure_ascii=True)
    return Markup(described.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _policy(scripts: Sequence[str]) -> str:
    """What a browser may do with the page: run these scripts, style, draw, and nothing else.

    Styles are not held to a hash, since Plotly writes its own as it draws; they can fetch nothing.
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
    """A script to be inlined; a browser hashes it with line feeds for all line ends."""
    return Markup(source.replace("\r\n", "\n").replace("\r", "\n"))


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
