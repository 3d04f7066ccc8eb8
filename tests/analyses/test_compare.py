"""The same question to two models: differences, row by row and prompt by prompt."""

from copy import deepcopy

import pandas as pd
import pytest
import torch
from architectures import build, covering, tokens_of

from analyses import (
    ablate,
    ablate_heads,
    attention_pattern,
    attention_statistics,
    attribute_edges,
    compare,
    direct_logit_attribution,
    head_roles,
    logit_lens,
    patch_activations,
)
from interp import load, metrics
from interp.errors import InvalidInput

A, B = "python-2l@400", "python-2l"
TEXTS = ["import os", "def f(x):", "return x", "a = b + c", "x, y = y, x", "if a: pass"]
PAIR = (["a b c a b"], ["a b d a b"])
LOGIT = metrics.logit(20)
ASKED = {
    "ablate": lambda model, texts: ablate(model, texts, metric=LOGIT),
    "ablate_heads": ablate_heads,
    "attention_pattern": lambda model, texts: attention_pattern(model, texts[0], 1, 0),
    "attention_statistics": attention_statistics,
    "attribute_edges": lambda model, _: attribute_edges(model, *PAIR, metric=LOGIT, check=3),
    "direct_logit_attribution": lambda model, texts: direct_logit_attribution(
        model, texts, target=20, by="source"
    ),
    "head_roles": lambda model, _: head_roles(model, rows=5),
    "logit_lens": logit_lens,
    "patch_activations": lambda model, _: patch_activations(model, *PAIR, metric=LOGIT),
}
COLUMN = {"attention_pattern": "pattern", "logit_lens": "kl"}


def compared(name, a=A, b=B):
    return compare(a, b, TEXTS, analysis=ASKED[name], column=COLUMN.get(name))


@pytest.mark.parametrize("name", ASKED)
def test_a_model_differs_from_itself_by_exactly_zero(name):
    found = compared(name, B, B)
    assert found.difference.nan_to_num().eq(0).all()
    assert found.summary().endswith("they are the same")
    assert found.models == (f"{B} (first)", f"{B} (second)")
    assert not found.to_frame()["significant"].any()


def test_in_another_precision_a_model_is_the_same():
    """What differs is rounding of the one with fewer digits, whichever comes first."""
    model = load(B)
    exact = deepcopy(model).double()
    for pair in ((model, exact), (exact, model)):
        found = compared("ablate_heads", *pair)
        assert found.difference.abs().max() > 1e-9
        assert found.summary().endswith("they are the same")
        assert not found.to_frame()["significant"].any()


@pytest.mark.parametrize("name", covering(ASKED, ["ablate_heads"]))
def test_the_other_way_round_differences_change_their_sign(name):
    """compare(a, b) = −compare(b, a), intervals included."""
    one, other = compared(name), compared(name, B, A)
    assert one.difference.nan_to_num().ne(0).any()
    torch.testing.assert_close(one.difference, -other.difference, rtol=0, atol=0, equal_nan=True)
    left, right = one.to_frame(), other.to_frame()
    swapped = {"a": "b", "b": "a", "low": "high", "high": "low"}
    right = right.rename(columns=swapped)[[*left]]
    for column in ("difference", "low", "high"):
        right[column] = -right[column]
    pd.testing.assert_frame_equal(left, right, rtol=1e-9)


def test_each_side_is_what_the_analysis_finds():
    found = compare(A, B, TEXTS)
    for name, own in ((A, found.a), (B, found.b)):
        expected = ablate_heads(load(name), TEXTS).effect.flatten(0, 1)
        torch.testing.assert_close(own, expected.double(), rtol=0, atol=0)
    frame = found.to_frame()
    assert frame["n"].eq(len(TEXTS)).all()
    assert (frame["low"] <= frame["difference"]).all()
    assert (frame["size"].diff().dropna() <= 0).all()
    assert len(found.to_prompt_frame()) == 16 * len(TEXTS)


def test_rows_are_joined_by_what_they_are_about_and_not_by_their_order():
    """Tables are sorted by size, which differs between the two."""
    found = compare(A, B, TEXTS)
    frames = [ablate_heads(load(name), TEXTS).to_frame().set_index("name") for name in (A, B)]
    assert list(frames[0].index) != list(frames[1].index)
    for row in found.to_frame().to_dict("records"):
        assert row["a"] == pytest.approx(frames[0]["effect"][row["name"]])
        assert row["b"] == pytest.approx(frames[1]["effect"][row["name"]])


def test_numbers_that_are_not_of_prompts_have_no_interval():
    frame = compared("head_roles").to_frame()
    assert frame["low"].isna().all()
    assert frame["n"].eq(1).all()
    assert "no numbers per prompt" in compared("head_roles").summary()


def test_both_sides_and_the_difference_share_one_scale():
    found = compare(A, B, TEXTS)
    (heatmap,) = found.figure().data
    shown = torch.tensor(heatmap.z)
    torch.testing.assert_close(shown[:, 1] - shown[:, 0], shown[:, 2])
    assert heatmap.zmax == -heatmap.zmin == shown.abs().max()
    assert list(found.figure().layout.xaxis.ticktext) == [A, B, "difference"]


@pytest.mark.parametrize(
    ("other", "analysis", "column", "said"),
    [
        ("python-4l", ablate_heads, None, "only python-4l has layer 2, 3; only python-4l has name"),
        ("python-2l", logit_lens, None, "column= is one of .*entropy"),
        ("python-2l", ablate_heads, "name", "no column 'name' of numbers"),
    ],
)
def test_what_can_not_be_joined_is_refused(other, analysis, column, said):
    with pytest.raises(InvalidInput, match=said):
        compare(A, other, TEXTS, analysis=analysis, column=column)


def test_other_prompts_are_refused():
    texts = iter([TEXTS, TEXTS[:5]])
    with pytest.raises(InvalidInput, match=r"on 6 prompts, .* on 5"):
        compare(A, B, analysis=lambda model: ablate_heads(model, next(texts)))


def test_models_of_other_heads_are_told_apart_by_axis():
    rows = tokens_of("gpt2")[0]
    with pytest.raises(InvalidInput, match=r"only .* has head 3"):
        compare(build("gpt2"), build("llama"), rows)
