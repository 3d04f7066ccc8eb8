"""The page of several analyses of one model: for each its conclusion, figures and a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from apps.method_text import method_text, paragraphs, question
from apps.presentation import conclusion, figures, table
from apps.report.analysis import MAX_ROWS, page_figure, title_of
from apps.report.contents import Report
from apps.report.page import page, provenance_facts


@dataclass(frozen=True, eq=False)
class Section:
    """A section of the page.

    Attributes:
        name: of the command that does the same alone.
        report: its result, prompts and facts.
    """

    name: str
    report: Report


def sections_page(sections: Sequence[Section], left_out: Mapping[str, str]) -> str:
    """A report of several analyses as one HTML page.

    Args:
        sections: one or more, of one model, in the order of the page.
        left_out: of sections that this model or its prompts do not allow, why.
    """
    drawn: list[go.Figure] = []
    shown: list[dict[str, Any]] = []
    for section in sections:
        own = figures(section.report.result)
        shown.append(_contents(section, own) | {"first_figure": len(drawn)})
        drawn += [page_figure(figure) for figure in own]
    facts = provenance_facts(sections[0].report.result)
    per_section = ("tokens SHA-256", "metric", "method", "seed")
    facts = {name: value for name, value in facts.items() if name not in per_section}
    return page(
        "sections.html",
        drawn,
        model=facts["model"],
        sections=shown,
        left_out=left_out,
        prompts=(),
        facts=facts,
    )


def _contents(section: Section, drawn: Sequence[go.Figure]) -> dict[str, Any]:
    """What the template shows of a section; titles are read before figures lose them."""
    result = section.report.result
    columns, rows = table(result)
    text = method_text(result)
    return {
        "name": section.name,
        "question": question(text),
        "conclusion": conclusion(result),
        "titles": [title_of(figure) for figure in drawn],
        "columns": columns,
        "rows": rows[:MAX_ROWS],
        "left_out": max(0, len(rows) - MAX_ROWS),
        "summary": result.summary(),
        "method": paragraphs(text),
        "prompts": section.report.prompts,
        "command": section.report.facts["command"],
    }
