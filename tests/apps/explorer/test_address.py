"""When an address is taken for that of Back, and when for one that the browser has sent late."""

from types import SimpleNamespace

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


def test_back_that_arrives_during_another_change_is_recognised_after_an_earlier_back(
    clock, monkeypatch
):
    """The address that was written before the first Back is never sent by the browser."""
    fields = dict[str, str]()
    monkeypatch.setattr(state.st, "query_params", SimpleNamespace(to_dict=fields.copy))
    monkeypatch.setattr(state, "from_address", lambda address: (dict(address), ()))

    def read():
        state.read_address(lambda view: (view, ()))
        return state.st.session_state["view"]

    weights, heads = {"page": "weights"}, {"page": "heads"}
    state.st.session_state.update(view={}, address={"page": "patch"}, received=False)
    fields.update(weights)  # the first Back
    assert read() == weights
    fields.update(heads)  # the second one, in a run that a poll began
    state.st.session_state["changed_here"] = True
    assert read() == weights
    assert answers(monkeypatch, [True] * 5)[-1]
    assert read() == heads
