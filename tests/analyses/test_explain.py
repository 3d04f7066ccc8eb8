"""The smallest circuit that is faithful, what it needs, and what is known of its parts."""

from importlib import import_module

import pytest
import torch
from architectures import assert_close, build, padded, tokens_of
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

from analyses import (
    EdgeAttribution,
    attribute_edges,
    explain,
    head_roles,
    prune,
    run_circuits,
)
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
    model, explanation = build(architecture), of(architecture)
    ends = [METRIC(done.logits, done.batch) for done in (run(model, CLEAN), run(model, CORRUPT))]
    assert_close(explanation.whole, ends[0])
    assert_close(explanation.empty, ends[1])
    values = written(model, [model.batch(CORRUPT)])
    (circuit_value,) = run_circuits(model, CLEAN, [explanation.edges], values, METRIC)
    assert_close(explanation.value[-1], circuit_value)
    f = 1 - (circuit_value - ends[0]).abs().sum() / (ends[1] - ends[0]).abs().sum()
    assert explanation.faithfulness == pytest.approx(float(f))
    assert explanation.is_explained == (float(f) >= FAITHFUL)
    assert {name for name, *_ in explanation.to_frame().itertuples(index=False)} == set(
        explanation.names
    )


def test_it_is_the_first_that_is_faithful():
    sizes = of("llama").to_size_frame()
    assert len(sizes) > 1
    assert (sizes["faithfulness"][:-1] < FAITHFUL).all()
    assert sizes["count"].is_monotonic_increasing


def test_few_edges_explain_nothing_and_the_summary_begins_with_it():
    """Where those of the highest rank don't connect, the strongest path is run."""
    explanation = of("llama", most=1)
    assert not explanation.is_explained
    assert explanation.paths == (explanation.edges,)
    assert explanation.summary().startswith("No small circuit explains this: ")
    assert not explanation.support
    assert (explanation.to_frame()["reason"] == CARRIES).all()


def test_faithfulness_of_each_prompt_is_at_most_that_of_means():
    model, explanation = build("llama"), of("llama")
    graph = computation_graph(model)
    scores = {
        (w.name, r.name): float((w.name, r.name) in explanation.edges) for w, r in graph.edges
    }
    share = len(explanation.edges) / len(scores)
    means = prune(scores, model, CLEAN, CORRUPT, metric=METRIC, sizes=(share,)).faithfulness[0]
    assert explanation.faithfulness <= float(means) + 1e-12


def test_an_edge_that_scores_is_distinguished_from_one_that_is_needed():
    """The previous-token head does the same on both prompts, and induction needs it."""
    model = load("induction-by-hand")
    v, w = (model.to_single_token(letter) for letter in "vw")
    explanation = explain(model, "QxmvbQxm", "QxmwbQxm", metric=metrics.logit_diff(v, w))
    parts = dict(zip(explanation.names, explanation.to_frame()["reason"], strict=True))
    assert parts == {"L0H0": ALIKE, "L1H0": CARRIES}
    assert explanation.paths == ((("embed", "L1H0.v"), ("L1H0", "logits")),)
    assert ("L0H0", "L1H0.k") in explanation.support
    assert explanation.faithfulness_control < 0.1
    assert "1 pair;" in explanation.summary()
    *_, labels, nodes = explanation.figure().data
    assert set(labels.text) == {"previous-token", "induction"}
    assert set(nodes.text) == {"embed", "pos_embed", "L0H0", "L1H0", "logits"}


@pytest.mark.slow
def test_a_metric_that_is_no_logit_has_no_direct_effects():
    model = build("llama")
    explanation = explain(model, CLEAN, CORRUPT, metric=metrics.prob(1))
    assert explanation.direct.isnan().all()
    difference = of("llama")
    assert not difference.direct.isnan().any()
    frame = difference.to_frame()
    sides = frame["to_target"] - frame["to_distractor"]
    assert sides.tolist() == pytest.approx(frame["direct"].tolist(), abs=1e-12)
    assert " (target " in difference.summary()
    assert "to_target" not in explanation.to_frame()


@pytest.mark.slow
def test_padding_changes_nothing():
    rows = [CLEAN[0, :4], CLEAN[1]], [CORRUPT[0, :4], CORRUPT[1]]
    left, right = (
        explain(build("llama"), *(padded(batch, side) for batch in rows), metric=METRIC)
        for side in ("left", "right")
    )
    assert left.edges == right.edges
    assert left.attends == right.attends
    assert_close(left.score, right.score)


@pytest.mark.slow
def test_an_encoder_decoder():
    pair = [tokens_of("t5", batch=2, seed=seed) for seed in (0, 1)]
    explanation = explain(build("t5"), tuple(pair[0]), tuple(pair[1]), metric=METRIC)
    assert explanation.edges
    assert "repeats random tokens" in explanation.notes[0]
    assert any(name.startswith("cross.") for name in explanation.names)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"most": 0}, "most=0"),
        ({"corrupt": CLEAN}, "the same clean and corrupted"),
        ({"metric": metrics.logit_diff(1, 1)}, "nothing to explain"),
    ],
)
def test_what_has_no_answer_is_refused(changed, message):
    settings = {"corrupt": CORRUPT, "metric": METRIC} | changed
    with pytest.raises(InvalidInput, match=message):
        explain(build("llama"), CLEAN, **settings)


def test_a_model_that_normalizes_its_stream_is_refused():
    with pytest.raises(InvalidInput, match="normalizes the stream"):
        explain(build("bert"), CLEAN, CORRUPT, metric=METRIC)


@pytest.mark.slow
def test_the_control_has_as_many_edges():
    first, second = of("llama"), of("llama", seed=1)
    assert first.edges == second.edges
    assert not torch.equal(first.control, second.control)


def test_the_scores_of_all_edges_are_listed_once(monkeypatch):
    """A model of 30 × 9 heads has 110,000 edges: once for each edge would take hours."""
    calls = []

    def scores(result):
        calls.append(result)
        return scores_by_edge(result.edges, result.effect)

    monkeypatch.setattr(EdgeAttribution, "scores", property(scores))
    of("llama")
    assert len(calls) == 1


def not_again(*_, **__):
    pytest.fail("measured again")


def test_what_was_measured_before_is_not_measured_again(monkeypatch):
    model = load("induction-by-hand")
    v, w = (model.to_single_token(letter) for letter in "vw")
    pair, metric = ("QxmvbQxm", "QxmwbQxm"), metrics.logit_diff(v, w)
    alone = explain(model, *pair, metric=metric)
    earlier = {
        "attribution": attribute_edges(model, *pair, metric=metric),
        "roles": head_roles(model),
    }
    parts = {
        "attribute_edges": "analyses.explain",
        "head_roles": "analyses.explain.circuit_evidence",
    }
    for name, module in parts.items():  # analyses.explain is also the name of the function
        monkeypatch.setattr(import_module(module), name, not_again)
    again = explain(model, *pair, metric=metric, **earlier)
    assert torch.equal(again.score, alone.score)
    assert (again.edges, again.support, again.roles) == (alone.edges, alone.support, alone.roles)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": "python-2l"}, "attribution: measured with other model and config and wei"),
        ({"clean": "abcdab"}, "attribution: measured with other tokens than"),
        ({"metric": metrics.logit(4)}, "attribution: its metric is .* on the clean prompts, but"),
        ({"method": "eap"}, "by the conductance of all of them; these have eap"),
    ],
)
def test_what_was_measured_on_something_else_is_refused(changed, message):
    """Else another model's circuit would be described."""
    model, (clean, corrupt) = example.model(), example.PAIR
    measured = attribute_edges(
        load(changed["model"]) if "model" in changed else model,
        changed.get("clean", clean),
        corrupt if "clean" not in changed else "abddab",
        metric=changed.get("metric", example.LOGIT),
        method=changed.get("method", "conductance"),
    )
    with pytest.raises(InvalidInput, match=message):
        explain(model, clean, corrupt, metric=example.LOGIT, attribution=measured)


def test_roles_of_another_model_are_refused():
    roles = head_roles(load("python-2l"), rows=1)
    with pytest.raises(InvalidInput, match="roles: measured with other model and config"):
        explain(example.model(), *example.PAIR, metric=example.LOGIT, roles=roles)


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, clean, n):
    """Which circuit is found depends on all prompts; its ends are those of each."""
    other = other_tokens(model, clean)
    result = explain(model, clean, other, metric=metrics.logit(3), steps=2)
    return [{"whole": result.whole[i], "empty": result.empty[i]} for i in range(n)]


DECLARED = Declared(
    analysis=explain,
    made=Made(lambda: explain(example.model(), *example.PAIR, metric=example.LOGIT)),
    call=Call(
        small.PAIR,
        small.METRIC,
        {
            "metric": odd.CHOICE,
            "most": odd.COUNT,
            "steps": odd.COUNT,
            "attribution": odd.SOMETHING,
            "roles": odd.SOMETHING,
            "seed": odd.SEED,
            "memory": odd.MEMORY,
        },
    ),
    command=Command(
        "explain",
        ("--model", "rasp-reverse"),
        "explain",
        "2 edges keep 100 %",
        "metric=logit-diff most=64",
        more=("edges.csv", "edges.parquet"),
    ),
    of_each_prompt=EachPrompt(
        numbers_of_prompts, {**WITHOUT_EDGES, "texts": "faithfulness is undefined"}, is_slow=True
    ),
    of_each_pair=Without("tests/laws/test_edges.py has the edges of two stacks"),
    symmetric=Symmetric(
        {
            "": lambda case: explain(
                case.model, case.clean, case.corrupt, metric=case.metric, steps=3
            )
        },
        draws_tokens=True,
        refused=NORMALIZING_THE_STREAM,
    ),
)
