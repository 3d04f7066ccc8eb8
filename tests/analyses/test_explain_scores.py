"""Why a head attends to a key: the terms of its score by pairs of writers."""

import pandas as pd
import pytest
import torch
from architectures import assert_close, build, build_new, tokens_of
from declared import (
    Call,
    Command,
    Declared,
    EachPrompt,
    Made,
    Symmetric,
    example,
    odd,
    small,
)
from permuted import tables_of

from analyses import explain_scores
from interp import Transformer, load, run
from interp.errors import InvalidInput
from interp.model import untouched

EXACT = 1e-12
INDUCTION = {"layer": 1, "head": 0}


@pytest.mark.parametrize(("name", "head"), [("gpt2", 1), ("llama", 3), ("gptj", 2)])
def test_each_term_is_that_of_what_was_written(name, head):
    """t_ab = (u_a G W_Q) R (u_b G W_K)ᵀ / scale, with u of the cache and G = gain / divisor."""
    model, tokens = build(name), tokens_of(name)[0]
    result = explain_scores(model, tokens, 1, head, query=3, key=1, against="nothing")
    cache = run(model, tokens, record="all").cache
    block = model.blocks[1]
    attn, norm = block.attn, block.ln1
    writes = {writer: u for writer, u in cache.writes().items() if not writer.startswith("L1")}

    def vectors(u, W):
        x = norm.centred(u) / cache["scale", 1, "ln1"] * norm.gain
        return (x @ W)[:, :, None]

    context = model.contexts(model.batches(tokens))[0]
    for writer in ("embed", "L0H1", "L0MLP"):
        q = vectors(writes[writer], attn.W_Q[head])
        q = attn.positions.query(q, context, untouched)[:, 3, 0] / attn.divisor
        for other in ("embed", "L0H2", "L0MLP"):
            k = vectors(writes[other], attn.W_K[head * attn.kv_heads // attn.n_heads])
            k = attn.positions.key(k, context, untouched)[:, 1, 0]
            pair = result.query_writers.index(writer), result.key_writers.index(other)
            assert_close(result.effect[pair], (q * k).sum(-1).detach(), EXACT)
            assert result.effect[pair].abs().min() > 1e-6


def test_what_is_explained_is_one_score_against_others():
    """Against a key: the difference of two scores. Against all: 1 − A times that of the others."""
    model, tokens = build("gpt2"), tokens_of("gpt2")[0]

    def effect(**settings):
        return explain_scores(model, tokens, 1, 1, query=4, **settings).effect

    of_two = [effect(key=key, against="nothing") for key in (2, 0)]
    assert_close(effect(key=2, other_key=0), of_two[0] - of_two[1], EXACT)
    others = explain_scores(model, tokens, 1, 1, query=4, key=2)
    mean = effect(key=2, against="mean")
    assert_close(mean, (1 - others.pattern) * others.effect, EXACT)
    scores = run(model, tokens, record="scores").cache["scores", 1][:, 1, 4]
    weights = scores.softmax(-1)
    assert_close(mean.sum((0, 1)), scores[:, 2] - (weights * scores).sum(-1), EXACT)


def test_induction_by_hand_matches_the_token_that_came_before():
    """The previous-token head's output at the key against the embedding at the query."""
    model = load("induction-by-hand").double()
    result = explain_scores(model, "abcab", **INDUCTION, query=4, key=2, other_key=3, check=1)
    first = result.to_frame().iloc[0]
    assert first["name"] == "embed × L0H0"
    assert first["share"] > 0.95
    assert "L1H0 from query 4 a to key 2 b" in result.headline()
    assert "against key 3 c" in result.headline()
    corpus = ["abcab", "xyxyz", "pqrpqs"]
    every = explain_scores(model, corpus, **INDUCTION, query="all", key="after same token")
    assert every.to_frame()["name"][0] == "embed × L0H0"
    cells = every.to_cell_frame()
    assert cells[cells["prompt"] == 0][["query", "key"]].to_numpy().tolist() == [[4, 2], [5, 3]]
    assert (cells["pattern"] > 0.99).all()


def test_of_random_weights_no_pair_stands_out():
    """The largest mean term is no larger than that of random keys; by hand it is far larger."""
    generator = torch.Generator().manual_seed(0)
    half = torch.randint(small.D_VOCAB, (12, 6), generator=generator)
    text = torch.cat([half, half], 1)

    def ratio(model: Transformer, prompts: object) -> float:
        result = explain_scores(
            model,
            prompts,
            **INDUCTION,
            query="all",
            key="after same token",
            other_key="previous",
            by="layer",
        )
        effect, control = (x.mean(-1).abs().max() for x in (result.effect, result.control))
        return float(effect / control)

    assert max(ratio(build_new("gpt2", seed), text) for seed in range(4)) < 1.5
    letters = ["".join("abcdefghijkl"[n % 12] for n in row) for row in text.tolist()]
    assert ratio(load("induction-by-hand"), letters) > 4


# ---- the check --------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["component", "layer"])
def test_removal_measures_the_terms_where_there_are_no_norms(by):
    """s − s₋a − s₋b + s₋ab is the term, and attention without both is the predicted one."""
    model, tokens = build("biased-seed"), tokens_of("biased-seed")[0]
    result = explain_scores(model, tokens, 1, 1, query=4, key=2, by=by, check=9)
    assert len(result.checked) == {"component": 9, "layer": 4}[by]
    pairs = result.effect.flatten(0, 1)[result.checked]
    assert_close(result.exact, pairs, EXACT)
    assert_close(result.removed_pattern, result.predicted_pattern, EXACT)
    assert (result.removed_pattern - result.pattern.expand_as(pairs)).abs().min() > 1e-6
    assert result.agreement.pearson == pytest.approx(1)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_removal_shows_what_norms_change(name):
    model, tokens = build(name), tokens_of(name)[0]
    result = explain_scores(model, tokens, 1, 1, query=4, key=2, check=4)
    off = (result.exact - result.effect.flatten(0, 1)[result.checked]).abs()
    assert off.max() > 1e-3
    assert (result.removed_pattern - result.predicted_pattern).abs().max() > 1e-4
    row = result.to_check_frame().iloc[0]
    assert f"{row['name']} removed: term" in result.summary()


def test_removing_an_mlp_leaves_its_bias():
    """Only the neurons' part is removed, as the bias is another term: exact without a norm."""
    model = build_new("set-encoder")
    result = explain_scores(model, tokens_of("set-encoder")[0], 1, 0, key=0, check=200)
    names = set(result.to_check_frame()["key_writer"])
    assert "L0MLP" in names
    assert not any("." in name for name in names)
    assert_close(result.exact, result.effect.flatten(0, 1)[result.checked], EXACT)


def test_nothing_is_removed_where_there_are_no_edges():
    with pytest.raises(InvalidInput, match="no edges between them"):
        explain_scores(build("bert"), tokens_of("bert")[0], 1, 0, check=1)


# ---- groups, tables and figures -----------------------------------------------------------------


@pytest.mark.parametrize("by", ["layer", "kind"])
def test_groups_are_sums_of_components(by):
    model, tokens = build("gpt2"), tokens_of("gpt2")[0]
    single, groups = (
        explain_scores(model, tokens, 1, 0, key=0, by=how) for how in ("component", by)
    )
    heads = [n for n, name in enumerate(single.query_writers) if name.startswith("L0H")]
    mlps = single.key_writers.index("L0MLP")
    names = {"layer": ("L0 heads", "L0MLP"), "kind": ("heads", "MLPs")}[by]
    pair = groups.query_writers.index(names[0]), groups.key_writers.index(names[1])
    assert_close(groups.effect[pair], single.effect[heads, mlps].sum(0), EXACT)
    assert_close(groups.effect.sum((0, 1)), single.effect.sum((0, 1)), EXACT)
    assert len(groups.query_writers) < len(single.query_writers)


@pytest.mark.parametrize("name", ["gpt2", "llama", "opt-post"])
def test_the_largest_neurons_are_writers_of_their_own(name):
    """With all neurons, their terms are those of W_out's rows; a few are the largest of these."""
    model, tokens = build(name), tokens_of(name)[0]
    settings = {"query": 4, "key": 1}
    plain = explain_scores(model, tokens, 1, 1, **settings)
    every = explain_scores(model, tokens, 1, 1, neurons=10, **settings)
    few = explain_scores(model, tokens, 1, 1, neurons=3, check=int(name != "opt-post"), **settings)
    for names, side, other in (
        (every.query_writers, "query_writers", 1),
        (every.key_writers, "key_writers", 0),
    ):
        rows = [row for row, name in enumerate(names) if name.startswith("L0N")]
        sums = every.effect.sum(other)
        mlp = getattr(plain, side).index("L0MLP")
        assert len(rows) == 10
        assert_close(sums[rows].sum(0), plain.effect.sum(other)[mlp], EXACT)
        assert sums[names.index("L0MLP rest")].abs().max() < EXACT
        largest = {names[rows[row]] for row in sums[rows].abs().mean(-1).topk(3).indices}
        assert largest == {name for name in getattr(few, side) if name.startswith("L0N")}
        rest = getattr(few, side).index("L0MLP rest")
        few_rows = [getattr(few, side).index(name) for name in [*largest, "L0MLP rest"]]
        assert few.effect.sum(other)[rest].abs().max() > 1e-6
        assert_close(few.effect.sum(other)[few_rows].sum(0), plain.effect.sum(other)[mlp], EXACT)
    assert not any("L0N" in pair or "rest" in pair for pair in few.to_check_frame()["name"])


def test_the_figure_keeps_the_sum_and_puts_the_largest_first():
    model, tokens = build("gpt2"), tokens_of("gpt2")[0]
    result = explain_scores(model, tokens, 1, 0, key=0)
    heatmap = result.drawing()
    mean = result.effect.mean(-1)
    assert heatmap.values.sum() == pytest.approx(float(mean.sum()))
    assert len(result.query_writers) <= 12
    largest = divmod(int(mean.abs().argmax()), len(result.key_writers))
    assert heatmap.rows[0] == result.query_writers[largest[0]]
    assert heatmap.columns[0] == result.key_writers[largest[1]]


def test_a_figure_of_many_writers_sums_the_rest():
    result = explain_scores(build("biased-seed"), tokens_of("biased-seed")[0], 1, 0, key=0)
    many = load("python-4l")
    drawing = explain_scores(many, "def f(x):", 3, 0).drawing()
    assert drawing.rows[-1] == drawing.columns[-1] == "all others"
    assert drawing.values.shape == (13, 13)
    assert "all others" not in result.drawing().rows


def test_position_biases_are_a_term_of_their_own():
    """ALiBi: −slope · (distance to the key − distance to the other)."""
    model, tokens = build("bloom"), tokens_of("bloom")[0]
    result = explain_scores(model, tokens, 1, 2, query=4, key=1, other_key=3)
    slope = model.blocks[1].attn.positions.slopes()[2]
    assert_close(result.position_bias, (-slope * (3 - 1)).expand(2), EXACT)
    frame = result.to_frame()
    row = frame[frame["name"] == "position bias"].iloc[0]
    assert row["effect"] == pytest.approx(float(result.position_bias.mean()))
    assert frame["effect"].sum() == pytest.approx(float(result.value.mean()))


def test_writers_are_sums_over_the_other_side():
    result = explain_scores(build("gpt2"), tokens_of("gpt2")[0], 1, 0, key=0)
    frame = result.to_writer_frame().set_index(["end", "writer"])
    row = result.key_writers.index("L0MLP")
    expected = float(result.effect[:, row].sum(0).mean())
    assert frame.loc[("key", "L0MLP"), "effect"] == pytest.approx(expected)


# ---- which cells ------------------------------------------------------------------------------


def test_keys_are_chosen_by_rules_functions_and_lists():
    model, ids = build("gpt2"), torch.tensor([[5, 7, 5, 8, 7]])

    def cells(**settings):
        frame = explain_scores(model, ids, 1, 0, **settings).to_cell_frame()
        return frame[["query", "key"]].to_numpy().tolist()

    assert cells(query="all", key="after same token") == [[2, 1], [4, 2]]
    assert cells(query="all", key="same token") == [[2, 0], [4, 1]]
    assert cells(query="all", key="previous") == [[n, n - 1] for n in range(1, 5)]
    assert cells(query=3, key="first") == cells(query=-2, key=lambda ids, query: 0) == [[3, 0]]
    assert cells(cells=[(0, 4, 1), (0, 2, 2)]) == [[4, 1], [2, 2]]
    assert cells(query="all", key="previous", most=2) == [[1, 0], [4, 3]]


def test_prompts_without_a_cell_are_left_out():
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 5, 6]])
    result = explain_scores(build("gpt2"), ids, 1, 0, query="all", key="same token")
    assert set(result.cells["prompt"]) == {1}
    assert "1 of 2 prompts have no such cell" in result.notes
    assert result.effect.shape[-1] == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"query": 1, "key": 3}, r"Key 3 of prompt 0 is masked for query 1, which sees .* 0\.\.1"),
        ({"query": 9}, "the query of prompt 0 is 9; it should be a position from -5 to 4"),
        ({"key": 5}, "the key of prompt 0 is 5"),
        ({"query": 0, "key": 0}, "sees a single key"),
        ({"query": "last"}, 'should be a position, or "all"'),
        ({"key": "next"}, "one of strongest, previous"),
        ({"other_key": "next"}, "other_key='next'"),
        ({"query": 0, "key": "previous"}, "No prompt has a cell"),
        ({"key": 2, "other_key": 2}, "No prompt has a cell"),
        ({"cells": [(2, 1, 0)]}, "a prompt from 0 to 1"),
        ({"cells": [(0, 9, 0)]}, "the query of prompt 0 is 9"),
        ({"against": "all"}, "is not one of others, mean, nothing"),
        ({"by": "head"}, "is not one of component, layer, kind"),
        ({"layer": 2}, "layer=2"),
        ({"head": 3}, "head=3"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, reason):
    with pytest.raises(InvalidInput, match=reason):
        explain_scores(build("gpt2"), tokens_of("gpt2")[0], **{"layer": 1, "head": 0, **settings})


def test_windows_mask_and_cross_attention_has_no_rules():
    with pytest.raises(InvalidInput, match=r"which sees the keys 2\.\.4"):
        explain_scores(build("gemma2"), tokens_of("gemma2")[0], 0, 0, query=4, key=1)
    with pytest.raises(InvalidInput, match="which are of two stacks"):
        explain_scores(build("t5"), tokens_of("t5"), 1, 0, key="previous", attention="cross")
    with pytest.raises(InvalidInput, match="an encoder–decoder has"):
        explain_scores(build("t5"), tokens_of("t5"), 1, 0)


# ---- declared for the tests of all analyses -----------------------------------------------------


def numbers_of_prompts(model, prompts, n, **settings):
    result = explain_scores(model, prompts, 1, 0, key=0, **settings)
    return [{"effect": result.effect[..., i], "value": result.value[i]} for i in range(n)]


def of_each_head(by):
    """All tables of every head of layer 1, concatenated, with the name of the head."""

    def frames(case):
        heads = range(case.model.blocks[1].attn.n_heads)
        results = [explain_scores(case.model, case.clean, 1, h, key=0, by=by) for h in heads]
        tables = [{k: t.assign(head_name=r.name) for k, t in tables_of(r).items()} for r in results]
        return {kind: pd.concat([table[kind] for table in tables]) for kind in tables[0]}

    return frames


DECLARED = Declared(
    analysis=explain_scores,
    made=Made(
        lambda: explain_scores(
            example.model(), ["abcab", "xyxyz"], 1, 0, query=4, key=2, other_key=1, check=1
        )
    ),
    call=Call(
        (small.MODEL, small.CLEAN, 1, 0),
        {},
        {
            **dict.fromkeys(("layer", "head"), odd.INDEX),
            "query": (odd.TEXT, odd.BROKEN, odd.LISTED, odd.NOTHING, True, 99),
            "key": (odd.TEXT, odd.BROKEN, odd.LISTED, odd.NOTHING, True, 99),
            "other_key": (odd.TEXT, odd.BROKEN, odd.LISTED, True, 99),
            "cells": (odd.TEXT, odd.BROKEN, odd.LISTED, odd.NESTED),
            "against": odd.CHOICE,
            "by": odd.CHOICE,
            "neurons": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NOTHING, True),
            "most": odd.COUNT,
            "check": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NOTHING, True),
            "pairs": odd.COUNT,
            "attention": odd.CHOICE,
            "seed": odd.SEED,
        },
    ),
    command=Command(
        "scores",
        ("--layer", "1", "--key", "0"),
        "scores",
        "L1H0",
        "dictionary=None layer=0 head=0 query=-1 key=strongest other_key=None against=others "
        "by=component neurons=0 most=64 check=0 pairs=256 attention=None",
        ("writers.csv", "writers.parquet", "cells.csv", "cells.parquet"),
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair={
        attention: lambda model, prompts, n, attention=attention: numbers_of_prompts(
            model, prompts, n, attention=attention
        )
        for attention in ("encoder", "decoder", "cross")
    },
    symmetric=Symmetric(
        {by: of_each_head(by) for by in ("component", "layer", "kind")},
        not_compared=("control",),
    ),
)
