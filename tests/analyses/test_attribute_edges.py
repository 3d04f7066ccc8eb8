"""Scores of edges beside exact patching: on models whose circuit is known, and on a trained one."""

import pytest
import torch
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
from torch import Tensor

import interp
from analyses import EdgeAttribution, attribute_edges
from analyses.methods.attribution.agreement import TOP, Agreement, cells_to_check
from analyses.methods.attribution.edges import most_points
from analyses.methods.circuits.written import written
from analyses.methods.components.minimal_pairs import aligned_prompts
from analyses.results import plotly_figure
from analyses.results.edge_table import DRAWN, MOST_IN_A_HEATMAP, edge_drawing
from interp import edits, metrics, run
from interp.errors import InvalidInput
from interp.prompts import logit_diff_of_prompts

RASP = ("rasp-duplicates", "rasp-fraction", "rasp-histogram", "rasp-reverse")


def attributed(name: str, pairs: int = 6, **settings: object) -> EdgeAttribution:
    model, prompts = interp.load(name), interp.read_prompts(f"{name}-pairs")[:pairs]
    metric = logit_diff_of_prompts(model.to_single_token, prompts)
    return attribute_edges(model, *aligned_prompts(model, prompts), metric=metric, **settings)


def auroc(scores: Tensor, live: Tensor) -> float:
    """The chance that a live edge scores above another."""
    above = scores[live][:, None] - scores[~live]
    return float((above > 0).double().mean() + (above == 0).double().mean() / 2)


# ---- on models whose circuit is known -------------------------------------------------------


@pytest.mark.parametrize("name", RASP)
def test_conductance_ranks_the_live_edges_of_compiled_models_first(name):
    attribution = attributed(name, tolerance=0.01, check=1000)
    live = torch.zeros(len(attribution.edges), dtype=torch.bool)
    live[attribution.checked] = attribution.exact.abs().amax(-1) > 1e-4
    assert bool(live.any())
    assert auroc(attribution.effect.abs().mean(-1), live) >= 0.99
    assert attribution.agreement.pearson > 0.95
    assert "WARNING" not in attribution.summary()


@pytest.mark.parametrize(("method", "points"), [("conductance", 4), ("eap-ig", 4), ("eap", 2)])
def test_steps_are_the_number_of_steps(method, points):
    """A tolerance alone adds more; the summary has their number."""
    attribution = attributed("rasp-histogram", 2, method=method, steps=3, check=0)
    assert set(attribution.n_points.tolist()) == {points} == {most_points(method, 3)}
    assert f"{points} points a path" in attribution.summary()


def test_a_tolerance_halves_steps():
    attribution = attributed("rasp-histogram", 2, steps=3, tolerance=0.01, check=0)
    assert 4 < int(attribution.n_points.max()) <= most_points("conductance", 3, 0.01)


def test_a_summary_goes_by_size_whether_or_not_effects_are_significant():
    """Of eight pairs, some of the largest edges are not significant."""
    attribution = attributed("python-4l", 8, method="eap", check=0)
    frame, summary = attribution.to_frame(), attribution.summary()
    listed = summary.splitlines()[-11:-1]
    for line, row in zip(listed, frame.head(10).to_dict("records"), strict=True):
        assert line.startswith(f"{row['name']} {'*' if row['significant'] else ' '}".rstrip())
    assert f"q ≤ 0.05: {frame['significant'].sum()} of {len(frame)} edges" in summary


def test_uniform_steps_miss_where_a_model_saturates_and_the_summary_warns():
    assert attributed("rasp-histogram").completeness_error[0] < 0.05
    attribution = attributed("rasp-histogram", steps=10)
    assert attribution.completeness_error[0] > 0.9
    assert "WARNING: sums are off" in attribution.summary()
    assert "WARNING: the scores correlate with exact patching below" in attribution.summary()


# ---- on a trained model ---------------------------------------------------------------------


def test_conductance_agrees_with_exact_patching_better_than_attribution_patching():
    attributions = {m: attributed("python-2l", 6, method=m, check=0) for m in ("eap", "eap-ig")}
    complete = attributions["conductance"] = attributed("python-2l", 6, tolerance=0.01, check=1000)
    exact = complete.exact[complete.checked.argsort()].mean(-1)
    r = {
        method: Agreement.of(attribution.effect.mean(-1), exact).pearson
        for method, attribution in attributions.items()
    }
    assert r["conductance"] == pytest.approx(complete.agreement.pearson)
    assert r["conductance"] >= 0.95
    assert r["eap-ig"] >= 0.88
    assert 0.57 <= r["eap"] < r["conductance"]
    assert float(complete.completeness_error.max()) < 0.02
    inputs, inner, _ = attributions["eap-ig"].completeness_error
    assert inputs < 0.02 < inner
    assert complete.effect.shape == (len(complete.edges), 6)


def test_the_exact_method_is_patching_of_every_edge():
    """And what is checked of another method has the same numbers."""
    model, prompts = (
        interp.load("rasp-duplicates").double(),
        interp.read_prompts("rasp-duplicates-pairs")[:2],
    )
    clean, corrupt = aligned_prompts(model, prompts)
    metric = logit_diff_of_prompts(model.to_single_token, prompts)
    attribution = attribute_edges(model, clean, corrupt, metric=metric, method="exact")
    values, plain = written(model, corrupt), metric(run(model, *clean).logits, clean[-1])
    for (writer, reader), effect in zip(attribution.edges, attribution.effect, strict=True):
        edit = edits.edge(writer, reader, values[writer])
        patched = metric(run(model, *clean, edits=[edit]).logits, clean[-1])
        torch.testing.assert_close(effect, patched - plain, rtol=0, atol=1e-10)
    checked = attribute_edges(model, clean, corrupt, metric=metric, check=5)
    torch.testing.assert_close(
        checked.exact, attribution.effect[checked.checked], rtol=0, atol=1e-10
    )
    assert len(checked.checked) == 5


def test_the_metric_is_read_with_the_clean_tokens():
    """As it is while an edge is patched: the change is that of the inputs alone."""
    model, prompts = interp.load("python-2l"), interp.read_prompts("python-2l-pairs")[:2]
    clean, corrupt = aligned_prompts(model, prompts)
    attribution = attribute_edges(model, clean, corrupt, metric="loss", check=0)
    corrupt_loss = metrics.loss()(model(*corrupt), clean[-1])
    torch.testing.assert_close(attribution.corrupt, corrupt_loss.detach().double())
    assert float(attribution.completeness_error.max()) < 0.02
    assert attribution.agreement.n == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "gradient"}, "method='gradient' is not known"),
        ({"steps": 0}, "steps=0 must be an integer of at least 1"),
        ({"check": -1}, "check=-1 must be an integer of at least 0"),
        ({"metric": metrics.accuracy(3)}, "no gradient"),
    ],
)
def test_what_cannot_be_attributed_is_refused(settings, message):
    arguments = {"metric": metrics.logit(3)} | settings
    with pytest.raises(InvalidInput, match=message):
        attribute_edges(interp.load("induction-by-hand"), "abcxab", "abdxab", **arguments)


# ---- agreement ------------------------------------------------------------------------------


def test_agreement_of_proportional_estimates_is_perfect_and_of_opposite_ones_reversed():
    x = torch.linspace(-1, 2.03, 2 * TOP, dtype=torch.float64)
    same, opposite = Agreement.of(3 * x, x), Agreement.of(-x.pow(3), x)
    assert same.pearson == pytest.approx(1)
    assert same.overlap == 1
    assert opposite.spearman == pytest.approx(-1)
    assert opposite.pearson > -0.99
    assert same.is_good
    assert not opposite.is_good


def test_equal_values_share_their_rank_and_nothing_has_no_agreement():
    tied = Agreement.of(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 0.0, 5.0]))
    assert tied.spearman == pytest.approx(1)
    none = Agreement.of(torch.zeros(4), torch.tensor([1.0, 2.0, 3.0, torch.nan]))
    assert none.n == 3
    assert none.pearson != none.pearson


def test_the_cells_to_check_are_the_largest_and_one_of_each_stratum():
    sizes = torch.arange(100.0).flip(0)
    drawn = cells_to_check(sizes, 10, seed=1).tolist()
    assert drawn[:5] == [0, 1, 2, 3, 4]
    assert [(n - 5) // 19 for n in drawn[5:]] == [0, 1, 2, 3, 4]
    assert drawn != cells_to_check(sizes, 10, seed=2).tolist()
    assert sorted(cells_to_check(sizes, 200).tolist()) == list(range(100))
    assert len(cells_to_check(sizes, 0)) == 0


# ---- the figure -----------------------------------------------------------------------------


def made_up_edges(count: int) -> tuple[list[tuple[str, str]], Tensor]:
    """Edges of a made-up graph with effects on two prompts, the last of which is not measured."""
    edges = [(f"L{n // 9}H{n % 9}", f"L{n // 9 + 1}MLP") for n in range(count)]
    effect = torch.randn(count, 2, generator=torch.Generator().manual_seed(0))
    effect[-1] = torch.nan
    return edges, effect


def test_of_many_edges_the_strongest_are_drawn_as_a_graph():
    """With the sign of their mean effect; the title has the number of all edges."""
    edges, effect = made_up_edges(MOST_IN_A_HEATMAP + 1)
    figure = plotly_figure(edge_drawing(edges, effect, title="Effect", unit="logits"))
    names = [node[0] for node in figure.layout.meta["nodes"]]
    lines = [trace.meta["edge"] for trace in figure.data if trace.meta]
    mean = effect.mean(-1).nan_to_num(0)
    strongest = mean.abs().topk(DRAWN).indices.tolist()
    expected = {edges[n]: pytest.approx(float(mean[n])) for n in strongest}
    assert {(names[writer], names[reader]): weight for writer, reader, weight in lines} == expected
    assert figure.layout.title.text == f"Effect: the {DRAWN} strongest of 501 edges"
    rows = {node[2] for node in figure.layout.meta["nodes"]}
    assert figure.layout.height >= 40 * len(rows)


def test_as_many_edges_as_a_heatmap_can_show_are_all_shown():
    edges, effect = made_up_edges(MOST_IN_A_HEATMAP)
    figure = plotly_figure(edge_drawing(edges, effect, title="Effect", unit="logits"))
    assert figure.data[0].type == "heatmap"
    values = [value for row in figure.data[0].z for value in row if value is not None]
    assert int((~torch.tensor(values).isnan()).sum()) == MOST_IN_A_HEATMAP - 1
    assert figure.layout.title.text == "Effect"


def test_of_a_call_that_was_cancelled_only_what_was_measured_is_drawn():
    edges, effect = made_up_edges(MOST_IN_A_HEATMAP + 1)
    effect[7:] = torch.nan
    figure = plotly_figure(edge_drawing(edges, effect, title="Effect", unit="logits"))
    assert sum(1 for trace in figure.data if trace.meta) == 7
    assert figure.layout.title.text == "Effect: the 7 strongest of 501 edges"


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, clean, n):
    result = attribute_edges(
        model, clean, other_tokens(model, clean), metric=metrics.logit(3), steps=2, check=0
    )
    return [{"effect": result.effect[:, i], "sums": result.sum[:, i]} for i in range(n)]


def of_case(**settings):
    return lambda case: attribute_edges(
        case.model, case.clean, case.corrupt, metric=case.metric, **settings
    )


DECLARED = Declared(
    analysis=attribute_edges,
    made=Made(
        lambda: attribute_edges(example.model(), *example.PAIR, metric=example.LOGIT),
        ("effect", "effect"),
    ),
    call=Call(
        small.PAIR,
        small.METRIC,
        {
            "metric": odd.CHOICE,
            "method": odd.CHOICE,
            "steps": (odd.TEXT, odd.BELOW, 0, odd.BROKEN, odd.LISTED, True),
            "tolerance": (odd.TEXT, odd.BELOW, 0.0, odd.BROKEN, odd.LISTED, True),
            "check": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NOTHING, True),
            "seed": odd.SEED,
            **odd.SWEPT,
        },
    ),
    command=Command(
        "attribute",
        ("--model", "rasp-reverse", "--check", "8"),
        "attribute",
        "edges",
        "method=conductance metric=logit-diff steps=None tolerance=None check=64",
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts, WITHOUT_EDGES),
    of_each_pair=Without("tests/laws/test_edges.py has the edges of two stacks"),
    symmetric=Symmetric(
        {
            "": of_case(check=1000),
            "integrated gradients": of_case(method="eap-ig", check=0),
        },
        refused=NORMALIZING_THE_STREAM,
    ),
)
