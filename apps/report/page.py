"""The parts that all reports share: the page, its scripts and their policy, the provenance."""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analyses.results import Result
from apps.presentation import conclusion, provenance_of
from apps.report.contents import Report
from apps.widget import bundle
from apps.widget import style as widget_style
from apps.widget.pictures import View
from interp import __version__

HERE = Path(__file__).parent
OPEN_ROWS = 12
"""Number of rows and prompts that are shown before the rest is collapsed."""
SCRIPT, STYLE = "interp.js", "interp.css"
"""Files of a site, beside its pages."""
LINKED = "'self' file:"
"""Their source: that of the page, which may be opened from a file."""


def render(
    template: str, report: Report, mounts: Mapping[str, list[View]], **contents: object
) -> str:
    """Render the page of one result.

    Args:
        template: the file name of the template.
        report: the contents of the report.
        mounts: the views shown in each element, by the ``data-views`` of the element.
        contents: further variables of this template.
    """
    result = report.result
    model = provenance_of(result).model
    return page(
        template,
        {name: payload_of(report, views) for name, views in mounts.items()},
        model=model,
        conclusion=conclusion(result),
        prompts=report.prompts,
        home=report.home,
        facts={**report.facts, **provenance_facts(result)},
        **contents,
    )


def payload_of(report: Report, views: list[View]) -> dict[str, Any]:
    """The payload of one mount of the widget: its views, and the metadata of saved pictures."""
    meta = {
        "model": provenance_of(report.result).model,
        "n": len(report.prompts) or None,
        "version": f"interp {__version__}",
    }
    return {"views": views, "meta": meta}


def page(template: str, mounts: Mapping[str, dict[str, Any]], **contents: object) -> str:
    """Render a page.

    Args:
        template: the file name of the template.
        mounts: payloads of the widget, by the ``data-views`` of their elements.
        contents: variables of the template.
    """
    script = _inlined(bundle("report") + _asset("page.js"))
    style = _inlined(_asset("page.css") + widget_style())
    policy = _policy(_hash(script), _hash(style))
    return _rendered(template, mounts, contents, policy=policy, script=script, style=style)


def linked_page(
    template: str, mounts: Mapping[str, dict[str, Any]], root: str, **contents: object
) -> str:
    """Render a page of a site whose script and style sheet are files: see :func:`linked_files`.

    Args:
        template: the file name of the template.
        mounts: payloads of the widget, by the ``data-views`` of their elements.
        root: the address of the folder of the site, ``""`` or ``"../"``.
        contents: variables of the template.
    """
    return _rendered(template, mounts, contents, policy=_policy(LINKED, LINKED), root=root)


def linked_files() -> dict[str, str]:
    """The script and the style sheet of :func:`linked_page`, by the names of their files."""
    return {SCRIPT: bundle("site"), STYLE: _asset("page.css") + widget_style()}


def _rendered(
    template: str,
    mounts: Mapping[str, dict[str, Any]],
    contents: Mapping[str, object],
    **assets: object,
) -> str:
    return (
        _environment()
        .get_template(template)
        .render(
            **{"home": "", **contents},
            open_rows=OPEN_ROWS,
            mounts={name: _json_for_script(data) for name, data in mounts.items()},
            **assets,
        )
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def provenance_facts(result: Result) -> dict[str, str]:
    """The entries of a result's provenance that a page lists."""
    origin = provenance_of(result)
    fields = vars(result)
    method = {"method": str(fields["method"])} if "method" in fields else {}
    metric = {"metric": f"{fields['metric']}, {fields['unit']}"} if "metric" in fields else {}
    chosen = "" if origin.kernel_choice is None else f" ({origin.kernel_choice})"
    loaded = {"difference from the model it was loaded from": f"{origin.agreement or 0:.1e}"}
    return {
        "model": origin.model,
        "weights SHA-256": origin.weights,
        "tokens SHA-256": origin.tokens,
        **({} if origin.lens is None else {"lens SHA-256": origin.lens}),
        **method,
        **metric,
        "dtype, device": f"{origin.dtype} (products {origin.precision}), {origin.device}",
        "kernels": f"attention {origin.kernel}, products {origin.products}{chosen}",
        "seed": str(origin.seed),
        **({} if origin.agreement is None else loaded),
        "versions": ", ".join(f"{name} {number}" for name, number in origin.versions.items()),
    }


def _json_for_script(values: dict[str, Any]) -> Markup:
    """JSON for a script element, with ``<``, ``>`` and ``&`` escaped so that it can't end early."""
    text = json.dumps(values, ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _policy(scripts: str, styles: str) -> str:
    """The content security policy: these scripts, these style sheets, nothing else."""
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; "
        f"base-uri 'none'; form-action 'none'"
    )


def _hash(inlined: str) -> str:
    digest = hashlib.sha256(inlined.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _inlined(source: str) -> Markup:
    """A text to inline, with LF line ends, since browsers normalize them before hashing."""
    return Markup(source.replace("\r\n", "\n").replace("\r", "\n"))


def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
