"""Messages that the browser sent before the page changed are no choices."""

import pytest

from apps.explorer import controls


@pytest.fixture
def state(monkeypatch):
    monkeypatch.setattr(controls.st, "session_state", state := {})
    return state


def test_a_choice_in_the_shown_widget_is_stored(state):
    picked = []
    key = controls.key_of("choose_example", 0)
    callback = controls.when_picked("choose_example", key, picked.append)
    state[key] = 2
    callback()
    assert picked == [2]
    assert controls.key_of("choose_example", 2) == key


def test_the_state_of_a_widget_of_which_the_value_has_changed_elsewhere_is_no_choice(state):
    """Streamlit calls the callback of a widget that an interrupted script did not remove."""
    picked = []
    earlier = controls.key_of("choose_example", 0)
    callback = controls.when_picked("choose_example", earlier, picked.append)
    key = controls.key_of("choose_example", None)  # a prompt was typed
    state[earlier] = 0
    callback()
    assert not picked
    assert state[key] is None
    assert controls.key_of("choose_example", None) == key
