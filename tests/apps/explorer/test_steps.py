"""A cell step by step on the page Heads: its figures are those of the analysis."""

from dataclasses import replace

import numpy as np
import pytest
from answered import answers, loaded, numbers, opened, views_by_id

from analyses import head_cell
from apps.explorer.choices import with_valid_choices
from apps.explorer.page import clicked
from apps.explorer.pages.heads import HEADS
from apps.explorer.pages.steps import ROW, STEPS
from apps.explorer.view import Head

CELL = {"head": Head(1, 0), "query": 15, "key": 9, "asked": (STEPS,)}


def test_it_is_asked_on_request_alone_and_as_a_job():
    view = opened(HEADS, "python-2l", **CELL)
    (asked,) = [ask for ask in HEADS.asks(view, loaded(view.model)) if ask.name == STEPS]
    assert asked.long
    plain = HEADS.asks(replace(view, asked=()), loaded(view.model))
    assert STEPS not in {ask.name for ask in plain}
    assert with_valid_choices(view, loaded(view.model), view)[0] == view


@pytest.mark.parametrize("key", [None, 9])
def test_each_step_is_a_figure_with_its_formula(key):
    view = opened(HEADS, "python-2l", **CELL | {"key": key, "query": 15})
    results, errors = answers(HEADS, view)
    assert not errors
    views = views_by_id(HEADS, view, results)
    cell = head_cell(loaded(view.model), view.text, 1, 0, query=15, key=key)
    for name, formula in cell.formulas().items():
        assert formula in views[f"{STEPS}_{name}"]["note"]
    products, total = (panel["curves"][0] for panel in views[f"{STEPS}_products"]["panels"][1:])
    np.testing.assert_allclose(numbers(products["y"]), cell.products, rtol=1e-6)
    assert numbers(total["y"])[-1] == pytest.approx(float(cell.scores[cell.key]), rel=1e-4)
    score = views[f"{STEPS}_score"]
    assert score["labels"] == ["content", "rotation", "score"]
    attention = views[ROW]["panels"][1]["curves"][0]
    np.testing.assert_allclose(numbers(attention["y"]), cell.pattern, rtol=1e-6)
    assert views[ROW]["marked"] == [cell.key]
    assert views[f"{STEPS}_tokens"]["labels"] == [*cell.token_labels]


def test_a_click_on_the_row_chooses_its_key():
    view = opened(HEADS, "python-2l", **CELL | {"other_key": 3})
    chosen, notes = clicked(HEADS, view, {"view": ROW, "pick": "x", "x": 4.2})
    assert (chosen.key, chosen.query, chosen.other_key) == (4, 15, None)
    assert not notes
    beyond, notes = clicked(HEADS, view, {"view": ROW, "pick": "x", "x": 99})
    assert beyond.key is None
    assert "key=99" in notes[0]


def test_the_cells_of_cross_attention_have_their_tokens():
    view = replace(opened(HEADS, "dates", **CELL), attention="cross", query=2, key=7)
    results, errors = answers(HEADS, view)
    assert not errors
    views = views_by_id(HEADS, view, results)
    assert "cross.L1H0 from query 2 to key 7" in views[f"{STEPS}_products"]["title"]


def test_a_masked_cell_has_a_message_in_place_of_a_score():
    view = opened(HEADS, "python-2l", **CELL | {"query": 4})
    results, errors = answers(HEADS, view)
    assert errors[STEPS].startswith("Key 9 is masked for query 4")
    assert ROW not in views_by_id(HEADS, view, results)
