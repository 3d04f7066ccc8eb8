"""What a prompt that is entered alone gets: a distractor, and corrupted prompts that align."""

from dataclasses import replace

import pytest
import torch

import interp
from apps.explorer.default_views import PAIRS, default_view, first_right, opening_prompt
from apps.explorer.offered import model_of
from apps.explorer.pages.patch import PATCH
from apps.explorer.sidebar import FIELDS, submitted
from apps.explorer.suggested import (
    suggested_distractor,
    suggested_swaps,
    swaps,
    with_suggestions,
)
from apps.explorer.view import View
from interp.errors import InvalidInput
from interp.prompts import Prompt

IOI = "When Mary and John went to the store, John gave a drink to"
SMOL = "smollm2-135m"


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (IOI, "When Mary and John went to the store, Mary gave a drink to"),
        ("Zoe met Adam. Then Zoe told", "Zoe met Adam. Then Adam told"),
        ("Mary saw John at the", "John saw Mary at the"),
        ("The capital of France is the city of", "The capital of Germany is the city of"),
        ("The boys near the car", "The boy near the car"),
        ("The war lasted from the year 1742 to", "The war lasted from the year 1797 to"),
        ("x = 3", "x = 8"),
    ],
)
def test_the_first_swap_is_the_likeliest_contrast(text, first):
    """The name that occurs twice, the two names, a word of a class, a number."""
    offers = [*swaps(text)]
    assert offers[0].text == first
    assert all(swap.text != text for swap in offers)


@pytest.mark.parametrize("text", ["", "the cat sat on", "Then it rained.", "abcabc"])
def test_a_text_without_such_words_has_no_swap(text):
    assert not [*swaps(text)]


def test_only_prompts_with_as_many_tokens_are_suggested():
    """``Mary`` has other tokens than ``Zoe`` in a vocabulary of Python."""
    model = model_of("python-2l")
    view = View(model="python-2l", text="def Mary(x): return 1742")
    texts = {swap.text for swap in swaps(view.text)}
    suggested = {swap.text for swap in suggested_swaps(view, model)}
    assert suggested < texts
    length = model.to_tokens(view.text).shape[1]
    for text in texts:
        is_aligned = model.to_tokens(text).shape[1] == length
        assert is_aligned or text not in suggested


def test_what_was_entered_is_kept_and_the_rest_filled():
    model = model_of("python-2l")
    before = View(model="python-2l", text="x = 1", target=" 1", distractor=" 2", corrupt="x = 2")
    fields = {name: getattr(before, name) for name in FIELDS}
    new = with_suggestions(submitted(before, fields | {"text": "def f(x, 3"}), model)
    assert (new.target, new.corrupt) == ("", "def f(x, 8")
    id_ = model.to_single_token(new.distractor)
    logits = interp.run(model, new.text).require_logits()[0, -1]
    assert id_ == int(logits.topk(2).indices[1])
    entered = fields | {"text": "def f(x, 3", "distractor": "(", "corrupt": "def f(y, 3"}
    kept = with_suggestions(submitted(before, entered), model)
    assert (kept.distractor, kept.corrupt) == ("(", "def f(y, 3")


def test_a_target_that_is_not_the_most_probable_token_is_compared_with_it():
    model = model_of("python-2l")
    view = View(model="python-2l", text="def f(x, 3", target=" for")
    first = int(interp.run(model, view.text).require_logits()[0, -1].argmax())
    assert model.to_single_token(suggested_distractor(view, model)) == first


def test_the_other_name_of_the_prompt_is_the_distractor():
    """Words that are capitalized within a sentence are names; these two are tokens."""
    model = model_of("python-2l")
    view = View(model="python-2l", text="When None met Error, None told", target="Error")
    assert suggested_distractor(view, model) == "None"
    at_the_start = replace(view, text="None. Error told")
    assert suggested_distractor(at_the_start, model) != "None"


def test_a_pair_of_stacks_gets_no_suggestion():
    view = replace(default_view("dates"), distractor="", corrupt="")
    model = model_of("dates")
    assert with_suggestions(view, model) == view
    assert suggested_swaps(view, model) == []


def test_the_page_patch_offers_swaps_and_a_click_takes_one():
    model = model_of("python-2l")
    view = View("patch", "python-2l", text="x = 1742 + 1742")
    drawings = PATCH.views(view, model, {})
    (table,) = (drawing for drawing in drawings if drawing["id"] == "swaps")
    assert [row[0] for row in table["rows"]] == ["1742 → 1797", "1742 → 1797"]
    taken = PATCH.on_pick(view, {"view": "swaps", "pick": "row", "row": 1, "name": ""})
    assert taken == replace(view, corrupt="x = 1742 + 1797")
    assert "swaps" not in {
        drawing["id"] for drawing in PATCH.views(replace(view, prompts="examples"), model, {})
    }


def test_a_model_opens_on_the_first_pair_that_it_answers_right(monkeypatch):
    model = model_of("python-2l")
    assert first_right(model, PAIRS) is None
    assert opening_prompt(model).text == IOI
    top = int(interp.run(model, "x = 3").require_logits()[0, -1].argmax())
    right = Prompt("x = 3", target=str(model.to_string([top])), corrupt="x = 8")
    monkeypatch.setattr("apps.explorer.default_views.PAIRS", (PAIRS[2], right))
    assert opening_prompt(model) == right


def test_untrained_weights_open_on_a_readable_sentence():
    trained = interp.load("python-2l")
    model = interp.Transformer(trained.config, tokenizer=trained.tokenizer)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    assert opening_prompt(model).text == IOI


@pytest.mark.real
def test_smollm2_is_asked_without_setup():
    """The other name is the distractor, the corrupted prompt names the other person."""
    model = model_of(SMOL)
    view = with_suggestions(View(model=SMOL, text=IOI), model)
    assert (view.target, view.distractor) == ("", " John")
    assert view.corrupt == "When Mary and John went to the store, Mary gave a drink to"
    assert [pair.target for pair in PAIRS if first_right(model, [pair])] == [
        " Mary",
        " chair",
        " Paris",
    ]
    opened = default_view(SMOL)
    assert first_right(model, [PAIRS[0]]) is not None
    logits = interp.run(model, opened.text).require_logits()[0, -1]
    assert int(logits.argmax()) == model.to_single_token(opened.target)


def test_a_damaged_chat_template_gives_no_suggestion(monkeypatch):
    def refuse(*_, **__):
        raise InvalidInput("the template is damaged")

    model = model_of("python-2l")
    monkeypatch.setattr("apps.explorer.suggested.text_read", refuse)
    assert suggested_swaps(View(model="python-2l", text="x = 1742"), model) == []
