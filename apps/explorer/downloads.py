"""The questions of a page as Python code, and their results as files: CSV, JSON, HTML report."""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from analyses.results import Result
from apps.csv_text import csv_text
from apps.explorer.offered import source_of
from apps.explorer.questions import Question
from apps.report import Report, to_html

NO_NAME = re.compile(r"[^\w.@-]+")
"""Characters that are replaced in file names."""
OPENED = "code_and_files"
"""Key of the expander in the session state."""


def show_code_and_files(questions: Mapping[str, Question], results: Mapping[str, Result]) -> None:
    """Show an expander with the code of each question and the files of its result.

    Its contents are created when it is opened, and files when they are downloaded.
    """
    expander = st.expander("Python code and downloads", key=OPENED, on_change="rerun")
    if not expander.open:
        return
    with expander:
        for name, question in questions.items():
            st.code(code_of(question), "python")
            if isinstance(results.get(name), Result):  # not an estimate of the time
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
    """The functions that make the files of a result, by extension."""
    return {
        "csv": partial(_csv, result),
        "json": partial(_json, question, result),
        "html": partial(_html, question, result),
    }


def code_of(question: Question) -> str:
    """Python code for a question, which loads the model from where it was offered."""
    return question.code(source_of(question.model))


def file_name(question: Question, ending: str) -> str:
    """The name of a file, from the analysis and the model."""
    return f"{NO_NAME.sub('-', f'{question.name}-{question.model}').strip('-')}.{ending}"


def _csv(result: Result) -> str:
    return csv_text(result.to_frame())


def _json(question: Question, result: Result) -> str:
    return json.dumps({"code": code_of(question), **result.payload()}, indent=1)


def _html(question: Question, result: Result) -> str:
    return to_html(Report(result, (), {"code": code_of(question)}))
