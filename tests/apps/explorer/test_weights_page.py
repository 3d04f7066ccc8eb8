"""The page Weights: what it asks of a model, and that it shows the analyses' own numbers."""

import base64
from dataclasses import replace

import pytest
import torch
from architectures import in_turn

import interp
from analyses import composition, ov
from apps.explorer.default_views import default_view
from apps.explorer.page import Results
from apps.explorer.pages.weights import LARGE_VOCABULARY, SECTIONS, asks, on_pick, views
from apps.explorer.view import Head, View
from interp.loading import bundled, load
from interp.model.batch import Batch


class Now:
    """Jobs that are answered where they are looked at."""

    def run(self, question):
        return question.run(load(question.model))

    def look(self, question):
        raise NotImplementedError


def views_and_results(view: View) -> tuple[list[dict], Results]:
    model = load(view.model)
    asked = [replace(ask, long=False) for ask in asks(view, model)]
    results = Results.of(asked, Now())
    return views(view, model, results.results), results


@pytest.mark.parametrize("section", SECTIONS)
def test_each_section_shows_titled_views_with_ids_of_their_own(section):
    drawn, results = views_and_results(replace(default_view("rasp-reverse"), weights=section))
    assert not results.errors
    assert drawn
    assert len({drawing["id"] for drawing in drawn}) == len(drawn)
    assert all(drawing["title"] for drawing in drawn)


@pytest.mark.parametrize(("model", "section"), in_turn(bundled(), SECTIONS, [], 2))
def test_a_section_of_any_model_is_shown_or_refused_in_words(section, model):
    drawn, results = views_and_results(replace(default_view(model), weights=section))
    assert drawn or results.errors
    assert not any("bug" in error for error in results.errors.values())


def test_the_numbers_of_the_composition_are_those_of_the_analysis():
    view = replace(default_view("python-2l"), weights="composition", kind="K")
    (matrix,), _ = views_and_results(view)
    result = composition(load("python-2l"))
    excess = (result.composition - result.control)[1, :8, 8:]
    values = interp_values(matrix["values"])
    torch.testing.assert_close(values.double(), excess.double(), rtol=1e-6, atol=1e-7)
    assert (matrix["row_axis"], matrix["column_axis"]) == ("writer", "reader")
    assert "baseline" in matrix["title"]


def interp_values(encoded: dict) -> torch.Tensor:
    data = bytearray(base64.b64decode(encoded["data"]))
    dtype = getattr(torch, encoded["dtype"])
    return torch.frombuffer(data, dtype=dtype).reshape(encoded["shape"])


def test_a_searched_token_is_the_only_row():
    view = replace(default_view("python-2l"), head=Head(1, 0), token=" self")
    drawn, results = views_and_results(view)
    assert not results.errors
    maps = [drawing for drawing in drawn if drawing["kind"] == "matrix"]
    assert all(drawing["rows"] == ["·self"] for drawing in maps)


def test_a_token_that_splits_is_explained_beside_what_can_be_shown():
    view = replace(default_view("python-2l"), token="several words")
    drawn, results = views_and_results(view)
    assert not drawn
    assert all("several" in error for error in results.errors.values())


def model_of_vocabulary(size: int) -> interp.Transformer:
    attention, mlp = interp.AttentionConfig(2, 4), interp.MLPConfig(8)
    return interp.Transformer(
        interp.Config(8, size, 8, decoder=interp.StackConfig(2, attention, mlp))
    )


def test_of_a_large_vocabulary_jobs_answer_for_the_chosen_tokens_first():
    """For a token that is chosen, no other is asked for; of a small one, all are answered alone."""
    small, large = (model_of_vocabulary(LARGE_VOCABULARY + n) for n in (0, 1))
    view, chosen = View(model="m", text="x"), View(model="m", text="x", token="a")
    large.batch = lambda text, stack: Batch(torch.tensor([[5, 7, 5]]))
    asked = asks(view, large)
    assert [(ask.name, ask.long) for ask in asked] == [
        ("OV of the prompt", True),
        ("QK of the prompt", True),
        ("OV", True),
        ("QK", True),
    ]
    assert [dict(ask.question.settings).get("tokens") for ask in asked] == [(5, 7)] * 2 + [None] * 2
    assert [(ask.name, ask.long) for ask in asks(chosen, large)] == [("OV", True), ("QK", True)]
    assert [(ask.name, ask.long) for ask in asks(view, small)] == [("OV", False), ("QK", False)]


def test_the_largest_entries_replace_those_of_the_prompts_tokens():
    model = load("python-2l")
    first, every = (ov(model, 0, 0, tokens, top=8) for tokens in ([3, 4], None))
    view = replace(default_view("python-2l"), head=Head(0, 0))
    before = views(view, model, {"OV of the prompt": first})
    after = views(view, model, {"OV of the prompt": first, "OV": every})
    assert [drawing["id"] for drawing in before] == [drawing["id"] for drawing in after]
    assert before[0]["note"].startswith("Tokens of the prompt, until")
    assert after == views(view, model, {"OV": every})


def test_a_cell_opens_the_later_head():
    view = replace(default_view("python-2l"), weights="composition")
    picked = on_pick(view, {"pick": "cell", "view": "composition_map", "name": "L0H5, L1H2"})
    assert (picked.head, picked.weights) == (Head(1, 2), "head")
    assert on_pick(view, {"pick": "cell", "view": "x", "name": "mask"}) == view
