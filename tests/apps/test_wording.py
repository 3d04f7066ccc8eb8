"""The words say what the numbers do."""

import pytest

from apps.wording import conclusion, decimals, ranked_heads, role, signed

YES, NO = [1.0, 1.1, 0.9], [0.5, -0.5, 0.0]


def test_the_heads_that_matter_are_named(finding):
    assert conclusion(finding([NO, YES, [-2.0, -2.2, -1.8]])) == (
        "Two of 3 heads matter on these 3 prompts: L0H2 (-2.00 nats) and L0H1 (+1.00 nats). "
        "Ablating any other head leaves the loss within noise of 2 nats, its value without "
        "ablation."
    )


def test_one_head_matters(finding):
    assert conclusion(finding([NO, YES])).startswith(
        "One of 2 heads matters on these 3 prompts: L0H1"
    )


def test_no_head_matters(finding):
    assert conclusion(finding([NO, NO])).startswith("No head matters on these 3 prompts")


def test_all_heads_matter(finding):
    said = conclusion(finding([YES, YES]))
    assert said.startswith("Two of 2 heads matter")
    assert "any other" not in said


def test_many_heads_are_counted_and_some_named(finding):
    said = conclusion(finding([YES] * 9))
    assert said.startswith("9 of 9 heads matter")
    assert said.count("L0H") == 3


def test_one_prompt_is_no_evidence(finding):
    result = finding([[1.0], [3.0]])
    assert not any(head.matters for head in ranked_heads(result))
    assert "no head can be said to matter" in conclusion(result)
    assert "L0H1 (+3.00 nats)" in conclusion(result)


def test_a_rising_loss_means_that_the_head_helps(finding):
    first, second, third = ranked_heads(finding([[-2.0, -2.1], YES[:2], NO[:2]]))
    assert [role(head, "loss") for head in (first, second, third)] == [
        "hurts",
        "helps",
        "within noise",
    ]
    assert role(first, "logit difference") == "helps"


@pytest.mark.parametrize(("largest", "places"), [(0.0, 3), (123.4, 1), (1.5, 2), (0.0123, 4)])
def test_three_digits_of_the_largest_effect_are_shown(finding, largest, places):
    assert decimals(ranked_heads(finding([[largest, largest]]))) == places


def test_zero_has_no_sign():
    assert signed(-0.0001, 2) == signed(0.0001, 2) == "0.00"
