"""Progress goes to a callback, or to a bar on a terminal; short work and logs show no bar."""

import io

import pytest
from architectures import build, tokens_of

import interp
from analyses import ablate_heads, top_texts
from interp import edits, metrics
from interp.io import progress
from interp.io.progress import as_progress

ZEROED = [edits.zero("z", layer=0, head=head) for head in range(2)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_once(monkeypatch):
    """Bars appear without delay."""
    monkeypatch.setattr(progress, "DELAY", 1e-9)


def drawn(monkeypatch, stream, work):
    monkeypatch.setattr("sys.stderr", stream)
    work()
    return stream.getvalue()


def swept():
    (tokens,) = tokens_of("gpt2")
    interp.sweep(build("gpt2"), tokens, ZEROED, metric=metrics.loss(), progress=True)


def heads():
    ablate_heads(interp.load("induction-by-hand"), ["abcdab"], metric="loss", progress=True)


def texts():
    top_texts(interp.load("induction-by-hand"), ["abcdab"], of="L1H0", progress=True)


@pytest.mark.parametrize("work", [swept, heads, texts])
def test_true_draws_a_bar_on_a_terminal(work, monkeypatch, at_once):
    assert "100%" in drawn(monkeypatch, Terminal(), work)


def test_no_bar_is_drawn_in_a_log(monkeypatch, at_once):
    assert drawn(monkeypatch, io.StringIO(), swept) == ""


def test_short_work_draws_no_bar(monkeypatch):
    assert drawn(monkeypatch, Terminal(), swept).strip() == ""


def test_a_callback_is_called_and_false_is_none():
    calls = []
    assert as_progress(calls.append, "cells") == calls.append
    assert as_progress(False, "cells") is None
    assert as_progress(None, "cells") is None
