"""What a bundled model opens with: the right answer, and the head that matters most."""

import pytest

import interp
from analyses import Ablation
from apps.explorer.default_views import EXAMPLES, OPENING, default_view, examples
from apps.explorer.offered import model_of
from apps.explorer.pages.heads import HEADS
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.questions import Question
from apps.explorer.validate import attention_of, validated
from interp import metrics
from interp.loading import bundled
from interp.model.attentions import attentions_of


def test_every_bundled_model_has_one():
    assert {*OPENING} == {*bundled()}


@pytest.mark.parametrize("name", OPENING)
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


@pytest.mark.parametrize("name", OPENING)
def test_the_head_is_that_of_the_largest_effect(name):
    view, model = default_view(name), model_of(name)
    (asked,) = (one.question for one in HEADS.asks(view, model) if one.name == "ablation")
    assert isinstance(asked, Question)
    result = asked.run(model)
    assert isinstance(result, Ablation)
    effects = result.to_frame().set_index("name")["effect"]
    kind = attentions_of(model, attention_of(view, model))
    assert view.head is not None
    assert effects.abs().idxmax() == kind.head_name(*view.head)
    assert effects.abs().max() > 0
    assert view.metric == interp.card(name).metric


def test_sweeps_run_over_the_models_own_prompts_or_its_prompt():
    for name, opening in OPENING.items():
        view, model = default_view(name), model_of(name)
        n = len(inputs_of(view, model, swept=True).prompts)
        assert n == (len(examples(name)) if opening.prompts == EXAMPLES else 1)


def test_a_checkpoint_opens_as_its_model():
    view, trained = default_view("python-2l@0"), default_view("python-2l")
    assert (view.text, view.head) == (trained.text, trained.head)
    assert view.model == "python-2l@0"
