"""The explorer's page: what a visitor can do, and what nobody can make it do."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from apps.explorer.model_cache import load_bundled
from apps.explorer.widgets import escape_markdown, token_strip
from apps.serve import APP, choose_port
from interp.errors import ModelLoadError
from interp.loading import bundled

MODEL = "induction-by-hand"
EVIL = "</script><img src=x onerror=alert(1)>"
READY = "[data-testid=stApp][data-test-script-state=notRunning]"


@pytest.fixture
def page() -> Callable[..., AppTest]:
    """The page as it comes up for an address."""
    st.cache_resource.clear()

    def opened(**address: str) -> AppTest:
        app = AppTest.from_file(str(APP), default_timeout=60)
        for name, value in {"model": MODEL, **address}.items():
            app.query_params[name] = value
        return app.run()

    return opened


def send(app: AppTest, **fields: str) -> AppTest:
    """Fill in the form and send it."""
    for name, value in fields.items():
        app.text_area(key=name).set_value(value)
    return next(button for button in app.button if button.label == "Run").click().run()


def charts(app: AppTest) -> list[str]:
    """The titles of the axes of each chart."""
    return [chart.proto.spec for chart in app.get("plotly_chart")]


def test_the_page_begins_with_an_example_and_its_pattern(page):
    app = page()
    assert not app.exception
    assert not app.error
    assert app.text_area(key="text").value
    assert len(charts(app)) == 1
    assert '"query"' in charts(app)[0]


def test_another_head_gives_another_pattern(page):
    app = page(text="abcdab")
    before = charts(app)
    app.radio(key="layer").set_value(1).run()
    app.radio(key="head").set_value(2).run()
    assert not app.exception
    assert charts(app) != before
    assert (app.query_params["layer"], app.query_params["head"]) == ("1", "2")


def test_an_address_carries_prompt_layer_and_head(page):
    app = page(text="xyzxy", layer="1", head="3", target="z", distractor="x")
    assert app.text_area(key="text").value == "xyzxy"
    assert (app.radio(key="layer").value, app.radio(key="head").value) == (1, 3)
    assert app.text_area(key="target").value == "z"


@pytest.mark.parametrize(
    "address",
    [
        {"model": "../../../etc"},
        {"model": "/etc/passwd"},
        {"layer": "99", "head": "-1"},
        {"layer": "1e9", "head": "²"},
        {"layer": ""},
    ],
)
def test_an_address_that_makes_no_sense_is_passed_over(page, address):
    app = page(**address)
    assert not app.exception
    assert not app.error
    assert app.selectbox(key="model").value in bundled()
    assert app.radio(key="layer").value == 0


def test_no_path_is_ever_loaded(tmp_path):
    for name in (str(tmp_path), "../models/induction-by-hand", "", "."):
        with pytest.raises(ModelLoadError, match="bundled"):
            load_bundled(name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("ab" * 200, "over this model's context of 64"),
        (EVIL, "can't be encoded in this vocabulary"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_explained(page, text, said):
    app = send(page(), text=text)
    assert not app.exception
    assert said in app.error[0].value.replace("\\", "")
    assert not charts(app)
    app = send(app, text="abab")
    assert not app.error
    assert len(charts(app)) == 1


def ablated(app: AppTest, **settings: object) -> AppTest:
    for key, value in settings.items():
        app.radio(key=key).set_value(value).run()
    return app.button(key="ablate").click().run()


def test_ablation_names_the_two_real_heads(page):
    app = ablated(page())
    assert not app.exception
    assert not app.error
    assert "Two of 8 heads matter" in app.markdown[-1].value
    assert len(charts(app)) == 2
    twin = app.dataframe[-1].value
    assert list(twin["name"][twin["matters"]].str[:2].sort_values()) == ["L0", "L1"]


def test_a_map_is_shown_for_the_settings_it_belongs_to(page):
    app = ablated(page())
    app.radio(key="method").set_value("zero").run()
    assert len(charts(app)) == 1
    assert any("settings have changed" in caption.value for caption in app.caption)
    app.radio(key="method").set_value("mean").run()
    assert len(charts(app)) == 2


def test_a_logit_difference_of_one_prompt(page):
    app = page(text="abcdab", target="c", distractor="d")
    app = ablated(app, over="this prompt", metric="logit difference")
    assert not app.error
    assert "One prompt gives no interval" in app.markdown[-1].value


@pytest.mark.parametrize(
    ("address", "settings", "said"),
    [
        ({"target": "cd", "distractor": "d"}, {"metric": "logit difference"}, "exactly one"),
        ({"target": "", "distractor": "d"}, {"metric": "logit difference"}, "needs a 'target'"),
        ({}, {"method": "resample"}, "at least two prompts"),
    ],
)
def test_an_ablation_that_cannot_be_done_is_explained(page, address, settings, said):
    app = ablated(page(text="abcdab", **address), over="this prompt", **settings)
    assert not app.exception
    assert said in app.error[0].value.replace("\\", "")


def test_an_unexpected_fault_shows_no_traceback(page, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("the inside")

    monkeypatch.setattr("analyses.attention_pattern", fail)
    monkeypatch.setattr("apps.explorer.pattern_view.attention_pattern", fail)
    app = page()
    assert not app.exception
    assert "Traceback" not in app.error[0].value


def test_tokens_and_errors_are_text():
    assert "<img" not in token_strip([EVIL], EVIL, EVIL)
    assert escape_markdown("![a](http://b) *c* $d$ <e> :red[f]") == (
        r"\!\[a\]\(http\:\/\/b\) \*c\* \$d\$ \<e\> \:red\[f\]"
    )
    assert escape_markdown("·↵é日") == "·↵é日"


@pytest.mark.browser
def test_the_page_in_a_browser(chromium, tmp_path: Path):
    port = choose_port(0)
    words = ["explore", "--model", MODEL, "--port", str(port), "--headless"]
    start = [sys.executable, "-c", "from apps.cli import main; main()", *words]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(start, stdout=log, stderr=log, cwd=tmp_path)
    try:
        _wait_for(f"http://127.0.0.1:{port}/_stcore/health", server)
        page = chromium.new_page(viewport={"width": 400, "height": 900})
        requests: list[str] = []
        complaints: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"http://127.0.0.1:{port}")
        page.wait_for_selector(".heatmaplayer image", timeout=60_000)
        page.get_by_role("button", name="Ablate every head").click()
        page.get_by_text("Two of 8 heads matter").wait_for(timeout=60_000)
        page.wait_for_selector(READY)
        page.wait_for_function("document.querySelectorAll('.heatmaplayer image').length == 2")
        assert page.locator("[data-testid=stException], [data-testid=stAlert]").count() == 0
        assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 400
        own = (f"http://127.0.0.1:{port}", f"ws://127.0.0.1:{port}", "data:", "blob:")
        assert [url for url in requests if not url.startswith(own)] == []
        assert not complaints
        page.close()
    finally:
        server.terminate()
        server.wait(timeout=30)
    assert f"http://127.0.0.1:{port}" in (tmp_path / "log").read_text()


def _wait_for(url: str, server: "subprocess.Popen[bytes]") -> None:
    for _ in range(240):
        assert server.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.read() == b"ok":
                    return
        except OSError:
            time.sleep(0.25)
    pytest.fail("the server did not come up")
