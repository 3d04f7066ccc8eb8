"""Numbers as text: what is written, and that every part of a result writes the same."""

import pytest
from tables import each

from analyses import ablate, ablate_heads, direct_logit_attribution, patch_activations
from analyses.results.number_text import fixed, number, percent, signed
from apps.presentation import table
from interp import load, metrics

MODEL = "induction-by-hand"
TEXTS = ["QxmvQxm", "abcab", "xyzxy", "mnmn", "cbacba", "ababa"]


@each(
    ("value", "text"),
    [
        (-0.00012346, "−0.0001235"),
        (1234.5, "1235"),
        (12344, "12340"),
        (1e-9, "1e−9"),
        (-2.5e7, "−2.5e7"),
        (-0.0, "0"),
        (float("nan"), "–"),
        (float("-inf"), "−∞"),
    ],
)
def test_a_number_has_significant_digits_and_a_minus_sign(value, text):
    assert number(value) == text


def test_signs_and_percentages():
    assert (number(0.5, sign=True), number(0.0, sign=True)) == ("+0.5", "0")
    assert (signed(-0.001, 2), fixed(-0.001, 2), signed(0.126, 2)) == ("0.00", "0.00", "+0.13")
    assert (percent(0.4), percent(-0.0123, 1)) == ("40 %", "−1.2 %")


WRITTEN = {
    "ablate": lambda model: ablate(model, TEXTS, units="layers", method="zero"),
    "ablate_heads": lambda model: ablate_heads(model, TEXTS, method="zero"),
    "direct_logit_attribution": lambda model: direct_logit_attribution(model, TEXTS, target="c"),
    "patch_activations": lambda model: patch_activations(
        model, "abcxab", "abdxab", metric=metrics.logit(3)
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_summary_table_and_hover_write_the_same_number(name):
    """The largest effect, with its sign and digits."""
    result = WRITTEN[name](load(MODEL))
    columns, rows = table(result)
    titles = [title.split(" (")[0] for title, _ in columns]
    text = rows[0][titles.index("effect")].split()[0]
    drawn = result.figure().data[0]
    hovers = [cell for row in drawn.customdata for cell in row]
    assert text.startswith(("+", "−"))
    assert f" {text}" in result.summary()
    assert text in hovers
