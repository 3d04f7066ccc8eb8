"""The page Report: saved reports of analyses; a click on a head opens it on the page Heads."""

from collections.abc import Mapping
from dataclasses import replace

import streamlit as st

import interp
from analyses.results import Result
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.controls import choose
from apps.explorer.default_views import default_view
from apps.explorer.messages import escape_markdown
from apps.explorer.offered import is_offered, name_of
from apps.explorer.opened import reports
from apps.explorer.page import Ask, Page
from apps.explorer.view import Head, View, heads_in
from apps.report.written import Written


def asks(_view: View, _model: interp.Transformer) -> list[Ask]:
    """No questions, since everything shown was computed before."""
    return []


def views(view: View, _model: interp.Transformer, _results: Mapping[str, Result]) -> list[ViewData]:
    """The figures and tables of the chosen report, in which heads can be clicked."""
    picks = {"table": "row"}
    return [
        {**drawing, "pick": drawing.get("pick") or picks.get(drawing["kind"], "cell")}
        for drawing in report_of(view).views
    ]


def on_pick(view: View, pick: Pick) -> View:
    """Open a head of the report on the page Heads, in the report's model if that is offered."""
    named = heads_in(str(pick.get("name", "")))
    head = Head(pick["row"], pick["column"]) if pick["pick"] == "head" else [None, *named][-1]
    if head is None:
        return view
    model = name_of(report_of(view).model)
    if model == view.model or not is_offered(model):
        return replace(view, page="heads", head=head)
    return replace(default_view(model), report=view.report, head=head)


def controls(view: View, _model: interp.Transformer) -> None:
    """The choice of the report, and its conclusion and command."""
    with st.container():
        choose("Report", "report", [*reports()], widget="selectbox")
        report = report_of(view)
        if not is_offered(name_of(report.model)):
            name = escape_markdown(report.model)
            st.warning(
                f"This is a report on {name}, which is not available here. To look at its heads, "
                "start interp explore with --model."
            )
        st.markdown(escape_markdown(report.conclusion))
        if "command" in report.facts:
            st.code(report.facts["command"], None, wrap_lines=True)


def report_of(view: View) -> Written:
    """The report that a view names; the first one if it names none."""
    written = reports()
    return written.get(view.report) or next(iter(written.values()))


REPORT = Page("report", "Report", asks, views, on_pick, controls, reads_prompt=False)
