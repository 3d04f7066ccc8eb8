"""The same question to two models: differences, row by row and prompt by prompt."""

from copy import deepcopy

import pandas as pd
import pytest
import torch
from architectures import build, covering, tokens_of
from declared import Call, Command, Declared, Made, Symmetric, Without, odd, small

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
    comparison = compared(name, B, B)
    assert comparison.difference.nan_to_num().eq(0).all()
    assert comparison.summary().endswith("they are the same")
    assert comparison.models == (f"{B} (first)", f"{B} (second)")
    assert not comparison.to_frame()["significant"].any()


def test_in_another_precision_a_model_is_the_same():
    """What differs is rounding of the one with fewer digits, whichever comes first."""
    model = load(B)
    exact = deepcopy(model).double()
    for pair in ((model, exact), (exact, model)):
        comparison = compared("ablate_heads", *pair)
        assert comparison.difference.abs().max() > 1e-9
        assert comparison.summary().endswith("they are the same")
        assert not comparison.to_frame()["significant"].any()


@pytest.mark.parametrize("name", covering(ASKED, ["ablate_heads"]))
def test_the_other_way_round_differences_change_their_sign(name):
    """compare(a, b) = −compare(b, a), intervals included."""
    forward, backward = compared(name), compared(name, B, A)
    assert forward.difference.nan_to_num().ne(0).any()
    torch.testing.assert_close(
        forward.difference, -backward.difference, rtol=0, atol=0, equal_nan=True
    )
    left, right = forward.to_frame(), backward.to_frame()
    swapped = {"a": "b", "b": "a", "low": "high", "high": "low"}
    right = right.rename(columns=swapped)[[*left]]
    for column in ("difference", "low", "high"):
        right[column] = -right[column]
    pd.testing.assert_frame_equal(left, right, rtol=1e-9)


def test_each_side_is_what_the_analysis_finds():
    comparison = compare(A, B, TEXTS)
    for name, side in ((A, comparison.a), (B, comparison.b)):
        expected = ablate_heads(load(name), TEXTS).effect.flatten(0, 1)
        torch.testing.assert_close(side, expected.double(), rtol=0, atol=0)
    frame = comparison.to_frame()
    assert frame["n"].eq(len(TEXTS)).all()
    assert (frame["low"] <= frame["difference"]).all()
    assert (frame["size"].diff().dropna() <= 0).all()
    assert len(comparison.to_prompt_frame()) == 16 * len(TEXTS)


def test_rows_are_joined_by_what_they_are_about_and_not_by_their_order():
    """Tables are sorted by size, which differs between the two."""
    comparison = compare(A, B, TEXTS)
    frames = [ablate_heads(load(name), TEXTS).to_frame().set_index("name") for name in (A, B)]
    assert list(frames[0].index) != list(frames[1].index)
    for row in comparison.to_frame().to_dict("records"):
        assert row["a"] == pytest.approx(frames[0]["effect"][row["name"]])
        assert row["b"] == pytest.approx(frames[1]["effect"][row["name"]])


def test_numbers_that_are_not_of_prompts_have_no_interval():
    frame = compared("head_roles").to_frame()
    assert frame["low"].isna().all()
    assert frame["n"].eq(1).all()
    assert "no numbers per prompt" in compared("head_roles").summary()


def test_both_sides_and_the_difference_share_one_scale():
    comparison = compare(A, B, TEXTS)
    (heatmap,) = comparison.figure().data
    values = torch.tensor(heatmap.z)
    torch.testing.assert_close(values[:, 1] - values[:, 0], values[:, 2])
    assert heatmap.zmax == -heatmap.zmin == values.abs().max()
    assert list(comparison.figure().layout.xaxis.ticktext) == [A, B, "difference"]


@pytest.mark.parametrize(
    ("analysis", "column", "unit"),
    [
        ("ablate_heads", None, "nats"),
        ("ablate_heads", "q", ""),
        ("direct_logit_attribution", None, "logits"),
        ("attention_pattern", "pattern", ""),
    ],
)
def test_numbers_have_the_unit_of_the_column(analysis, column, unit):
    comparison = compare(A, A, TEXTS, analysis=ASKED[analysis], column=column)
    assert comparison.unit == unit


@pytest.mark.parametrize(
    ("other", "analysis", "column", "message"),
    [
        ("python-4l", ablate_heads, None, "only python-4l has layer 2, 3; only python-4l has name"),
        ("python-2l", logit_lens, None, "column= is one of .*entropy"),
        ("python-2l", ablate_heads, "name", "no column 'name' of numbers"),
    ],
)
def test_what_can_not_be_joined_is_refused(other, analysis, column, message):
    with pytest.raises(InvalidInput, match=message):
        compare(A, other, TEXTS, analysis=analysis, column=column)


def test_other_prompts_are_refused():
    texts = iter([TEXTS, TEXTS[:5]])
    with pytest.raises(InvalidInput, match=r"on 6 prompts, .* on 5"):
        compare(A, B, analysis=lambda model: ablate_heads(model, next(texts)))


def test_models_with_other_heads_are_refused_and_the_axis_is_named():
    rows = tokens_of("gpt2")[0]
    with pytest.raises(InvalidInput, match=r"only .* has head 3"):
        compare(build("gpt2"), build("llama"), rows)


# ---- declared for the tests of all analyses -------------------------------------------------


def scaled(model):
    """Another model of the same shape: all weights are a tenth larger."""
    other = deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1.1)
    return other


DECLARED = Declared(
    analysis=compare,
    made=Made(
        lambda: compare("python-2l@0", "python-2l", ["x = 1", "import os"]),
        ("difference", "difference"),
    ),
    call=Call(
        (small.MODEL, small.MODEL, small.CLEAN),
        {},
        {
            **dict.fromkeys(
                ("model_a", "model_b"),
                (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NOTHING),
            ),
            "analysis": (*odd.SOMETHING, odd.NOTHING, lambda *_: 3),
            "column": (odd.BELOW, odd.BROKEN, odd.LISTED, {}),
        },
    ),
    command=Command(
        "compare",
        ("--model", "python-2l", "--analysis", "roles"),
        "compare",
        "L0H5 previous-token",
        "other=None analysis=ablate metric=None",
    ),
    of_each_prompt=Without("its numbers are those of the analysis that it is given"),
    of_each_pair=Without("its numbers are those of the analysis that it is given"),
    symmetric=Symmetric(
        {
            "": lambda case: compare(
                case.model,
                scaled(case.model),
                case.clean,
                analysis=lambda model, prompts: ablate_heads(model, prompts, metric="kl"),
            )
        }
    ),
)
