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


def test_no_address_is_that_of_back_before_the_browser_has_received_the_last_one(
    clock, monkeypatch
):
    """However long its messages are on their way; afterwards, one that differs is."""
    state.st.session_state["received"] = False
    late, back = [True] * 50, [True] * 5
    answered = answers(monkeypatch, [*late, False, *back])
    assert not any(answered[: len(late) + 1])
    assert answered[-2:] == [True, True]
