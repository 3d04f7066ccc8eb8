"""The words say what the numbers do."""

import pytest

from apps.frame_table import signed
from apps.wording import (
    conclusion,
    decimals,
    explanation,
    head_table,
    ranked_heads,
    role,
)

YES, NO = [1.0, 1.1, 0.9, 1.05, 0.95], [0.5, -0.5, 0.0, 0.25, -0.15]


def test_the_heads_that_matter_are_named(finding):
    assert conclusion(finding([NO, YES, [-2.0, -2.2, -1.8, -2.1, -1.9]])) == (
        "Two of 3 heads matter on these 5 prompts: L0H2 (-2.00 nats) and L0H1 (+1.00 nats). "
        "Ablating any other head leaves the mean loss within noise of 2 nats, its value without "
        "ablation."
    )


def test_one_head_matters(finding):
    assert conclusion(finding([NO, YES])).startswith(
        "One of 2 heads matters on these 5 prompts: L0H1"
    )


def test_no_head_matters(finding):
    assert conclusion(finding([NO, NO])).startswith("No head matters on these 5 prompts")


def test_all_heads_matter(finding):
    said = conclusion(finding([YES, YES]))
    assert said.startswith("Two of 2 heads matter")
    assert "any other" not in said


def test_many_heads_are_counted_and_some_named(finding):
    said = conclusion(finding([YES] * 9))
    assert said.startswith("9 of 9 heads matter")
    assert said.count("L0H") == 3


@pytest.mark.parametrize("n", [1, 2, 4])
def test_few_prompts_are_no_evidence(finding, n):
    result = finding([[1.0] * n, [3.0] * n])
    assert not any(head.matters for head in ranked_heads(result))
    given = "One prompt gives" if n == 1 else f"{n} prompts give"
    assert conclusion(result).startswith(f"{given} no interval, so no head can be said to matter.")
    assert "L0H1 (+3.00 nats)" in conclusion(result)
    assert "With fewer than 5 prompts there are no intervals" in explanation(result)
    _, rows = head_table(result, top=2)
    assert rows[0] == ("L0H1", "+3.00", "–", "3.00", "–", "within noise")


def test_the_heads_to_expect_by_chance_are_counted(finding):
    """Those without any effect can't seem to have one."""
    result = finding([NO] * 19 + [YES] + [[0.0] * 5] * 20)
    assert "about 1 of the heads would have p ≤ 0.05" in explanation(result)


def test_a_head_that_helps_on_some_prompts_and_hurts_on_others_is_told(finding):
    both = [9.0, -9.0, 8.0, -8.0, 0.5]
    for heads in ([YES, both], [NO, both]):
        assert conclusion(finding(heads)).endswith(
            " L0H1 changes it by 6.9 nats per prompt on average, but up on some prompts and down "
            "on others."
        )
    assert "up on some" not in conclusion(finding([YES, NO]))


def test_a_table_has_sizes_and_corrected_p_values(finding):
    columns, rows = head_table(finding([YES, NO]), top=2)
    assert [title for title, _ in columns] == [
        *("head", "effect (nats)", "95 % interval", "size", "q", "matters")
    ]
    assert rows == [
        ("L0H0", "+1.00", "+0.90 to +1.10", "1.00", "< 0.001", "helps"),
        ("L0H1", "+0.02", "-0.49 to +0.48", "0.28", "0.913", "within noise"),
    ]


def test_a_rising_loss_means_that_the_head_helps(finding):
    first, second, third = ranked_heads(finding([[-2.0, -2.1, -1.9, -2.0, -2.05], YES, NO]))
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
