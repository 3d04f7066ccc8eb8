"""The HTML report of an analysis: one file without remote assets.

The conclusion, the tables and the prompts are plain HTML and need no script. Jinja escapes all
text; a content security policy allows only the inlined scripts, by their hashes.
"""

from pathlib import Path

from analyses import Ablation
from apps.report.analysis import analysis_page
from apps.report.contents import Report, ReportPrompt
from apps.report.head_site import write_head_site
from apps.report.heads import heads_page
from apps.report.story import StoryFigures, StorySection, story_page

__all__ = [
    "Report",
    "ReportPrompt",
    "StoryFigures",
    "StorySection",
    "story_page",
    "to_html",
    "write_head_site",
    "write_report",
]


def write_report(report: Report, path: Path) -> None:
    """Write the report as one HTML file; parts of a path that are not UTF-8 are escaped."""
    path.write_text(to_html(report), encoding="utf-8", errors="backslashreplace")


def to_html(report: Report) -> str:
    """The report as one HTML page."""
    if isinstance(report.result, Ablation) and report.result.by_layer:
        return heads_page(report, report.result)
    return analysis_page(report)
