"""Why and Patch in a session: steps back, the circuit on request, errors."""

import time

import pytest
from answered import opened
from streamlit.testing.v1 import AppTest

from apps.explorer.downloads import OPENED
from apps.explorer.messages import escape_markdown
from apps.explorer.pages.patch import PATCH
from apps.explorer.pages.why import WHY
from apps.explorer.view import View
from apps.serve import APP


def session(view: View) -> AppTest:
    app = AppTest.from_file(str(APP), default_timeout=60)
    for name, value in view.to_address().items():
        app.query_params[name] = value
    app.session_state[OPENED] = True
    app.run()
    assert not app.exception
    return app


def test_the_trail_leads_back_and_the_address_has_each_step():
    view = opened(WHY, "induction-by-hand", component="embed", trail=("L1H0", "embed"))
    app = session(view)
    assert not app.error
    steps = app.get("button_group")
    (trail,) = (group for group in steps if group.label == "Upstream")
    assert trail.options == ["all components", "L1H0", "embed"]
    trail.set_value("L1H0").run()
    view = app.session_state["view"]
    assert (view.component, view.trail) == ("L1H0", ("L1H0", "embed"))
    assert app.query_params["component"] == "L1H0"
    assert any("into='L1H0'" in code.value for code in app.code)
    assert not app.error


@pytest.mark.slow
def test_the_circuit_is_asked_for_by_a_switch():
    app = session(opened(PATCH, "rasp-reverse"))
    assert not any("prune" in code.value for code in app.code)
    (switch,) = (toggle for toggle in app.toggle if toggle.label == "Circuit")
    switch.set_value(True).run()
    assert app.session_state["view"].asked == ("circuit",)
    deadline = time.monotonic() + 60
    while not any("scores = attribute_edges(" in code.value for code in app.code):
        assert any("method='eap'" in code.value for code in app.code), "the first of three steps"
        assert time.monotonic() < deadline
        app.run()
    assert not app.error


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"corrupt": "eec"}, "each token needs its counterpart"),
        ({"corrupt": ""}, "needs a corrupted prompt"),
        ({"target": "<img src=x>"}, "<img src=x>"),
    ],
)
def test_what_is_wrong_with_a_pair_is_one_error(fields, words):
    app = session(opened(PATCH, "rasp-reverse", **fields))
    assert len(app.error) == 1
    assert escape_markdown(words) in app.error[0].value
