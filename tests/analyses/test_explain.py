"""The smallest circuit that is faithful, what it needs, and what is known of its parts."""

import pytest
import torch
from architectures import assert_close, build, padded, tokens_of

from analyses import EdgeAttribution, explain, prune, run_circuits
from analyses.explain import ALIKE, CARRIES, FAITHFUL
from analyses.methods.circuits.written import written
from analyses.results.edge_table import scores_by_edge
from interp import computation_graph, load, metrics, run
from interp.errors import InvalidInput

METRIC = metrics.logit_diff(1, 2)
CLEAN, CORRUPT = (tokens_of("llama", batch=3, seed=seed)[0] for seed in (0, 1))


def of(architecture, **settings):
    return explain(build(architecture), CLEAN, CORRUPT, metric=METRIC, **settings)


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "neox"])
def test_the_circuit_is_run_by_itself(architecture):
    """Grouped heads, outputs that are normalized, parallel sub-layers."""
    model, found = build(architecture), of(architecture)
    ends = [METRIC(done.logits, done.batch) for done in (run(model, CLEAN), run(model, CORRUPT))]
    assert_close(found.whole, ends[0])
    assert_close(found.empty, ends[1])
    values = written(model, [model.batch(CORRUPT)])
    (own,) = run_circuits(model, CLEAN, [found.edges], values, METRIC)
    assert_close(found.value[-1], own)
    f = 1 - (own - ends[0]).abs().sum() / (ends[1] - ends[0]).abs().sum()
    assert found.faithfulness == pytest.approx(float(f))
    assert found.is_explained == (float(f) >= FAITHFUL)
    assert {name for name, *_ in found.to_frame().itertuples(index=False)} == set(found.names)


def test_it_is_the_first_that_is_faithful():
    found = of("llama").to_size_frame()
    assert len(found) > 1
    assert (found["faithfulness"][:-1] < FAITHFUL).all()
    assert found["count"].is_monotonic_increasing


def test_few_edges_explain_nothing_and_this_is_said():
    """Where those of the highest rank don't connect, the strongest path is run."""
    found = of("llama", most=1)
    assert not found.is_explained
    assert found.paths == (found.edges,)
    assert found.summary().startswith("No small circuit explains this: ")
    assert not found.support
    assert (found.to_frame()["reason"] == CARRIES).all()


def test_faithfulness_of_each_prompt_is_at_most_that_of_means():
    model, found = build("llama"), of("llama")
    graph = computation_graph(model)
    scores = {(w.name, r.name): float((w.name, r.name) in found.edges) for w, r in graph.edges}
    share = len(found.edges) / len(scores)
    means = prune(scores, model, CLEAN, CORRUPT, metric=METRIC, sizes=(share,)).faithfulness[0]
    assert found.faithfulness <= float(means) + 1e-12


def test_an_edge_that_scores_and_one_that_is_needed_are_told_apart():
    """The previous-token head does the same on both prompts, and induction needs it."""
    model = load("induction-by-hand")
    v, w = (model.to_single_token(letter) for letter in "vw")
    found = explain(model, "QxmvbQxm", "QxmwbQxm", metric=metrics.logit_diff(v, w))
    parts = dict(zip(found.names, found.to_frame()["reason"], strict=True))
    assert parts == {"L0H0": ALIKE, "L1H0": CARRIES}
    assert found.paths == ((("embed", "L1H0.v"), ("L1H0", "logits")),)
    assert ("L0H0", "L1H0.k") in found.support
    assert found.faithfulness_control < 0.1
    assert "1 pair;" in found.summary()
    *_, labels, nodes = found.figure().data
    assert set(labels.text) == {"previous-token", "induction"}
    assert set(nodes.text) == {"embed", "pos_embed", "L0H0", "L1H0", "logits"}


@pytest.mark.slow
def test_a_metric_that_is_no_logit_has_no_direct_effects():
    model = build("llama")
    found = explain(model, CLEAN, CORRUPT, metric=metrics.prob(1))
    assert found.direct.isnan().all()
    assert not of("llama").direct.isnan().any()


@pytest.mark.slow
def test_padding_changes_nothing():
    rows = [CLEAN[0, :4], CLEAN[1]], [CORRUPT[0, :4], CORRUPT[1]]
    left, right = (
        explain(build("llama"), *(padded(own, side) for own in rows), metric=METRIC)
        for side in ("left", "right")
    )
    assert left.edges == right.edges
    assert left.attends == right.attends
    assert_close(left.score, right.score)


@pytest.mark.slow
def test_an_encoder_decoder():
    pair = [tokens_of("t5", batch=2, seed=seed) for seed in (0, 1)]
    found = explain(build("t5"), tuple(pair[0]), tuple(pair[1]), metric=METRIC)
    assert found.edges
    assert "repeats random tokens" in found.notes[0]
    assert any(name.startswith("cross.") for name in found.names)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"most": 0}, "most=0"),
        ({"corrupt": CLEAN}, "the same clean and corrupted"),
        ({"metric": metrics.logit_diff(1, 1)}, "nothing to explain"),
    ],
)
def test_what_has_no_answer_is_refused(given, said):
    settings = {"corrupt": CORRUPT, "metric": METRIC} | given
    with pytest.raises(InvalidInput, match=said):
        explain(build("llama"), CLEAN, **settings)


def test_a_model_that_normalizes_its_stream_is_refused():
    with pytest.raises(InvalidInput, match="normalizes the stream"):
        explain(build("bert"), CLEAN, CORRUPT, metric=METRIC)


@pytest.mark.slow
def test_the_control_has_as_many_edges():
    one, two = of("llama"), of("llama", seed=1)
    assert one.edges == two.edges
    assert not torch.equal(one.control, two.control)


def test_the_scores_of_all_edges_are_listed_once(monkeypatch):
    """A model of 30 × 9 heads has 110,000 edges: once for each edge would take hours."""
    calls = []

    def scores(result):
        calls.append(result)
        return scores_by_edge(result.edges, result.effect)

    monkeypatch.setattr(EdgeAttribution, "scores", property(scores))
    of("llama")
    assert len(calls) == 1
