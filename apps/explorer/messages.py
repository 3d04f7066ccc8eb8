"""Errors and other messages on the page, always escaped."""

import re
import traceback
from collections.abc import Generator
from contextlib import contextmanager

import streamlit as st

from apps.failures import code_and_message
from apps.terminal import print_stderr
from interp.errors import InterpError


def escape_markdown(text: str) -> str:
    """The text on one line, with all ASCII punctuation escaped for Markdown."""
    one_line = " ".join(text.split())
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", one_line)


@contextmanager
def errors_on_page() -> Generator[None]:
    """Show errors as messages on the page; print the traceback of a bug on the terminal."""
    try:
        yield
    except Exception as error:
        st.error(escape_markdown(message_of(error)))


def message_of(error: Exception) -> str:
    """One line about an error; prints the traceback of a bug on the terminal."""
    if not isinstance(error, InterpError):
        print_stderr("".join(traceback.format_exception(error)))
    return code_and_message(error)[1]
