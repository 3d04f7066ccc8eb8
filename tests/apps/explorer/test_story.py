"""Stories: saved views with sentences, their file, and the page that is exported."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from answered import opened
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from apps.explorer import offered
from apps.explorer.page import Results, columns_of
from apps.explorer.pages.heads import HEADS
from apps.explorer.pages.prompt import PROMPT
from apps.explorer.pages.story import Drawn, asks_of_saved
from apps.explorer.story import MAX_CHARACTERS, MAX_SENTENCE, MAX_VIEWS, Saved, Story, read_story
from apps.explorer.view import MAX_TEXT, Head, View
from apps.report import StoryFigures, StorySection, story_page
from apps.serve import APP
from interp.errors import InvalidInput

NAME = "induction-by-hand"
EVIL = "</script><img src=x onerror=alert(1)> \u05e9\u05dc\u05d5\u05dd \u202e\u200b & \u201cq\u201d"
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.lists(st.tuples(texts, texts), max_size=4), texts)
def test_a_story_is_read_back_from_its_file(entries, title):
    views = tuple(
        Saved(View(model="m", text=text, query=3), sentence) for text, sentence in entries
    )
    story = Story(title, views)
    assert read_story(story.to_json()) == (story, ())


def file_of(**fields: Any) -> str:
    content = {"format": "interp story", "version": 1, "title": "t", "views": [], **fields}
    return json.dumps(content)


@pytest.mark.parametrize(
    ("fields", "named", "n_read"),
    [
        ({"title": 5}, "title should be text, got 5", 0),
        ({"title": "x" * 5000}, "title has 5,000 characters", 0),
        ({"author": "x"}, "'author' in this file is no field", 0),
        ({"views": {"link": "?"}}, "views should be a list", 0),
        ({"views": ["?page=heads"]}, "views[0] should be an object", 0),
        ({"views": [{"sentence": "x"}]}, "views[0].link", 0),
        ({"views": [{"link": "?page=story"}]}, "a story has no view of a story", 0),
        ({"views": [{"link": "?", "sentence": [1]}]}, "views[0].sentence should be text", 1),
        ({"views": [{"link": "?", "html": EVIL}]}, "views[0].'html' is no field", 1),
        ({"views": [{"link": "?head=L1"}]}, "views[0].link: 'head'='L1'", 1),
        ({"views": [{"link": "?"}] * (MAX_VIEWS + 1)}, f"the first {MAX_VIEWS} of", MAX_VIEWS),
    ],
)
def test_each_wrong_field_of_a_file_is_named_and_the_rest_is_read(fields, named, n_read):
    story, notes = read_story(file_of(**fields))
    (note,) = notes
    assert named in note
    assert len(note) < 300
    assert [saved.view for saved in story.views] == [View()] * n_read


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "can't be read"),
        ("[]", "should be an object"),
        ("{", "can't be read"),
        ('{"views": []}', "format"),
        (file_of(version=2), "version 2"),
        (file_of(title=1).replace("1}", "NaN}").replace('"title": 1', '"title": NaN'), "can't be"),
        ("[" * 10_000, "can't be read"),
        ("x" * (MAX_CHARACTERS + 1), f"up to {MAX_CHARACTERS:,}"),
    ],
)
def test_what_is_not_a_story_is_refused(text, why):
    with pytest.raises(InvalidInput, match=re.escape(why)):
        read_story(text)


def test_views_are_added_moved_and_removed():
    story = Story()
    for n in range(3):
        story = story.with_view(View(query=n), str(n))
    order = lambda story: [saved.view.query for saved in story.views]  # noqa: E731
    assert order(story.moved(0, 1)) == [1, 0, 2]
    assert order(story.moved(2, -1)) == [0, 2, 1]
    assert order(story.moved(2, 5)) == order(story.moved(0, -1)) == [0, 1, 2]
    assert order(story.without(1)) == [0, 2]
    changed = story.with_sentence(1, "x" * (MAX_SENTENCE + 1))
    assert [len(saved.sentence) for saved in changed.views] == [1, MAX_SENTENCE, 1]


def test_a_view_that_no_link_holds_or_one_too_many_is_refused_with_a_reason():
    long = View(text="a" * (MAX_TEXT + 1))
    for view in (long, View(pinned=long)):
        with pytest.raises(InvalidInput, match="2,000 characters"):
            Story().with_view(view, "")
    full = Story("", (Saved(View()),) * MAX_VIEWS)
    with pytest.raises(InvalidInput, match=f"up to {MAX_VIEWS} views"):
        full.with_view(View(), "")


# ---- the exported page -------------------------------------------------------------------------


class Parsed(HTMLParser):
    """The elements of a page, its text outside of scripts, and its payloads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.payloads, self._script = "", dict[str, Any](), ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._script = dict(attrs).get("id") or "" if tag == "script" else ""

    def handle_endtag(self, tag):
        self._script = ""

    def handle_data(self, data):
        if self._script:
            self.payloads[self._script.removeprefix("views-")] = json.loads(data)
        else:
            self.text += data


def drawn(view: View, sentence: str = "", *, waits: bool = False) -> Drawn:
    columns = []
    for name, each in columns_of(view):
        model, asked = offered.model_of(each.model), asks_of_saved(each, view.page)
        results = {ask.name: ask.question.run(model) for ask in asked}
        states = {"ablation": (1,)} if waits else {}
        columns.append((name, each, Results(results=results, states=states)))
    return Drawn.of(Saved(view, sentence), columns)


def exported(*entries: Drawn, title: str = "title") -> Parsed:
    return Parsed(story_page(title, [each.section("http://127.0.0.1:8501/") for each in entries]))


def test_the_page_has_sentence_line_link_and_live_figures_of_each_view():
    heads = opened(HEADS, NAME, head=Head(1, 2), query=3)
    ablated = opened(PROMPT, NAME, heads=(Head(1, 0),), ablated=True)
    pinned = replace(ablated, heads=(), ablated=False)
    side = replace(ablated, pinned=pinned)
    page = exported(
        drawn(heads, "first"), drawn(side, "second"), drawn(replace(side, subtract=True))
    )
    for text in ("first", "second", "next token after", f"{NAME}, “{heads.text}”, plain"):
        assert text in page.text
    assert list(page.payloads) == ["figures", "view-1", "view-2A", "view-2B", "view-3"]
    boxes = [attributes.get("data-views") for tag, attributes in page.tags if tag == "div"]
    assert [name for name in boxes if name] == list(page.payloads)
    assert (
        page.payloads["view-1"]["selection"] | {"head": [1, 2], "query": 3}
        == (page.payloads["view-1"]["selection"])
    )
    assert [each["kind"] for each in page.payloads["view-1"]["views"]] == ["heads"]
    assert {each["kind"] for each in page.payloads["view-3"]["views"]} == {"difference"}
    assert "L1H0 ablated (mean)" in page.payloads["view-2B"]["views"][0]["run"]
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert links[0] == f"http://127.0.0.1:8501/{Saved(heads).link}"
    assert read_story(Story("", (Saved(heads),)).to_json())[0].views[0].view == heads
    for tag, attributes in page.tags:
        assert tag not in ("img", "iframe", "link", "object")
        assert not attributes.get("src")
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_hostile_text_is_text_on_the_page():
    section = StorySection(
        EVIL, EVIL, EVIL, (), "http://127.0.0.1:8501/", EVIL, (EVIL,),
        [StoryFigures("A", EVIL, {"views": [{"kind": "none", "id": "x", "title": EVIL}]})],
    )  # fmt: skip
    page = Parsed(story_page(EVIL, [section]))
    assert page.text.count(EVIL) >= 6
    assert not any(tag == "img" or "onerror" in attributes for tag, attributes in page.tags)
    assert page.payloads["view-1A"]["views"][0]["title"] == EVIL
    sentence = next(
        attributes for _, attributes in page.tags if attributes.get("class") == "sentence"
    )
    assert sentence["dir"] == "auto"


def test_numbers_that_json_lacks_are_null():
    figures = StoryFigures("", "", {"views": [float("nan"), (1.0, float("inf"))]})
    section = StorySection("", "", "", (), "", "", (), [figures])
    assert Parsed(story_page("", [section])).payloads["view-1"] == {"views": [None, [1.0, None]]}


def test_what_is_not_computed_yet_is_named():
    view = opened(PROMPT, NAME)
    assert "not all is computed yet: ablation" in exported(drawn(view, waits=True)).text
    assert "not all is computed" not in exported(drawn(view)).text


def test_a_model_of_a_folder_has_its_name_and_no_path(monkeypatch):
    folder = str(offered.MODEL_FOLDER / NAME)
    monkeypatch.setattr(offered, "_sources", {"mine": folder})
    page = exported(drawn(replace(opened(PROMPT, NAME), model="mine")))
    assert "with mine from a folder of that machine" in page.text
    assert folder not in page.text + json.dumps(page.payloads)
    assert "folder of that machine" not in exported(drawn(opened(PROMPT, NAME))).text


# ---- the session -------------------------------------------------------------------------------


@pytest.fixture
def session() -> Callable[..., AppTest]:
    def opened(**address: str) -> AppTest:
        app = AppTest.from_file(str(APP), default_timeout=60)
        for name, value in {"model": NAME, "page": "weights", **address}.items():
            app.query_params[name] = value
        return app.run()

    return opened


def button(app: AppTest, label: str) -> Any:
    return next(each for each in app.button if each.label == label)


def test_views_are_added_from_any_page_and_listed_on_the_page_story(session):
    app = session()
    for sentence in ("one", "two"):
        app.text_area(key="story_sentence").set_value(sentence)
        button(app, "Add this view").click().run()
    assert [saved.sentence for saved in app.session_state["story"].views] == ["one", "two"]
    app.segmented_control(key="choose_page").set_value("story").run()
    assert not app.exception
    assert not app.error
    sentences = [area.value for area in app.text_area if area.label.startswith("View ")]
    assert sentences == ["one", "two"]
    app.button(key="story_Down_0").click().run()
    assert [saved.sentence for saved in app.session_state["story"].views] == ["two", "one"]
    area = next(area for area in app.text_area if area.label == "View 1")
    area.set_value("new").run()
    assert app.session_state["story"].views[0].sentence == "new"
    app.button(key="story_Remove_1").click().run()
    assert len(app.session_state["story"].views) == 1
    app.button(key="story_Open_0").click().run()
    assert app.session_state["view"].page == "weights"


def test_a_file_is_completed_for_the_models_here_and_others_are_left_out_with_a_note(session):
    from apps.explorer import story_panel  # noqa: PLC0415 - components need a session

    views = [View(page="weights", model=name, head=Head(9, 9)) for name in (NAME, "/etc/passwd")]
    text = Story("t", tuple(map(Saved, views))).to_json()
    story, notes = story_panel.opened({"text": text, "size": len(text)}, NAME)
    assert [saved.view.model for saved in story.views] == [NAME]
    assert story.views[0].view.head is None
    assert any("views[0].link: " in note and "no head L9H9" in note for note in notes)
    assert any("views[1].link: its model '/etc/passwd'" in note for note in notes)
    for sent in ({"text": text, "size": 2**30}, {"text": 5}, {}):
        with pytest.raises(InvalidInput):
            story_panel.opened(sent, NAME)


def test_a_prompt_too_long_for_a_link_is_not_added_in_silence(session):
    app = session(model="python-2l", page="weights")
    view = app.session_state["view"]
    app.session_state["view"] = replace(view, hidden="a" * (MAX_TEXT + 1))
    app.session_state["changed_here"] = True
    button(app, "Add this view").click().run()
    assert not app.session_state["story"].views
    assert any("shorten the prompt" in caption.value for caption in app.caption)
