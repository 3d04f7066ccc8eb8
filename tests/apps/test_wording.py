"""The words say what the numbers do."""

import pytest

from analyses.results.number_text import signed
from apps.presentation import conclusion
from apps.wording import (
    decimals,
    explanation,
    head_table,
    ranked_heads,
    role,
)

YES, NO = [1.0, 1.1, 0.9, 1.05, 0.95], [0.5, -0.5, 0.0, 0.25, -0.15]


def test_the_largest_effects_are_named_with_how_many_are_large_and_significant(finding):
    assert conclusion(finding([NO, YES, [-2.0, -2.2, -1.8, -2.1, -1.9]])) == (
        "The largest effects of 3 heads on 5 prompts: L0H2 (−2.00 nats), L0H1 (+1.00 nats) and "
        "L0H0 (+0.02 nats). The loss without ablation is 2 nats, which 3 of 3 heads change by 10 % "
        "or more. 2 of 3 effects significant (q ≤ 0.05)."
    )


def test_large_effects_come_first_whether_or_not_they_are_significant(finding):
    """And small ones count as small, however significant they are."""
    small = [0.01 * effect for effect in YES]
    text = conclusion(finding([small, [3.0, -1.0, 2.5, -2.0, 0.5]]))
    assert "5 prompts: L0H1 (+0.60 nats) and L0H0 (+0.01 nats)" in text
    assert "1 of 2 heads change by 10 % or more. 1 of 2 effects significant" in text


def test_no_head_has_an_effect(finding):
    text = conclusion(finding([[0.0] * 5] * 2))
    assert text == "None of 2 heads has an effect on 5 prompts: the loss stays 2 nats."


def test_of_many_heads_three_are_named(finding):
    assert conclusion(finding([YES] * 9)).count("L0H") == 3


@pytest.mark.parametrize("n", [1, 2, 4])
def test_few_prompts_list_sizes_without_intervals(finding, n):
    result = finding([[1.0] * n, [3.0] * n])
    assert not any(head.significant for head in ranked_heads(result))
    prompts = "1 prompt" if n == 1 else f"{n} prompts"
    assert f" on {prompts}: L0H1 (+3.00 nats) and L0H0 (+1.00 nats)." in conclusion(result)
    assert conclusion(result).endswith("There are no intervals with fewer than 5 prompts.")
    assert "With fewer than 5 prompts there are no intervals" in explanation(result)
    _, rows = head_table(result, top=2)
    assert rows[0] == ("L0H1", "+3.00", "–", "3.00", "150 %", "–", "–")


def test_the_heads_to_expect_by_chance_are_counted(finding):
    """Those without any effect can't seem to have one."""
    result = finding([NO] * 19 + [YES] + [[0.0] * 5] * 20)
    assert "about 1 of the heads would have p ≤ 0.05" in explanation(result)


def test_a_head_that_helps_on_some_prompts_and_hurts_on_others_is_mentioned(finding):
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
        *("head", "effect (nats)", "95 % interval", "size", "share", "q", "significant")
    ]
    assert rows == [
        ("L0H0", "+1.00", "+0.90 to +1.10", "1.00", "50 %", "< 0.001", "* helps"),
        ("L0H1", "+0.02", "−0.48 to +0.48", "0.28", "14 %", "0.913", "no"),
    ]


def test_a_rising_loss_means_that_the_head_helps(finding):
    first, second, third = ranked_heads(finding([[-2.0, -2.1, -1.9, -2.0, -2.05], YES, NO]))
    assert [role(head, "loss") for head in (first, second, third)] == [
        "* hurts",
        "* helps",
        "no",
    ]
    assert role(first, "logit difference") == "* helps"


@pytest.mark.parametrize(("largest", "places"), [(0.0, 3), (123.4, 1), (1.5, 2), (0.0123, 4)])
def test_three_digits_of_the_largest_effect_are_shown(finding, largest, places):
    assert decimals(ranked_heads(finding([[largest, largest]]))) == places


def test_zero_has_no_sign():
    assert signed(-0.0001, 2) == signed(0.0001, 2) == "0.00"
