"""The page Heads in a session: jobs run to their end, and its widgets change the view."""

import time

import pytest
from streamlit.testing.v1 import AppTest

from apps.explorer.downloads import OPENED
from apps.explorer.view import Head, View
from apps.serve import APP


@pytest.fixture(scope="module")
def app() -> AppTest:
    opened = AppTest.from_file(str(APP), default_timeout=60)
    opened.query_params.update({"page": "heads", "model": "rasp-reverse"})
    opened.session_state[OPENED] = True
    return finished(opened.run())


def finished(app: AppTest) -> AppTest:
    """The page once its jobs have ended."""
    for _ in range(300):
        assert not app.exception
        if not any(button.label == "Cancel" for button in app.button):
            return app
        time.sleep(0.1)
        app.run()
    raise TimeoutError


def view_of(app: AppTest) -> View:
    assert not app.exception
    assert not app.error
    return app.session_state["view"]


def test_it_opens_on_the_head_that_matters_most(app):
    assert view_of(app).head == Head(0, 0)
    written = [code.value for code in app.code]
    assert len(written) == 4
    assert "attention_patterns(model, 'cbaadd')" in written[0]


def test_top_texts_are_asked_for_and_put_away(app):
    app.toggle(key="ask_texts").set_value(True).run()
    assert view_of(finished(app)).asked == ("texts",)
    assert any("top_texts(model" in code.value for code in app.code)
    app.toggle(key="ask_texts").set_value(False).run()
    assert view_of(finished(app)).asked == ()


def test_a_method_is_another_question(app):
    app.button_group(key="choose_method").set_value("zero").run()
    assert view_of(finished(app)).method == "zero"
    assert any("method='zero'" in code.value for code in app.code)


def test_the_page_why_is_a_button_away(app):
    app.button(key="why").click().run()
    assert view_of(app).page == "why"
    assert view_of(app).head == Head(0, 0)
