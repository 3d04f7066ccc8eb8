"""What a bundled model opens with: the right answer, and the head that matters most."""

import pytest
from architectures import covering

import interp
from analyses import Ablation
from analyses.methods.heads import attentions_of
from apps.explorer.default_views import (
    CORRUPT,
    EXAMPLES,
    OPENING,
    SENTENCE,
    default_view,
    examples,
    opening_prompt,
)
from apps.explorer.offered import model_of
from apps.explorer.pages.heads import HEADS
from apps.explorer.pages.view_inputs import inputs_of, prompt_problem
from apps.explorer.questions import Question
from apps.explorer.validate import attention_of, validated
from apps.explorer.view import View
from interp import metrics
from interp.loading import bundled, load

SOME = ("python-4l", "rasp-reverse", "dates")
"""Models of each kind; the tests of the others are slow."""


def test_every_bundled_model_has_one():
    assert {*OPENING} == {*bundled()}


@pytest.mark.parametrize("name", covering(OPENING, SOME))
def test_the_model_is_right_there(name):
    view, model = default_view(name), model_of(name)
    assert validated(view, model) == (view, ())
    inputs = inputs_of(view, model)
    is_right = metrics.accuracy(inputs.tokens("target"))
    assert interp.sweep(model, inputs.batch, [[]], is_right).baseline.tolist() == [1.0]


def test_a_date_is_written_as_its_prompt_has_it():
    """The target is one character: what comes before and after it is right as well."""
    view, model = default_view("dates"), model_of("dates")
    written = model.to_string(model.generate(model.to_tokens(view.text), max_new_tokens=11)[0])
    assert view.text == "26 January 1968"
    assert "1968-01-26" in written
    assert "1968-01-26".startswith(view.prefix + view.target)


@pytest.mark.parametrize("name", covering(OPENING, SOME))
def test_the_head_is_that_of_the_largest_effect(name):
    view, model = default_view(name), model_of(name)
    (asked,) = (ask.question for ask in HEADS.asks(view, model) if ask.name == "ablation")
    assert isinstance(asked, Question)
    result = asked.run(model)
    assert isinstance(result, Ablation)
    effects = result.to_frame().set_index("name")["effect"]
    kind = attentions_of(model, attention_of(view, model))
    assert view.head is not None
    assert effects.abs().idxmax() == kind.head_name(*view.head)
    assert effects.abs().max() > 0
    assert view.metric == interp.card(name).metric


@pytest.mark.slow
def test_sweeps_run_over_the_models_own_prompts_or_its_prompt():
    for name, opening in OPENING.items():
        view, model = default_view(name), model_of(name)
        n = len(inputs_of(view, model, swept=True).prompts)
        assert n == (len(examples(name)) if opening.prompts == EXAMPLES else 1)


def test_a_checkpoint_opens_as_its_model():
    view, trained = default_view("python-2l@0"), default_view("python-2l")
    assert (view.text, view.head) == (trained.text, trained.head)
    assert view.model == "python-2l@0"


@pytest.mark.parametrize("name", ["python-2l", "python-mlm", "induction-by-hand", "dates"])
def test_a_model_without_prompts_opens_on_a_sentence_that_it_can_read(name):
    """Here the bundled models, without their own prompts; a small vocabulary lacks the words."""
    model = load(name)
    prompt = opening_prompt(model)
    fields = {"text": prompt.text, "prefix": prompt.prefix or "", "corrupt": prompt.corrupt or ""}
    view = View(model=name, **fields)
    assert prompt_problem(view, model) == ""
    if name in ("induction-by-hand", "dates"):
        first, second = prompt.text[: len(prompt.text) // 2], prompt.text[len(prompt.text) // 2 :]
        assert first == second
        assert first
        return
    ids = model.to_tokens(prompt.text)[0].tolist()
    if name == "python-mlm":
        assert ids.count(model.config.tokens.mask) == 1
        assert prompt.text.startswith(SENTENCE)
    else:
        same_length = len(ids) == model.to_tokens(CORRUPT).shape[1]
        assert (prompt.text, prompt.corrupt) == (SENTENCE, CORRUPT if same_length else None)


def test_the_decoder_of_a_pair_continues_the_sentence():
    """A model of random weights whose vocabulary has every letter of the sentence."""
    stack = interp.StackConfig(1, interp.AttentionConfig(2, 4))
    config = interp.Config(8, 512, 200, encoder=stack, decoder=stack)
    model = interp.Transformer(config, tokenizer=load("python-2l").tokenizer)
    prompt = opening_prompt(model)
    view = View(model="pair", text=prompt.text, prefix=prompt.prefix or "")
    assert prompt_problem(view, model) == ""
    assert "prefix" in prompt_problem(View(model="pair", text=prompt.text), model)


def test_models_that_read_no_text_say_what_can_be_shown():
    stack = interp.StackConfig(1, interp.AttentionConfig(2, 4))
    model = interp.Transformer(interp.Config(8, 7, 5, decoder=stack))
    assert opening_prompt(model).text == ""
    assert "no tokenizer" in prompt_problem(View(model="mine"), model)
