"""A question is compared by what it asks, and its code gives the same numbers."""

from dataclasses import replace

import pytest
import torch

from analyses import ablate, attention_pattern, attribute_edges, prune
from apps.explorer.questions import Question, question
from interp.loading import load
from interp.metrics import logit_diff, loss

MODEL = "induction-by-hand"


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (question(ablate, MODEL, ["abcab", "xyzxy"], method="zero"), "ablated"),
        (question(ablate, MODEL, ["abcab"], metric=logit_diff(3, 4, pos=-1)), "ablated"),
        (question(ablate, MODEL, ["abcab"], metric=loss()), "ablated"),
        (question(attention_pattern, MODEL, "abcab", 1, 2), "pattern"),
    ],
)
def test_the_code_of_a_question_gives_its_numbers(asked, field):
    names: dict[str, object] = {}
    exec(asked.code(), names)
    expected = asked.run(load(MODEL))
    values = getattr(names["result"], field)
    torch.testing.assert_close(values, getattr(expected, field), rtol=0, atol=0)


def test_equal_questions_are_equal_and_others_are_not():
    def asked(texts: object, name: str = MODEL, distractor: int = 4) -> Question:
        return question(ablate, name, texts, metric=logit_diff((3,), (distractor,)), layers=[0, 1])

    assert asked(["ab"]) == asked(("ab",))
    assert hash(asked(["ab"])) == hash(asked(("ab",)))
    others = [asked(["ba"]), asked(["ab"], f"{MODEL}@1"), asked(["ab"], distractor=5)]
    assert all(asked(["ab"]) != other for other in others)


def test_an_encoder_decoder_is_asked_by_pairs():
    asked = question(ablate, "dates", (("20 January 2030",), ("2030",)))
    assert "(['20 January 2030'], ['2030'])" in asked.code()
    names: dict[str, object] = {}
    exec(asked.code(), names)
    expected = asked.run(load("dates")).ablated
    torch.testing.assert_close(names["result"].ablated, expected, rtol=0, atol=0)


def test_a_question_may_take_the_scores_of_another():
    pairs = (["abcab"], ["abdab"])
    scored = question(attribute_edges, MODEL, *pairs, metric=logit_diff(3, 4), check=0)
    asked = replace(question(prune, MODEL, *pairs, metric=logit_diff(3, 4)), scored_by=scored)
    names: dict[str, object] = {}
    exec(asked.code(), names)
    model = load(MODEL)
    expected = prune(scored.run(model).scores, model, *pairs, metric=logit_diff(3, 4))
    for result in (names["result"], asked.run(model)):
        assert result.to_frame().equals(expected.to_frame())
    other = question(attribute_edges, MODEL, *pairs, metric=logit_diff(3, 4), method="eap")
    assert asked != replace(asked, scored_by=other)
