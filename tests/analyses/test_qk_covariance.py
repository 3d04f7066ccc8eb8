"""Contrastive covariance of queries and keys: its trace is a difference of scores."""

import pandas as pd
import pytest
import torch
from architectures import assert_close, build, build_new, covering, tokens_of
from declared import Call, Command, Declared, Made, Symmetric, Without, example, odd, small

import interp
from analyses import qk_covariance
from analyses.methods.heads import attentions_of
from analyses.methods.heads.repetition import repeated_rows
from interp import run
from interp.errors import InvalidInput
from interp.zoo.access import trained_tokens

SOME = ["gpt2", "llama", "neox", "gemma2", "gemma3", "olmo2"]
"""Plain, rotary, grouped and normalized queries and keys."""


def drawn_cells(seen):
    """Random cells that queries see, and the rest of them."""
    some = torch.rand(seen.shape, generator=torch.Generator().manual_seed(0)) < 0.4
    return some & seen, ~some & seen


@pytest.mark.parametrize("name", covering(SOME))
def test_its_trace_is_the_difference_of_mean_scores(name):
    """q·k / scale, against the sum over cells; and the terms sum to it on every prompt."""
    model = build(name)
    batch = model.batch(tokens_of(name)[0])
    seen = run(model, batch, record="scores").cache["scores", 1][:, 1].isfinite()
    having, others = drawn_cells(seen)
    attn = attentions_of(model).layers[1]
    result = qk_covariance(model, 1, 1, batch, cells=having, others=others)
    key = attn.kv_points[0].label
    cache = run(model, batch, record=["q", "k", key, key.replace("k", "q", 1)]).cache
    q = cache[key.replace("k", "q", 1), 1][:, :, 1]
    k = attn.each_query(cache[key, 1])[:, :, 1]
    scores = torch.einsum("bid,bjd->bij", q, k) / attn.divisor
    expected = torch.stack(
        [
            each[plus].mean() - each[minus].mean()
            for each, plus, minus in zip(scores, having, others, strict=True)
        ]
    )
    assert_close(result.difference, expected)
    assert_close(result.terms.sum(0), expected)
    u, v, sigma = result.query_directions, result.key_directions, result.singular_value
    assert_close(result.terms.mean(-1), sigma * (u * v).sum(-1), 1e-10)
    assert_close(u @ u.T, torch.eye(len(u)).double(), 1e-10)
    assert result.n_cells == int(having.sum())


def test_scores_without_soft_caps_are_those_of_the_forward():
    model = interp.load("python-2l", dtype="float64")
    drawn = repeated_rows(model, torch.tensor(trained_tokens(model)), rows=3)
    scores = run(model, drawn.repeated, record="scores").cache["scores", 1][:, 0]
    having = drawn.cells(bidirectional=False)["induction"]
    others = having.any(-1, keepdim=True) & ~having & scores[0].isfinite()
    others[:, 0] = False
    expected = scores[:, having].mean(-1) - scores[:, others].mean(-1)
    assert_close(qk_covariance(model, 1, 0, rows=3).difference, expected, 1e-10)


def test_a_feature_in_one_direction_is_one_component():
    """Keys of the feature differ from others along one vector, queries are the same: rank 1."""
    model = build_new("gpt2")
    attn, width = model.blocks[0].attn, 6
    with torch.no_grad():
        model.stacks[0].entry.W_pos.zero_()
        attn.W_Q[0].zero_()
        attn.b_Q[0] = torch.tensor([1.0, 2.0, 0, 0])[: attn.d_head]
    ids = torch.tensor([[1, 2, 1, 2, 1, 2], [2, 1, 1, 2, 2, 1]])
    is_feature = (ids == 1)[:, None].expand(-1, width, -1)
    result = qk_covariance(model, 0, 0, ids, cells=is_feature, others=~is_feature)
    assert result.singular_value[0] > 0.01
    assert result.singular_value[1:].max() < 1e-12
    direction = attn.b_Q[0] / attn.b_Q[0].norm()
    assert_close((result.query_directions[0] @ direction).abs(), torch.tensor(1.0).double())


def test_random_labels_explain_less_than_the_feature_of_a_head():
    model = interp.load("python-2l")
    previous = qk_covariance(model, 0, 5, cells="previous-token", rows=8)
    assert previous.difference.mean() > 15
    assert previous.difference_control.abs().max() < 1
    assert (previous.singular_value[:3] > 5 * previous.singular_control[:, :3].amax(0)).all()
    assert "6 components of 32 explain" in previous.headline()
    before = qk_covariance(interp.load("python-2l@0"), 0, 5, cells="previous-token", rows=8)
    assert before.difference.mean().abs() < 0.2


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"cells": "copying"}, "should be a role on repeated tokens"),
        ({"prompts": torch.arange(8)[None]}, "should be a boolean tensor"),
        ({"cells": torch.ones(3, 3).bool()}, "should be a role"),
        (
            {"prompts": torch.arange(3)[None], "cells": torch.zeros(3, 3).bool()},
            "No prompt has cells",
        ),
        ({"layer": 9}, "layer=9"),
        ({"head": 9}, "head=9"),
    ],
)
def test_what_it_refuses(settings, match):
    with pytest.raises(InvalidInput, match=match):
        qk_covariance(build("gpt2"), **{"layer": 0, "head": 0} | settings)


def of_each_head(case):
    """The tables of all heads of layer 1."""
    heads = range(case.model.blocks[1].attn.n_heads)
    results = [qk_covariance(case.model, 1, head, cells="previous-token", rows=5) for head in heads]
    frames = [result.to_frame().assign(name=result.name) for result in results]
    return {"components": pd.concat(frames)}


# ---- declared for the tests of all analyses -------------------------------------------------


DECLARED = Declared(
    analysis=qk_covariance,
    made=Made(lambda: qk_covariance(example.model(), 1, 0, rows=5)),
    call=Call(
        (small.MODEL, 0, 0),
        {},
        {
            **dict.fromkeys(("layer", "head"), odd.INDEX),
            "cells": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NOTHING),
            "others": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED),
            "draws": odd.COUNT,
            **odd.SAMPLED,
        },
    ),
    command=Command(
        "qk-covariance",
        ("--sequences", "6", "--cells", "previous-token"),
        "qk-covariance",
        "previous-token cells are",
        "layer=0 head=0 cells=induction draws=8 sequences=16",
    ),
    of_each_prompt=Without("cells are pairs of positions of the given prompts"),
    of_each_pair=Without("it takes models with one stack"),
    symmetric=Symmetric(
        {"": of_each_head},
        draws_tokens=True,
    ),
)
