"""The prediction above every page, in a session: it follows the prompt and the edit."""

import time
from threading import Event, current_thread

import pytest
from streamlit.testing.v1 import AppTest

import analyses
from apps.explorer import forward_cost
from apps.explorer.offered import model_of
from apps.explorer.page import JOBS
from apps.explorer.pages import weights
from apps.explorer.questions import Question
from apps.serve import APP
from interp.errors import InvalidInput

MODEL = "induction-by-hand"
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def session() -> AppTest:
    """One session, in which each test sends its own prompt."""
    app = AppTest.from_file(str(APP), default_timeout=60)
    app.query_params["model"], app.query_params["page"] = MODEL, "prompt"
    return app.run()


def line(app: AppTest) -> str:
    """The HTML of the line; empty if there is none."""
    assert not app.exception
    bodies = [element.proto.body for element in app.get("html")]
    body = next((body for body in bodies if "interp-prediction" in body), "")
    return body.partition("</style>")[2]


def send(app: AppTest, **fields: str) -> AppTest:
    for name, value in fields.items():
        app.text_area(key=f"form_{name}").set_value(value)
    return next(button for button in app.button if button.label == "Run").click().run()


def text_of(messages: object) -> str:
    return " ".join(message.value for message in messages).replace("\\", "")


def test_the_line_follows_the_prompt_on_every_page(session):
    send(session, text="abcdab", target="c", distractor="d")
    top = model_of(MODEL).top("abcdab", 1).rows[0]
    assert f"<bdi>b</bdi> (position 6): <bdi>{top.token}</bdi>" in line(session)
    assert "p(target <bdi>c</bdi>)" in line(session)
    assert "p(distractor <bdi>d</bdi>)" in line(session)
    assert "✓ right" in line(session)
    send(session, text="xyzxy", target="a", distractor="")
    assert "<bdi>y</bdi> (position 5)" in line(session)
    assert "✗ wrong" in line(session)
    # The target is compared with what the model predicts, until that is deleted.
    top = model_of(MODEL).top("xyzxy", 1).rows[0]
    assert f"p(distractor <bdi>{top.token}</bdi>)" in line(session)
    send(session, distractor="")
    assert "distractor" not in line(session)
    session.segmented_control(key="choose_page").set_value("weights").run()
    assert "<bdi>y</bdi> (position 5)" in line(session)
    session.segmented_control(key="choose_page").set_value("prompt").run()


def test_the_collected_heads_are_ablated_by_a_switch(session):
    send(session, text="abcdab", target="c", distractor="d")
    plain = line(session)
    assert not [toggle for toggle in session.toggle if toggle.label.startswith("Ablate")]
    session.query_params["heads"] = "L1H0,L0H0"
    session.run()
    assert line(session) == plain
    switch = next(toggle for toggle in session.toggle if toggle.label == "Ablate L1H0, L0H0")
    switch.set_value(True).run()
    assert "L1H0, L0H0 ablated (mean)" in line(session)
    assert " → " in line(session)
    assert "True" in session.query_params["ablated"]
    switch = next(toggle for toggle in session.toggle if toggle.label.startswith("Ablate"))
    switch.set_value(False).run()
    assert line(session) == plain


def test_a_prompt_that_cannot_be_read_is_explained_and_the_next_is_shown(session):
    send(session, text=EVIL, target="c", distractor="")
    assert not line(session)
    assert "can't be encoded in this vocabulary" in text_of(session.info)
    assert "onerror" not in "".join(element.proto.body for element in session.get("html"))
    send(session, text="abcdab")
    assert "(position 6)" in line(session)


def test_an_over_long_prompt_is_cut_with_a_word_that_stays(session):
    send(session, text="ab" * 100, target="a", distractor="")
    words = "longer than the model's context of 64 tokens: its first 137 tokens are left out"
    assert words in text_of(session.warning)
    assert "(position 63)" in line(session)
    assert words in text_of(session.run().warning)
    assert not session.error
    send(session, text="abab")
    assert not session.warning


def test_metrics_are_those_that_the_prompts_allow(session):
    send(session, text="abcdab", target="c", distractor="d")
    options = session.selectbox(key="choose_metric").options
    assert options[0] == "loss (lower is better)"
    assert "logit difference (higher is better)" in options
    send(session, target="", distractor="")
    fewer = session.selectbox(key="choose_metric").options
    of_the_most_probable = ["probability (higher is better)", "logit (higher is better)"]
    assert fewer == [options[0], *of_the_most_probable, "KL divergence (0: unchanged)"]
    swept = next(
        control for control in session.segmented_control if control.label == "Prompts for sweeps"
    )
    assert swept.value == "", "a new prompt is what sweeps run over"
    swept.set_value("examples").run()
    assert session.selectbox(key="choose_metric").options == options


def test_markup_in_a_prompt_is_text():
    app = AppTest.from_file(str(APP), default_timeout=60)
    app.query_params["model"], app.query_params["page"] = "python-2l", "weights"
    send(app.run(), text=f"x = '{EVIL}", target=EVIL)
    assert "interp-prediction" in "".join(element.proto.body for element in app.get("html"))
    assert "<img" not in line(app)


@pytest.mark.parametrize("model", ["dates", "python-mlm"])
@pytest.mark.slow
def test_other_kinds_of_model_have_a_line(model):
    app = AppTest.from_file(str(APP), default_timeout=60)
    app.query_params["model"], app.query_params["page"] = model, "prompt"
    app.run()
    assert not app.error
    assert "✓ right" in line(app)
    assert ("at <bdi>&lt;|mask|&gt;</bdi>" in line(app)) == (model == "python-mlm")


def until_offered(app: AppTest, label: str, *, offered: bool = True) -> None:
    """Rerun the page until a button is there, or no longer is."""
    for _ in range(300):
        if offered == any(button.label == label for button in app.button):
            return
        time.sleep(0.05)
        app.run()
    raise TimeoutError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "fields"),
    [
        ("prompt", {}),
        ("heads", {"metric": "logit"}),
        ("why", {}),
        ("patch", {}),
        ("weights", {"weights": "order"}),
    ],
)
def test_no_forward_over_a_long_prompt_runs_while_a_page_is_drawn(page, fields, monkeypatch):
    """It would hold up the whole session, so all of them are jobs; here every prompt is long.

    A link names a metric of the target, which only a forward tells; the model has no prompt set.
    """
    monkeypatch.setattr(forward_cost, "LONG", 0)
    monkeypatch.setattr(weights, "examples", lambda _: [])
    asked, run = [], Question.run

    def noted(question: Question, *arguments: object) -> object:
        asked.append((question.name, current_thread()))
        return run(question, *arguments)

    monkeypatch.setattr(Question, "run", noted)
    app = AppTest.from_file(str(APP), default_timeout=60)
    text = {"text": f"{page[:2]}dab{page[:2]}", "corrupt": f"{page[:2]}dab{page[1]}{page[0]}"}
    app.query_params.update({"model": MODEL, "page": page, "position": "3", **text, **fields})
    until_offered(app.run(), "Cancel", offered=False)
    assert bool(line(app)) == (page != "weights"), "the page that needs no prompt waits for none"
    assert not app.error
    view = app.session_state["view"]
    assert fields.items() <= view.to_address().items()
    assert asked
    assert {name for name, thread in asked if thread not in JOBS._threads} == set()


def test_a_prediction_that_can_not_be_made_is_explained_once_its_job_has_failed(
    session, monkeypatch
):
    def refused(*_: object, **__: object) -> None:
        raise InvalidInput("This model predicts nothing.")

    monkeypatch.setattr(forward_cost, "LONG", 0)
    monkeypatch.setattr(analyses, "predictions", refused)
    send(session, text="abcdabce", target="a")
    for _ in range(300):
        if any("No prediction" in caption.value for caption in session.caption):
            break
        time.sleep(0.05)
        session.run()
    assert "No prediction: This model predicts nothing." in text_of(session.caption)


def test_the_prediction_for_a_long_prompt_is_cancelled_and_continued(session, monkeypatch):
    go, run = Event(), Question.run

    def waiting(question: Question, *arguments: object) -> object:
        go.wait(60)
        return run(question, *arguments)

    monkeypatch.setattr(forward_cost, "LONG", 0)
    monkeypatch.setattr(Question, "run", waiting)
    send(session, text="abcdabcf")
    session.button(key="cancel_prediction").click().run()
    go.set()
    until_offered(session, "Continue")
    assert not line(session)
    session.button(key="continue_prediction").click().run()
    until_offered(session, "Cancel", offered=False)
    assert "<bdi>f</bdi> (position 8)" in line(session)
