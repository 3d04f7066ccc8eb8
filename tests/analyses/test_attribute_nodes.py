"""Scores of nodes beside exact patching of them."""

from collections.abc import Sequence

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    D_MODEL,
    D_VOCAB,
    PLAIN,
    assert_close,
    build,
    build_new,
    covering,
    padded,
    tokens_of,
)
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
from declared.prompts import other_tokens
from torch import Tensor

import interp
from analyses import NodeAttribution, attribute_nodes
from analyses.attribute_nodes.nodes import Node, NodeRuns, nodes_of
from analyses.methods.components.minimal_pairs import aligned_prompts
from interp import Config, MLPConfig, StackConfig, Transformer, edits, metrics, run
from interp.edits import Edit
from interp.errors import InvalidInput
from interp.prompts import logit_diff_of_prompts

METRIC = metrics.logit_diff(1, 2)
WRITES = ("attn_out", "mlp_out")
SINGLE = [name for name, config in ARCHITECTURES.items() if len(config.stacks) == 1]


def runs_of(model: Transformer) -> NodeRuns:
    (clean,), (corrupt,) = (model.check(*tokens_of(model.config, seed=s)) for s in (0, 1))
    return NodeRuns.of(model, clean, corrupt, METRIC)


def effects(runs: NodeRuns) -> Tensor:
    nodes = nodes_of(runs.model)
    return interp.sweep(runs.model, runs.clean, [runs.edit(n) for n in nodes], METRIC).effect


def attributed(name: str, **settings: object) -> NodeAttribution:
    model, prompts = interp.load(name), interp.read_prompts(f"{name}-pairs")[:6]
    metric = logit_diff_of_prompts(model.to_single_token, prompts)
    return attribute_nodes(model, *aligned_prompts(model, prompts), metric=metric, **settings)


def slope(
    runs: NodeRuns, node: Node, frozen: Sequence[Edit] = (), column: int | None = None
) -> Tensor:
    """d/dε of the metric with n + ε (n′ − n), at ε = 0, by a difference quotient.

    With ``column``, at that column alone.
    """
    change, step = runs.other[node.place] - runs.own[node.place], 1e-6
    if column is not None:
        only = torch.zeros_like(change)
        only[:, column] = change[:, column]
        change = only
    part, where = (
        (change, {}) if node.head is None else (change[:, :, node.head], {"head": node.head})
    )
    sides = [
        METRIC(run(runs.model, runs.clean, edits=[added, *frozen]).logits, runs.clean)
        for added in (edits.add(node.place, e * part, **where) for e in (step, -step))
    ]
    return (sides[0] - sides[1]) / (2 * step)


@pytest.mark.parametrize("name", covering(SINGLE))
def test_a_score_is_the_slope_of_the_metric_towards_the_patched_value(name):
    runs = runs_of(build(name))
    scores = runs.atp()
    for number, node in list(enumerate(nodes_of(runs.model)))[::5]:
        assert_close(scores[number], slope(runs, node), 1e-6, node)


def test_scores_at_positions_are_slopes_there_and_sum_to_the_node_s():
    """Each prompt's own tokens count, whatever its padding; a prompt that is too short has NaN."""
    model = build("gpt2")
    rows = [torch.tensor(ids) for ids in ([1, 2, 3, 4], [5, 6], [7, 8, 9])]
    clean, corrupt = (padded([(row + by) % D_VOCAB for row in rows], "left") for by in (0, 3))
    settings = {"metric": METRIC, "method": "atp"}
    attribution = attribute_nodes(model, clean, corrupt, positions=True, **settings)
    by_position = attribution.by_position
    assert_close(by_position.nansum(-1), attribution.effect)
    assert_close(attribution.effect, attribute_nodes(model, clean, corrupt, **settings).effect)
    lengths = torch.tensor([len(row) for row in rows])
    assert torch.equal(~by_position.isnan().any(0), torch.arange(4) < lengths[:, None])
    runs = NodeRuns.of(model, model.batch(clean), model.batch(corrupt), METRIC)
    for number, node in list(enumerate(nodes_of(model)))[::5]:
        for column in range(4):
            expected = slope(runs, node, column=column)
            for prompt, length in enumerate(lengths.tolist()):
                if (pos := column - 4 + length) >= 0:
                    assert_close(by_position[number, prompt, pos], expected[prompt], 1e-6)
    frame = attribution.to_position_frame()
    assert frame.set_index(["name", "pos"])["n"]["L1MLP"].to_dict() == {0: 3, 1: 3, 2: 2, 3: 1}
    assert list(attribution.position_figure().layout.xaxis.ticktext) == ["0", "1", "2", "3 4/7"]
    keys = [
        name
        for name, kind in zip(attribution.names, attribution.kinds(), strict=True)
        if kind == "k"
    ]
    names, mean = attribution.largest_by_position(2, keys)
    sizes = by_position.nanmean(1).abs().amax(-1)
    assert set(names) == {*sorted(keys, key=lambda k: -sizes[attribution.names.index(k)])[:2]}
    assert_close(mean, by_position.nanmean(1)[[attribution.names.index(name) for name in names]])
    plain = attribute_nodes(model, clean, corrupt, **settings)
    assert plain.to_position_frame().empty
    with pytest.raises(InvalidInput, match="positions=True"):
        plain.position_figure()


def test_sizes_with_dropped_layers_are_means_of_slopes_with_their_writes_held():
    """Of three layers; what a held layer computes itself has no effect, and no part in the mean."""
    runs = runs_of(build(Config(D_MODEL, D_VOCAB, 8, decoder=StackConfig(3, PLAIN, MLPConfig(10)))))
    scores, plain = runs.atp_star(), runs.atp()
    for number, node in enumerate(nodes_of(runs.model)):
        if node.name not in ("L0H1", "L0MLP", "L1H0.v", "L2H2"):
            continue
        layers = [layer for layer in range(3) if layer != node.place.layer]
        frozen_layers = [
            [
                edits.replace(p, runs.own[p])
                for p in runs.own
                if p.layer == layer and p.point.label in WRITES
            ]
            for layer in layers
        ]
        sizes = [slope(runs, node, made).abs() for made in frozen_layers]
        assert_close(scores[number], plain[number].sign() * sum(sizes) / 2, 1e-6, node)
        assert not torch.allclose(scores[number], plain[number]) or node.name == "L2H2"


def test_where_all_that_follows_is_linear_scores_are_exact():
    """Values and z of the last layer of attention alone; AtP* of its queries and keys too."""
    runs = runs_of(build("biased-seed"))
    names, exact = [node.name for node in nodes_of(runs.model)], effects(runs)
    off, fixed = ((scores - exact).abs().amax(-1) for scores in (runs.atp(), runs.atp_star()))
    last = torch.tensor([name.startswith("L1") for name in names])
    attending = torch.tensor([name.endswith((".q", ".k")) for name in names])
    assert float(off[last & ~attending].max()) < 1e-12
    assert float(off[attending].min()) > 1e-6
    assert float(fixed[last].max()) < 1e-12


@pytest.mark.parametrize("name", ["llama", "gptj"])
def test_shared_keys_are_fixed_for_all_heads_that_share_them(name):
    """A change so small that all is linear: AtP* is then AtP."""
    model = build(name)
    runs = runs_of(model)
    nodes = nodes_of(model)
    assert "L0KV0.k" in [node.name for node in nodes]
    near = {
        node.place: runs.own[node.place] + 1e-6 * (runs.other[node.place] - runs.own[node.place])
        for node in nodes
    }
    small = NodeRuns(model, runs.clean, METRIC, runs.own, near)
    assert_close(small.atp_star() * 1e6, runs.atp(), 1e-4)


def test_a_node_without_weights_scores_zero():
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[1].attn.W_O[1].zero_()
    runs = runs_of(model)
    names = [node.name for node in nodes_of(model)]
    dead = [names.index(name) for name in ("L1H1", "L1H1.q", "L1H1.k", "L1H1.v")]
    for scores in (runs.atp(), runs.atp_star()):
        assert bool((scores[dead].abs() < 1e-15).all())
        assert bool((scores[names.index("L1H0")] != 0).all())


def test_the_exact_method_patches_every_node_and_a_check_has_its_numbers():
    exact, checked = (attributed("rasp-reverse", method=m, check=7) for m in ("exact", "atp"))
    assert torch.equal(exact.effect, exact.exact)
    assert_close(checked.exact, exact.effect[checked.checked], 1e-5)
    assert len(checked.checked) == 7
    assert "WARNING" not in checked.summary()


def test_where_a_softmax_saturates_the_summary_warns():
    assert "WARNING: the scores correlate" in attributed("rasp-histogram", method="atp").summary()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "eap"}, "method='eap' is not known"),
        ({"positions": True}, 'only with method="atp"'),
        ({"check": 0}, "check=0 must be an integer of at least 1"),
        ({"metric": metrics.accuracy(3)}, "no gradient"),
    ],
)
def test_what_cannot_be_attributed_is_refused(settings, message):
    arguments = {"metric": metrics.logit(3)} | settings
    with pytest.raises(InvalidInput, match=message):
        attribute_nodes(interp.load("induction-by-hand"), "abcxab", "abdxab", **arguments)


def test_a_model_with_two_stacks_is_refused():
    with pytest.raises(InvalidInput, match="models with one stack"):
        nodes_of(build("t5"))


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, clean, n):
    other = other_tokens(model, clean)
    result = attribute_nodes(model, clean, other, metric=metrics.logit(3), check=1)
    return [{"clean": result.clean[i], "effect": result.effect[:, i]} for i in range(n)]


def of_case(**settings):
    return lambda case: attribute_nodes(
        case.model, case.clean, case.corrupt, metric=case.metric, **settings
    )


DECLARED = Declared(
    analysis=attribute_nodes,
    made=Made(
        lambda: attribute_nodes(example.model(), *example.PAIR, metric=example.LOGIT),
        ("effect", "effect"),
    ),
    call=Call(
        small.PAIR,
        small.METRIC,
        {
            "metric": odd.CHOICE,
            "method": odd.CHOICE,
            "positions": (*odd.SWITCH, True),
            "check": odd.COUNT,
            "seed": odd.SEED,
            **odd.SWEPT,
        },
    ),
    command=Command(
        "nodes",
        ("--model", "rasp-reverse", "--method", "atp", "--positions"),
        "nodes",
        "nodes (atp)",
        "method=atp-star metric=logit-diff positions=False check=64",
        more=("by_position.csv", "by_position.parquet"),
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts),
    of_each_pair=Without("it takes models with one stack"),
    symmetric=Symmetric(
        {"": of_case(check=1000), "positions": of_case(method="atp", positions=True)},
        of_experts=("positions",),
    ),
)
