"""The report page of several analyses of one model: conclusion, figures and table of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.method_text import method_text, paragraphs, question
from apps.presentation import conclusion, table
from apps.report.analysis import MAX_ROWS
from apps.report.contents import Report
from apps.report.page import page, payload_of, provenance_facts
from apps.report.views import figure_views


@dataclass(frozen=True, eq=False)
class Section:
    """A section of the page.

    Attributes:
        name: the name of the command of the analysis.
        report: the result, prompts and facts of the analysis.
    """

    name: str
    report: Report


def sections_page(sections: Sequence[Section], left_out: Mapping[str, str]) -> str:
    """A report of several analyses as one HTML page.

    Args:
        sections: one or more, of one model, in the order of the page.
        left_out: the reason for each section that this model or its prompts do not allow.
    """
    mounts = {
        section.name: payload_of(section.report, figure_views(section.report.result, section.name))
        for section in sections
    }
    facts = provenance_facts(sections[0].report.result)
    per_section = ("tokens SHA-256", "metric", "method", "seed")
    facts = {name: value for name, value in facts.items() if name not in per_section}
    return page(
        "sections.html",
        mounts,
        model=facts["model"],
        sections=[_contents(section) for section in sections],
        left_out=left_out,
        prompts=(),
        facts=facts,
    )


def _contents(section: Section) -> dict[str, Any]:
    """The variables of the template for a section."""
    result = section.report.result
    columns, rows = table(result)
    text = method_text(result)
    return {
        "name": section.name,
        "question": question(text),
        "conclusion": conclusion(result),
        "columns": columns,
        "rows": rows[:MAX_ROWS],
        "left_out": max(0, len(rows) - MAX_ROWS),
        "summary": result.summary(),
        "method": paragraphs(text),
        "prompts": section.report.prompts,
        "command": section.report.facts["command"],
    }
