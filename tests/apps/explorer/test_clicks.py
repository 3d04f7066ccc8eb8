"""A click is data from a browser: what fits no view is refused before any page reads it."""

import json
from typing import Any

import pytest
from answered import answers, loaded, opened, views_by_id
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.explorer.clicks import checked
from apps.explorer.navigation import PAGES
from apps.explorer.page import clicked
from apps.explorer.validate import heads_of
from apps.explorer.view import CONTRASTS, Head
from interp.errors import InvalidInput

NAME = "rasp-duplicates"
VIEWS: dict[str, Any] = {}


def views_of(page: str) -> tuple[Any, list[dict[str, Any]]]:
    """A view of a page, and the views that the widget draws there."""
    if page not in VIEWS:
        view = opened(PAGES[page], NAME)
        VIEWS[page] = (
            view,
            [*views_by_id(PAGES[page], view, answers(PAGES[page], view)[0]).values()],
        )
    return VIEWS[page]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda nested: (
        st.lists(nested, max_size=3) | st.dictionaries(st.text(max_size=4), nested, max_size=3)
    ),
    max_leaves=4,
)
names = st.sampled_from(["view", "pick", "row", "column", "name", "heads", "head", "x", "query"])
kinds = st.sampled_from(
    ["pin", "selection", "collect", "score", "contrast", "cell", "row", "position", "mask", "head"]
)
heads = st.lists(st.lists(st.integers(-1, 9), min_size=1, max_size=3), max_size=2)
plausible = st.fixed_dictionaries(
    {"pick": kinds},
    optional={
        "row": st.integers(-1, 40),
        "column": st.integers(-1, 40),
        "name": st.sampled_from(["L9H9", "L0H0", "node L0H0.q, position 1", "", "L0H0 → L1H0"]),
        "heads": heads,
        "head": st.none() | st.lists(st.integers(-1, 9), min_size=2, max_size=2),
        "x": st.floats(),
        "query": st.integers(-1, 99),
    },
)


@pytest.mark.parametrize("page", ["prompt", "heads", "why", "weights"])
@settings(max_examples=60, deadline=None)
@given(pick=st.dictionaries(names, values, max_size=6) | plausible | values, number=st.integers(0))
def test_any_click_is_applied_or_refused(page, pick, number):
    """The view that it leads to has only heads that the model has."""
    view, drawn = views_of(page)
    if isinstance(pick, dict) and "view" not in pick:
        pick = pick | {"view": drawn[number % len(drawn)]["id"]}
    try:
        clicked_view, _ = clicked(PAGES[page], view, checked(pick, drawn))
    except InvalidInput:
        return
    sizes = heads_of(clicked_view, loaded(NAME))
    for head in (clicked_view.head, *clicked_view.heads):
        assert head is None or head.head < sizes[head.layer]
    assert 0 <= clicked_view.contrast <= CONTRASTS


def test_a_click_on_each_view_is_accepted():
    view, drawn = views_of("prompt")
    for drawing in drawn:
        if drawing.get("pick"):
            pick = {
                "view": drawing["id"],
                "pick": drawing["pick"],
                "row": 0,
                "name": "",
                "heads": [],
            }
            assert checked(json.loads(json.dumps(pick)), drawn) == pick
    clicked_view, notes = clicked(
        PAGES["prompt"], view, checked({"view": "tokens", "pick": "position", "row": 1}, drawn)
    )
    assert (clicked_view.position, notes) == (1, ())


@pytest.mark.parametrize(
    "pick",
    [
        *("text", 1, None, [], {}, {"pick": "position"}, {"pick": "position", "view": "tokens"}),
        {"pick": "position", "view": "tokens", "row": 10_000},
        {"pick": "position", "view": "tokens", "row": -1},
        {"pick": "position", "view": "tokens", "row": True},
        {"pick": "position", "view": "elsewhere", "row": 0},
        {"pick": "cell", "view": "tokens", "row": 0},
        {"pick": "selection", "head": [0]},
        {"pick": "selection", "heads": [[0, "1"]]},
        {"pick": "collect", "heads": [[0, 0]] * 9999},
        {"pick": "contrast", "x": float("nan")},
        {"pick": "score"},
    ],
)
def test_what_is_no_click_is_refused(pick):
    with pytest.raises(InvalidInput, match="fits no view of the page"):
        checked(pick, views_of("prompt")[1])


def test_a_head_that_the_model_lacks_is_left_out_with_a_note():
    view, drawn = views_of("prompt")
    pick = checked({"pick": "selection", "head": [99, 99], "heads": [[0, 0], [7, 7]]}, drawn)
    clicked_view, notes = clicked(PAGES["prompt"], view, pick)
    assert (clicked_view.head, clicked_view.heads) == (None, (Head(0, 0),))
    assert len(notes) == 2
