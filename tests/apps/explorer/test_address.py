"""When an address is taken for that of Back, and when for one that the browser has sent late."""

import pytest

from apps.explorer import state


@pytest.fixture
def clock(monkeypatch):
    times = iter(range(100))
    monkeypatch.setattr(state.time, "monotonic", lambda: 0.4 * next(times))
    monkeypatch.setattr(state.st, "session_state", {})


def answers(monkeypatch, differs):
    """What consecutive checks, .4 s apart, say of an address that differs in some of them."""
    checks = iter(differs)
    monkeypatch.setattr(state, "address_differs", lambda: next(checks))
    return [state.went_back() for _ in differs]


def test_an_address_that_differs_for_long_is_that_of_back(clock, monkeypatch):
    assert answers(monkeypatch, [True] * 5) == [False, False, False, True, True]


def test_an_address_that_was_sent_late_is_not(clock, monkeypatch):
    late = [True, True, False, True, True, True, False]
    assert not any(answers(monkeypatch, late))
