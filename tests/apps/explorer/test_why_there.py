"""Why there? The score of the chosen cell on the page Heads, and clicks on its terms."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from answered import answers, loaded, numbers, opened, views_by_id
from layout_shifts import assert_little_moved, watch_layout_shifts
from playwright.sync_api import Browser, expect

from analyses import explain_scores
from apps.explorer.choices import with_valid_choices
from apps.explorer.page import clicked
from apps.explorer.pages.heads import HEADS
from apps.explorer.pages.why import WHY
from apps.explorer.pages.why_there import CHECK, KEYS, MOST, WHY_THERE, WRITERS
from apps.explorer.validate import validated
from apps.explorer.view import Head, View, from_address
from tools.browser import TIMEOUT, Served, Visit, visit

ASKED = {"asked": (WHY_THERE,)}
CELL = {"head": Head(1, 0), "query": 15, "key": 9, **ASKED}
ATTENTIONS = [
    ("python-2l", "", Head(1, 0)),
    ("dates", "cross", Head(1, 0)),
    ("dates", "encoder", Head(1, 1)),
    ("dates", "decoder", Head(1, 1)),
]


def drawn(view: View) -> dict[str, dict]:
    results, errors = answers(HEADS, view)
    assert not errors
    return views_by_id(HEADS, view, results)


def terms_of(view: View, **settings: object):
    return explain_scores(loaded(view.model), view.text, *view.head, **settings)


def test_it_is_asked_on_request_alone():
    view = opened(HEADS, "python-2l", **CELL)
    names = {ask.name for ask in HEADS.asks(view, loaded(view.model))}
    assert {WHY_THERE, CHECK} <= names
    plain = {ask.name for ask in HEADS.asks(replace(view, asked=()), loaded(view.model))}
    assert not {WHY_THERE, CHECK, WRITERS} & plain
    assert all(
        ask.long
        for ask in HEADS.asks(replace(view, term="embed × embed"), loaded(view.model))
        if ask.name in (WHY_THERE, CHECK, WRITERS)
    )


@pytest.mark.parametrize("other", [None, 3])
def test_terms_are_those_of_the_analysis_and_sum_to_the_score(other):
    view = opened(HEADS, "python-4l", **CELL | {"head": Head(3, 2), "other_key": other})
    bars = drawn(view)[WHY_THERE]
    result = terms_of(view, query=15, key=9, other_key=other, by="layer")
    frame, values = result.to_frame(), numbers(bars["values"])
    assert bars["labels"][:MOST] == frame["name"][:MOST].tolist()
    np.testing.assert_allclose(values[:MOST], frame["effect"][:MOST], rtol=1e-6)
    assert bars["labels"][MOST] == f"{len(frame) - MOST} other terms"
    assert values.sum() == pytest.approx(float(result.value), abs=1e-4)
    against = "the mean of the other keys" if other is None else "key 3"
    assert f"against {against}" in bars["title"]


def test_without_a_chosen_cell_it_explains_the_one_that_the_pattern_marks():
    """The last query, and the key that it attends to most."""
    view = opened(HEADS, "python-2l", **CELL | {"query": None, "key": None})
    result = terms_of(view)
    assert result.score_line in drawn(view)[WHY_THERE]["title"]


@pytest.mark.parametrize(("name", "attention", "head"), ATTENTIONS)
def test_writers_at_either_end_sum_to_each_term(name, attention, head):
    view = opened(HEADS, name, **CELL | {"head": head, "query": None, "key": None})
    view = replace(view, attention=attention, term="embed × embed")
    results, _ = answers(HEADS, view)
    frame = results[WHY_THERE].to_frame().set_index("name")["effect"]
    assert len(frame) > 8
    for term, effect in frame[frame.index.str.contains(" × ")].items():
        view = replace(view, term=term)
        bars = views_by_id(HEADS, view, results)[WRITERS]
        values = dict(zip(bars["labels"], numbers(bars["values"]), strict=True))
        for end in ("query", "key"):
            total = sum(value for label, value in values.items() if f" at {end} " in label)
            assert total == pytest.approx(effect, abs=1e-5)


def test_a_click_on_a_term_then_on_a_head_selects_the_writer_where_it_wrote():
    view = opened(HEADS, "induction-by-hand", head=Head(1, 0), **ASKED)
    with_term, _ = clicked(HEADS, view, {"view": WHY_THERE, "pick": "row", "name": "a × L0 heads"})
    assert with_term.term == "a × L0 heads"
    pick = {"view": WHY_THERE, "pick": "row", "name": "embed × L0 heads"}
    with_term, _ = clicked(HEADS, view, pick)
    views = drawn(with_term)
    assert views[WHY_THERE]["labels"][views[WHY_THERE]["at"][0]] == with_term.term
    labels = views[WRITERS]["labels"]
    pick = {"view": WRITERS, "pick": "row", "name": "L0H0 at key 3"}
    assert pick["name"] in labels
    chosen, notes = clicked(HEADS, with_term, pick)
    assert (chosen.head, chosen.query, chosen.key, chosen.term) == (Head(0, 0), 3, None, "")
    assert not notes
    embedding, _ = clicked(HEADS, with_term, pick | {"name": "embed at query 12"})
    assert embedding == with_term
    again, _ = clicked(HEADS, with_term, {"view": WHY_THERE, "pick": "row", "name": with_term.term})
    assert again.term == ""


def test_a_writer_of_another_attention_is_selected_there():
    view = replace(opened(HEADS, "dates", **CELL), attention="cross", query=2, key=7)
    chosen, _ = clicked(
        HEADS, view, {"view": WRITERS, "pick": "row", "name": "encoder.L1H2 at key 7"}
    )
    assert (chosen.attention, chosen.head, chosen.query) == ("encoder", Head(1, 2), 7)


def test_a_click_on_a_key_compares_with_it_until_the_next():
    view = opened(HEADS, "python-2l", **CELL | {"query": None, "key": None})
    key = int(terms_of(view).cells["key"][0])
    other, _ = clicked(HEADS, view, {"view": KEYS, "pick": "key", "row": 3})
    assert (other.query, other.key, other.other_key) == (15, key, 3)
    assert drawn(other)[KEYS]["at"] == [3, 0]
    for row in (3, key):
        back, _ = clicked(HEADS, other, {"view": KEYS, "pick": "key", "row": row})
        assert back.other_key is None
    moved, _ = clicked(HEADS, other, {"pick": "selection", "query": 14, "key": 2})
    assert moved.other_key is None
    head, _ = clicked(HEADS, other, {"pick": "selection", "head": [0, 1]})
    assert head.other_key == 3


def test_predicted_attention_stands_beside_the_measured_one():
    view = opened(HEADS, "python-2l", **CELL)
    frame = terms_of(view, query=15, key=9, by="layer", check=3).to_check_frame()
    rows = drawn(view)[CHECK]["rows"]
    assert [row[0] for row in rows] == frame["name"].tolist()
    assert [float(row[4]) for row in rows] == pytest.approx(
        frame["predicted_pattern"].tolist(), abs=1e-3
    )
    assert [float(row[5]) for row in rows] == pytest.approx(
        frame["removed_pattern"].tolist(), abs=1e-3
    )


def test_heads_of_the_first_layer_have_no_check():
    """No head writes what they read, and biases are not removed."""
    view = opened(HEADS, "python-2l", **CELL | {"head": Head(0, 0)})
    views = drawn(view)
    assert CHECK not in views
    assert WHY_THERE in views


def test_a_masked_cell_has_a_message_in_place_of_a_score():
    view = opened(HEADS, "python-2l", **CELL | {"query": 4, "key": 9})
    results, errors = answers(HEADS, view)
    assert errors[WHY_THERE].startswith("Key 9 of prompt 0 is masked for query 4")
    assert WHY_THERE not in views_by_id(HEADS, view, results)


def test_the_first_query_sees_one_key_and_its_score_is_explained_alone():
    view = opened(HEADS, "python-2l", **CELL | {"query": 0, "key": 0})
    assert "against" not in drawn(view)[WHY_THERE]["title"]


def test_links_restore_it_and_name_what_cannot_be_read():
    view = opened(HEADS, "python-2l", **CELL | {"other_key": 3, "term": "L0 heads × embed"})
    read, notes = from_address(view.to_address())
    assert read == view
    assert not notes
    assert with_valid_choices(read, loaded(view.model), read)[0] == view
    _, notes = from_address({"term": "<img>"})
    assert "term" in notes[0]
    beyond, notes = validated(replace(view, other_key=99), loaded(view.model))
    assert beyond.other_key is None
    assert "other_key=99" in notes[0]


def test_attention_is_shown_on_the_keys_where_it_is_of_the_explained_run():
    """The terms are those of the plain run; masked keys have no attention."""
    view = opened(HEADS, "python-2l", **CELL | {"query": 10})
    weights = numbers(drawn(view)[KEYS]["values"])
    assert np.isnan(weights[11:]).all()
    assert weights[:11].sum() == pytest.approx(1)
    edited = replace(view, heads=(Head(0, 5),), ablated=True)
    results, _ = answers(HEADS, edited)
    assert "values" not in views_by_id(HEADS, edited, results)[KEYS]


def test_the_page_why_explains_the_pattern_of_a_chosen_node():
    """Its writers are chosen there as nodes of the graph."""
    view = opened(WHY, "induction-by-hand", traced="L1H0@12", query=12, key=3, **ASKED)
    results, errors = answers(WHY, view)
    assert not errors
    bars = views_by_id(WHY, view, results)[WHY_THERE]
    expected = terms_of(replace(view, head=Head(1, 0)), query=12, key=3, by="layer")
    assert expected.score_line in bars["title"]
    view = WHY.on_pick(view, {"view": WHY_THERE, "pick": "row", "name": bars["labels"][0]})
    chosen = WHY.on_pick(view, {"view": WRITERS, "pick": "row", "name": "L0H0 at key 3"})
    assert (chosen.traced, chosen.head, chosen.query) == ("L0H0@3", Head(0, 0), 3)
    names = {ask.name for ask in WHY.asks(replace(view, traced=""), loaded(view.model))}
    assert WHY_THERE not in names


# ---- in the browser --------------------------------------------------------------------------


@pytest.fixture
def visitor(chromium: Browser, server: Served) -> Iterator[Visit]:
    with visit(chromium, server, viewport=(1440, 900)) as visitor:
        yield visitor
        assert not visitor.outside
        assert not visitor.complaints


@pytest.mark.browser
def test_it_opens_below_the_panes_and_a_click_leads_to_the_writer(visitor, server):
    """Nothing moves when it opens; a term, then a head, are clicked on the canvas."""
    visitor.open(server.address(model="python-2l", page="heads", head="L1H0", query=15, key=9))
    visitor.finish()
    watch_layout_shifts(visitor)
    visitor.page.get_by_text("Why there?", exact=True).click()
    terms = visitor.view(WHY_THERE)
    terms.locator("canvas").first.wait_for(timeout=TIMEOUT)
    visitor.finish()
    assert_little_moved(visitor)
    box = terms.locator("[role=application], [tabindex='0']").first
    box.focus()
    box.press("ArrowDown")
    box.press("Enter")
    writers = visitor.view(WRITERS)
    writers.locator("canvas").first.wait_for(timeout=TIMEOUT)
    visitor.finish()
    box = writers.locator("[role=application], [tabindex='0']").first
    box.focus()
    box.press("ArrowDown")
    box.press("Enter")
    visitor.page.wait_for_url(lambda url: "head=L0H" in url, timeout=TIMEOUT)
    visitor.finish()
    expect(visitor.view("heads")).to_have_attribute("data-head", "0,5")


@pytest.mark.browser
def test_a_cell_step_by_step_in_dark_on_a_narrow_page(chromium, server):
    """Every step is drawn within 400 px, and Enter on the row chooses its key."""
    with visit(chromium, server, viewport=(400, 900), color_scheme="dark") as at:
        at.open(
            server.address(
                model="python-2l", page="heads", head="L1H0", query=15, key=9, asked="steps"
            )
        )
        at.finish()
        for step in ("products", "score", "row", "value", "tokens"):
            box = at.view(f"steps_{step}").bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 400
        row = at.view("steps_row").locator("[tabindex='0']").first
        row.focus()
        row.press("ArrowRight")
        row.press("Enter")
        at.page.wait_for_url(lambda url: "key=9" not in url, timeout=TIMEOUT)
        at.finish()
        assert not at.complaints
