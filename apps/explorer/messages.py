"""Tokens and errors on the page, always escaped."""

import re
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import streamlit as st
from markupsafe import Markup

from apps.failures import code_and_message
from apps.terminal import print_stderr
from interp.errors import InterpError

STYLE = """<style>
.interp-tokens { font: 14px/2 ui-monospace, "DejaVu Sans Mono", Menlo, monospace; max-height: 11em;
  overflow-y: auto; overflow-wrap: anywhere; }
.interp-tokens span { padding: 2px 3px; margin: 0 1px; border-radius: 4px; background: #eef1f6;
  color: #1f2430; white-space: pre-wrap; unicode-bidi: isolate; }
.interp-tokens span:nth-of-type(even) { background: #dbe1ec; }
.interp-tokens span.target { background: #cdebd5; outline: 1px solid #2f7d4a; }
.interp-tokens span.distractor { background: #fff; outline: 1px dashed #b35806; }
</style>"""


def token_strip(labels: Sequence[str], target: str = "", distractor: str = "") -> str:
    """HTML with tokens as boxes, each with its position; then the target and the distractor."""
    boxes = [
        Markup('<span title="position {}">{}</span><wbr>').format(position, label)
        for position, label in enumerate(labels)
    ]
    boxes += [
        Markup(' <span class="{}" title="{}">{}</span>').format(name, name, label)
        for name, label in (("target", target), ("distractor", distractor))
        if label
    ]
    return Markup('<div class="interp-tokens">{}</div>').format(Markup("").join(boxes))


def escape_markdown(text: str) -> str:
    """The text on one line, with all ASCII punctuation escaped for Markdown."""
    one_line = " ".join(text.split())
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", one_line)


@contextmanager
def errors_on_page() -> Generator[None]:
    """Show errors as messages on the page; the traceback of a bug is printed on the terminal."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, InterpError):
            print_stderr(traceback.format_exc())
        st.error(escape_markdown(code_and_message(error)[1]))
