"""The questions of a page, as Python code and as files: table, data with provenance, report."""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from analyses.result import Result
from apps.explorer.questions import Question
from apps.report import Report, to_html

NO_NAME = re.compile(r"[^\w.@-]+")
"""What a file's name does without."""
OPENED = "code_and_files"
"""Whether the expander is open, in the session's state."""


def show_code_and_files(questions: Mapping[str, Question], results: Mapping[str, Result]) -> None:
    """The expander below a page's views: for each question its code, and files of its result.

    Its contents come when it is opened, and files are made when they are asked for.
    """
    expander = st.expander("as Python, and downloads", key=OPENED, on_change="rerun")
    if not expander.open:
        return
    with expander:
        for name, question in questions.items():
            st.code(question.code(), "python")
            if name in results:
                _offer_files(name, question, results[name])


def _offer_files(name: str, question: Question, result: Result) -> None:
    with st.container(horizontal=True):
        for ending, make in files_of(question, result).items():
            st.download_button(
                ending.upper(),
                make,
                file_name(question, ending),
                key=f"download_{name}_{ending}",
                on_click="ignore",
            )


def files_of(question: Question, result: Result) -> dict[str, Callable[[], str]]:
    """What makes each file of a result, by the ending of its name."""
    return {
        "csv": partial(_csv, result),
        "json": partial(_json, question, result),
        "html": partial(_html, question, result),
    }


def file_name(question: Question, ending: str) -> str:
    """A name that says the analysis and the model."""
    return f"{NO_NAME.sub('-', f'{question.name}-{question.model}').strip('-')}.{ending}"


def _csv(result: Result) -> str:
    return result.to_frame().to_csv(index=False)


def _json(question: Question, result: Result) -> str:
    return json.dumps({"code": question.code(), **result.payload()}, indent=1)


def _html(question: Question, result: Result) -> str:
    return to_html(Report(result, (), {"code": question.code()}))
