"""The explorer's script in a session: address, Back, links, errors, model and prompt."""

import shutil
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from apps.explorer import view as view_module
from apps.explorer.messages import escape_markdown
from apps.explorer.navigation import PAGES
from apps.explorer.offered import model_of, name_of, offer, offered, source_of
from apps.explorer.pages.view_inputs import probable_target
from apps.explorer.view import Head, View
from apps.serve import APP
from interp.errors import ModelLoadError
from interp.loading import MODEL_FOLDER, bundled, installed

MODEL = "induction-by-hand"
EVIL = "</script><img src=x onerror=alert(1)>"
PAGE = "weights"
"""The page of most tests here: it asks quick questions alone."""


@pytest.fixture
def session() -> Callable[..., AppTest]:
    """A session as it comes up for an address."""

    def opened(**address: str) -> AppTest:
        app = AppTest.from_file(str(APP), default_timeout=60)
        for name, value in {"model": MODEL, "page": PAGE, **address}.items():
            app.query_params[name] = value
        return app.run()

    return opened


@pytest.fixture(scope="module")
def one_session() -> AppTest:
    """A session for tests that open an address in it."""
    return AppTest.from_file(str(APP), default_timeout=60)


def finished(app: AppTest) -> AppTest:
    """The page once its jobs have ended."""
    for _ in range(600):
        if not any(button.label == "Cancel" for button in app.button):
            return app
        time.sleep(0.1)
        app.run()
    raise TimeoutError


def view_of(app: AppTest) -> View:
    assert not app.exception
    return app.session_state["view"]


def address_of(app: AppTest) -> dict[str, str]:
    parameters = app.query_params.items()
    return {name: value if isinstance(value, str) else value[0] for name, value in parameters}


def go_back(app: AppTest, address: dict[str, str]) -> AppTest:
    """What the browser does: the page runs again with an earlier address."""
    for name in [*app.query_params]:
        del app.query_params[name]
    for name, value in address.items():
        app.query_params[name] = value
    return app.run()


def send(app: AppTest, **fields: str) -> AppTest:
    """Fill in the form and send it."""
    for name, value in fields.items():
        app.text_area(key=f"form_{name}").set_value(value)
    return next(button for button in app.button if button.label == "Run").click().run()


def test_the_first_visit_writes_no_address(session):
    app = session()
    assert address_of(app) == {"model": MODEL, "page": PAGE}
    assert not app.error
    assert not app.warning
    assert view_of(app).text


def test_back_three_times_restores_three_views(session):
    app = session()
    seen = [(address_of(app), view_of(app))]
    for step in (
        lambda: app.selectbox(key="choose_head").set_value(Head(1, 2)).run(),
        lambda: send(app, text="xyzxy", target="z"),
        lambda: app.segmented_control(key="choose_page").set_value("prompt").run(),
    ):
        step()
        seen.append((address_of(app), view_of(app)))
    assert len({str(address) for address, _ in seen}) == 4
    for address, view in reversed(seen[:-1]):
        assert view_of(go_back(app, address)) == view
        assert address_of(app) == address


def test_an_own_prompt_asks_about_its_own_answer(session):
    """No page has the target, distractor or corrupted prompt of the former prompt."""
    app = session(page="why", text="abcdab", target="c", distractor="d", corrupt="abxdab")
    app = finished(send(app, text="xyzxy"))
    view = view_of(app)
    assert (view.text, view.target, view.corrupt) == ("xyzxy", "", "")
    second = model_of(MODEL).top("xyzxy", 2).rows[1]
    assert view.distractor == second.token
    line = " ".join(element.proto.body for element in app.get("html"))
    assert "wrong" not in line
    (most_probable,) = model_of(MODEL).top("xyzxy", 1).rows
    assert probable_target(view, model_of(MODEL)) == most_probable.token
    app = send(app, text="kqk", target="z")
    assert view_of(app).target == "z"
    assert "wrong" in " ".join(element.proto.body for element in app.get("html"))


@pytest.mark.slow
def test_a_million_characters_are_cut_with_a_warning_and_suggestions_are_of_what_is_left(session):
    """Text in two directions, characters without width, markup; words to swap everywhere."""
    text = (
        "Anna \u05e9\u05dc\u05d5\u05dd\u202e\u200b <img src=x onerror=alert(1)> and Ben. " * 20_000
    )
    app = send(session(model="python-2l"), text=text)
    warnings = " ".join(warning.value for warning in app.warning).replace("\\", "")
    assert f"The prompt has {len(text):,} characters" in warnings
    assert "context of 256 tokens" in warnings
    assert not app.error
    view = view_of(app)
    assert text.endswith(view.text)
    assert len(view.text) < 1000
    assert len(view.corrupt) < 1000
    assert address_of(app)["text"] == view.text


def test_a_prompt_longer_than_the_limit_keeps_its_end_with_a_warning(session):
    text = "x" * 5000 + "ab" * 10_000
    app = send(session(), text=text)
    warnings = " ".join(warning.value for warning in app.warning).replace("\\", "")
    assert "has 25,000 characters: its first 5,000 are left out" in warnings
    assert "context of 64 tokens" in warnings
    assert text.endswith(view_of(app).text)
    assert view_of(app).text
    assert not app.error


def test_a_prompt_that_the_address_does_not_hold_has_one_caption(session, monkeypatch):
    monkeypatch.setattr(view_module, "MAX_TEXT", 8)
    app = session()

    def n_captions(text: str) -> int:
        captions = [caption.value for caption in send(app, text=text).caption]
        return sum("The address holds no prompt of more than" in caption for caption in captions)

    assert [n_captions(text) for text in ("abcabc", "abcabcabc", "abcab")] == [0, 1, 0]


def test_a_link_opens_the_same_view_in_a_new_session(session):
    app = session()
    app.selectbox(key="choose_head").set_value(Head(1, 2)).run()
    send(app, text="xyzxy", target="z", distractor="x")
    other = session(**address_of(app))
    assert view_of(other) == view_of(app)
    assert view_of(session()) != view_of(app)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ({"model": "../../../etc"}, "not available here"),
        ({"model": "/etc/passwd"}, "not available here"),
        ({"model": "hub:gpt2"}, "not available here"),
        ({"model": f"{MODEL}@7"}, "not available here"),
        ({"head": "L9H9"}, "no head L9H9"),
        ({"head": "²"}, "can't be read"),
        ({"method": "remove"}, "method='remove' is not available here; the values are zero, mean"),
        ({"page": "admin"}, "can't be read"),
        ({"attention": "cross"}, "attention='cross'"),
        ({"score": "nope"}, "score='nope'"),
        ({"metric": "nope"}, "metric='nope'"),
        ({"prompts": "nope"}, "prompts='nope'"),
        ({"at": "nope"}, "at='nope'"),
        ({"weights": "nope"}, "weights='nope'"),
        ({"kind": "X"}, "kind='X'"),
        ({"report": "nope"}, "report='nope'"),
        ({"asked": "nope"}, "asked='nope'"),
        ({"component": "nope"}, "no component nope"),
        ({"text": "abc", "position": "9"}, "position=9: the prompt has positions 0 to 3"),
        ({"text": "abc", "query": "-1"}, "query=-1"),
        ({"layer": "7"}, "layer=7"),
        ({"prompt": "abc"}, "'prompt' in this link is no field of a view. Nearest: prompts"),
        ({"contrast": "11"}, "'contrast'='11' in this link can't be read"),
        ({"pinned": "broken"}, "'pinned'='broken' in this link can't be read"),
        ({"pinned": "page=heads&model=%2Fetc"}, "pinned: its model '/etc'"),
        ({"pinned": f"page=heads&model={MODEL}&text=%E6%97%A5"}, "pinned: it is left out."),
        ({"pinned": f"page=heads&model={MODEL}&method=remove"}, "pinned: method='remove'"),
        ({"model": EVIL}, "not available here"),
    ],
)
def test_what_a_link_names_and_is_not_there_is_a_warning(one_session, address, message):
    app = go_back(one_session, {"model": MODEL, "page": PAGE, **address})
    assert not app.exception
    assert not app.error
    assert message in app.warning[0].value.replace("\\", "")
    assert view_of(app).model in bundled()
    assert not go_back(app, {"model": MODEL, "page": "prompt"}).warning


def test_the_warning_of_a_link_stays_while_jobs_run(session):
    app = session(head="L9H9")
    assert app.warning
    assert app.run().warning, "a run that a job causes leaves it"


def test_only_offered_models_are_opened(tmp_path):
    for name in (str(tmp_path), f"../models/{MODEL}", "", ".", "hub:gpt2", f"{MODEL}@7"):
        with pytest.raises(ModelLoadError, match="offers"):
            model_of(name)
    assert model_of(MODEL) is model_of(MODEL)


def test_a_folder_is_offered_by_its_own_name(tmp_path):
    """So that titles and links do not show where it is; two folders of one name are numbered."""
    folders = [tmp_path / "a" / "mine", tmp_path / "b" / "mine"]
    for folder in folders:
        shutil.copytree(MODEL_FOLDER / MODEL, folder)
    sources = [str(folder) for folder in folders]
    try:
        offer([*sources, "hub:org/name@main", MODEL])
        others = ["mine", "mine (2)", "hub:org/name@main"]
        assert offered() == [*others, *bundled(), *installed()]
        assert [*map(source_of, ("mine", "mine (2)", MODEL))] == [*sources, MODEL]
        assert name_of(sources[1]) == "mine (2)"
        assert [*model_of("mine (2)").parameters()]
        with pytest.raises(ModelLoadError, match="offers"):
            model_of(sources[0])
        assert str(tmp_path) not in str(offered())
    finally:
        offer([])


@pytest.mark.slow
def test_a_step_of_a_training_is_a_model(session):
    app = session(model="python-2l@0")
    assert not app.warning
    assert view_of(app).model == "python-2l@0"
    app.select_slider(key="choose_step").set_value("python-2l").run()
    assert view_of(app).model == "python-2l"


@pytest.mark.slow
def test_another_model_opens_with_its_own_prompt(session):
    app = session(head="L1H3")
    app.selectbox(key="choose_model").set_value("rasp-histogram").run()
    view = view_of(app)
    assert (view.model, view.page) == ("rasp-histogram", PAGE)
    assert view.text != view_of(session()).text


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "There is no prompt yet"), (EVIL, "can't be encoded in this vocabulary")],
)
def test_a_prompt_that_cannot_be_read_is_explained_and_starts_no_job(session, text, message):
    app = send(session(page="heads"), text=text)
    assert not app.exception
    assert not app.error
    assert message in app.info[0].value.replace("\\", "")
    assert view_of(app).text == text
    assert not app.session_state["polled"]
    assert not [
        button for button in app.button if button.label in ("Cancel", "Continue", "Try again")
    ]
    app = finished(send(app, text="abab"))
    assert not app.error


def test_an_unexpected_fault_shows_no_traceback(session, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the inside")

    monkeypatch.setattr("analyses.ov", fail)
    app = session(token="a")
    assert not app.exception
    assert "the inside" in app.error[0].value
    assert "Traceback" not in app.error[0].value
    canvases = [
        component for component in app.get("bidi_component") if component.key == "canvas_weights_A"
    ]
    assert len(canvases) == 1, "the other views are shown"


@pytest.mark.slow
def test_a_page_that_cannot_be_drawn_is_not_drawn_again_and_again(session, monkeypatch):
    """While its jobs go on."""
    drawn: list[object] = []

    def fail(*arguments: object) -> None:
        drawn.append(arguments)
        raise RuntimeError("the inside")

    monkeypatch.setitem(PAGES, PAGE, replace(PAGES[PAGE], views=fail))
    app = session(weights="order")
    assert "the inside" in app.error[0].value
    assert len(drawn) <= 2
    monkeypatch.undo()
    app = finished(app.run())
    assert not app.error


def test_errors_are_text():
    assert escape_markdown("![a](http://b) *c* $d$ <e> :red[f]") == (
        r"\!\[a\]\(http\:\/\/b\) \*c\* \$d\$ \<e\> \:red\[f\]"
    )
    assert escape_markdown("·↵é日") == "·↵é日"


def test_a_click_made_before_the_address_changed_is_no_back(session):
    """The browser sends the address that it showed when the click was made."""
    app = session()
    first = address_of(app)
    app.selectbox(key="choose_head").set_value(Head(1, 2)).run()
    for name in {*address_of(app)} - {*first}:
        del app.query_params[name]
    app.segmented_control(key="choose_weights").set_value("positions").run()
    assert (view_of(app).head, view_of(app).weights) == (Head(1, 2), "positions")
    assert address_of(app)["head"] == "L1H2"
