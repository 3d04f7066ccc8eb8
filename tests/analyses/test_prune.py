"""Circuits of the highest-ranked edges: faithfulness as a curve."""

import pytest
import torch
from architectures import assert_close, build, tokens_of
from declared import (
    Call,
    Command,
    Declared,
    EachPrompt,
    Made,
    Symmetric,
    Without,
    example,
    odd,
    small,
)
from declared.prompts import WITHOUT_EDGES, other_tokens
from permuted import NORMALIZING_THE_STREAM

from analyses import patch_paths, prune, run_circuits
from analyses.methods.circuits.written import written
from interp import computation_graph, load, metrics, read_prompts, run
from interp.errors import InvalidInput
from interp.prompts import logit_diff_of_prompts

METRIC = metrics.logit_diff(1, 2)
MODEL = build("gpt2")
CLEAN, CORRUPT = (tokens_of("gpt2", batch=3, seed=seed)[0] for seed in (0, 1))
GRAPH = computation_graph(MODEL)
NAMES = [(writer.name, reader.name) for writer, reader in GRAPH.edges]
SCORES = {name: ((7 * n) % 31) - 15.0 for n, name in enumerate(NAMES)}


def test_all_edges_are_the_model_and_none_is_the_corrupted_run():
    """f(all) = 1, f(∅) = 0, and m(∅) is the metric of the corrupted prompts."""
    result = prune(SCORES, MODEL, CLEAN, CORRUPT, metric=METRIC)
    whole, empty = (run(MODEL, tokens) for tokens in (CLEAN, CORRUPT))
    assert_close(result.whole, METRIC(whole.logits, whole.batch))
    assert_close(result.empty, METRIC(empty.logits, empty.batch))
    assert result.counts[-1] == len(NAMES)
    assert_close(result.faithfulness[-1], torch.tensor(1.0, dtype=torch.float64))
    assert_close(result.faithfulness_control[:, -1], torch.ones(3, dtype=torch.float64))
    assert len(set(result.faithfulness.tolist())) > 3


@pytest.mark.parametrize("rank", ["size", "signed"])
def test_a_circuit_is_of_the_highest_ranked_edges(rank):
    result = prune(SCORES, MODEL, CLEAN, CORRUPT, metric=METRIC, sizes=(0.1, 0.4), rank=rank)
    values = written(MODEL, [MODEL.batch(CORRUPT)])
    for count, value in zip(result.counts, result.value, strict=True):
        expected = run_circuits(MODEL, CLEAN, [result.circuit(count)], values, METRIC)
        assert_close(value, expected[0])
    assert result.counts == (round(0.1 * len(NAMES)), round(0.4 * len(NAMES)), len(NAMES))
    sign = 1 if result.whole.mean() > result.empty.mean() else -1
    by = [abs(s) if rank == "size" else -sign * s for s in result.score]
    assert by == sorted(by, reverse=True)
    assert [SCORES[name] for name in result.edges] == list(result.score)


def test_the_areas():
    """By trapezoids over the share of edges, from f(∅) = 0."""
    result = prune(SCORES, MODEL, CLEAN, CORRUPT, metric=METRIC, sizes=(0.5, 1.0), draws=1)
    share, f = result.counts[0] / len(NAMES), float(result.faithfulness[0])
    assert result.cpr == pytest.approx(share * f / 2 + (1 - share) * (f + 1) / 2)
    assert result.cmd == pytest.approx(share * (1 + abs(1 - f)) / 2 + (1 - share) * abs(1 - f) / 2)


def test_held_out_pairs_are_run_instead():
    others = [tokens_of("gpt2", batch=2, seed=seed)[0] for seed in (2, 3)]
    pruned = prune(SCORES, MODEL, CLEAN, CORRUPT, metric=METRIC, heldout=(*others, METRIC))
    expected = prune(SCORES, MODEL, *others, metric=METRIC)
    assert_close(pruned.value, expected.value, 0.0)
    assert pruned.value.shape[-1] == 2


@pytest.mark.slow
def test_a_ranking_by_exact_patching_beats_a_random_order():
    model, prompts = load("python-2l"), read_prompts("python-2l-pairs")[:12]
    clean, corrupt = ([getattr(p, side) for p in prompts] for side in ("text", "corrupt"))
    metric = logit_diff_of_prompts(model.to_single_token, prompts)
    scores = patch_paths(model, clean, corrupt, metric=metric).scores
    result = prune(scores, model, clean, corrupt, metric=metric)
    assert result.cmd <= 0.15
    assert result.cmd_control >= 0.5
    assert result.summary().startswith(f"CMD {result.cmd:.3f} (random order")
    assert len(result.to_edge_frame()) == 257


def test_the_circuit_is_drawn_by_layers():
    result = prune(SCORES, MODEL, CLEAN, CORRUPT, metric=METRIC, sizes=(1.0,), draws=1)
    figure = result.circuit_figure(40)
    nodes = figure.data[-1]
    heights = dict(zip(nodes.text, nodes.y, strict=True))
    names = {name for pair in result.circuit(40) for name in pair}
    assert set(heights) == {n[:-2] if n[-2:] in (".q", ".k", ".v") else n for n in names}
    assert heights["logits"] == max(heights.values())
    assert len(figure.data) - 2 <= 40


@pytest.mark.parametrize(
    ("scores", "more", "message"),
    [
        ({NAMES[0]: 1.0}, {}, "are missing, such as"),
        (SCORES | {NAMES[3]: float("nan")}, {}, "is NaN"),
        (SCORES, {"sizes": (0.5, 0.1)}, "rising"),
        (SCORES, {"sizes": (0.0,)}, "above 0"),
        (SCORES, {"rank": "best"}, "rank='best'"),
        (SCORES, {"method": "noise"}, "method='noise'"),
        (SCORES, {"metric": metrics.accuracy(-1 % 13)}, "faithfulness is undefined"),
    ],
)
def test_what_can_not_be_pruned_is_refused(scores, more, message):
    with pytest.raises(InvalidInput, match=message):
        prune(scores, MODEL, CLEAN, CORRUPT, **{"metric": METRIC} | more)


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, clean, n):
    edges = computation_graph(model).edges
    scores = {(writer.name, reader.name): float(i % 7) for i, (writer, reader) in enumerate(edges)}
    other = other_tokens(model, clean)
    result = prune(scores, model, clean, other, metric=metrics.prob(3), draws=1)
    return [{"values": result.value[:, i], "empty": result.empty[i]} for i in range(n)]


def by_paths(model, clean, corrupt, metric, **settings):
    """Edges ranked by patching each."""
    scores = patch_paths(model, clean, corrupt, metric=metric).scores
    return prune(scores, model, clean, corrupt, metric=metric, **settings)


DECLARED = Declared(
    analysis=prune,
    made=Made(
        lambda: by_paths(example.model(), *example.PAIR, metric=example.LOGIT), ("value", "value")
    ),
    call=Call(
        (
            {(w.name, r.name): 1.0 for w, r in computation_graph(small.MODEL).edges},
            *small.PAIR,
        ),
        small.METRIC,
        {
            "metric": odd.CHOICE,
            "sizes": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, [odd.TEXT]),
            "rank": odd.CHOICE,
            "method": odd.CHOICE,
            "heldout": odd.SOMETHING,
            "draws": odd.COUNT,
            "seed": odd.SEED,
            "memory": odd.MEMORY,
        },
    ),
    command=Command(
        "prune",
        ("--model", "rasp-reverse"),
        "prune",
        "CMD 0",
        "scores=conductance rank=size method=resample metric=logit-diff heldout=None",
        more=("edges.csv", "edges.parquet"),
    ),
    of_each_prompt=EachPrompt(
        numbers_of_prompts, {**WITHOUT_EDGES, "texts": "faithfulness is undefined"}
    ),
    of_each_pair=Without("tests/laws/test_edges.py has the edges of two stacks"),
    symmetric=Symmetric(
        {"": lambda case: by_paths(case.model, case.clean, case.corrupt, case.metric, draws=1)},
        not_compared=("control", "rank"),
        refused=NORMALIZING_THE_STREAM,
    ),
)
