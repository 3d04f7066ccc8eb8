"""Patching of edges: which paths carry the difference between two prompts."""

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

from analyses import patch_paths
from analyses.methods.circuits.written import written
from interp import Run, Transformer, computation_graph, edits, load, metrics, read_prompts, run
from interp.errors import InvalidInput, UnknownPlace
from interp.prompts import logit_diff_of_prompts

METRIC = metrics.logit_diff(1, 2)


def pair(name: str) -> tuple[Transformer, torch.Tensor, torch.Tensor]:
    return build(name), *tokens_of(name, batch=3), *tokens_of(name, batch=3, seed=1)


def measured(done: Run) -> torch.Tensor:
    return METRIC(done.logits, done.batch)


@pytest.mark.parametrize("name", ["gpt2", "llama", "neox", "gemma2"])
def test_effects_are_those_of_one_run_an_edge(name):
    """Also with grouped heads, parallel blocks and norms of what is written."""
    model, clean, corrupt = pair(name)
    result = patch_paths(model, clean, corrupt, metric=METRIC)
    values = written(model, [model.batch(corrupt)])
    assert_close(result.clean, measured(run(model, clean)))
    assert_close(result.corrupt, measured(run(model, corrupt)))
    for (writer, reader), patched in list(zip(result.edges, result.patched, strict=True))[::11]:
        edge = edits.edge(writer, reader, values[writer])
        assert_close(patched, measured(run(model, clean, edits=[edge])))


def test_what_is_written_adds_up():
    """Σ_w u_w is the last stream, here as the law of masked runs reads it."""
    model, clean, _ = pair("gpt2")
    total = sum(written(model, [model.batch(clean)]).values())
    assert_close(total, run(model, clean, record="resid_post").cache["resid_post", -1])


def test_edges_that_carry_the_same_have_no_effect():
    """Biases are alike on all prompts; zero and mean ablation change them all the same."""
    model, clean, corrupt = pair("gpt2")
    biases = [(w.name, r.name) for w, r in computation_graph(model).edges if w.name.endswith("b_O")]
    same = patch_paths(model, clean, corrupt, edges=biases, metric=METRIC)
    assert same.effect.abs().max() < 1e-12
    zero = patch_paths(model, clean, corrupt, edges=biases, metric=METRIC, method="zero")
    assert zero.effect.abs().amax(1).min() > 1e-6


@pytest.mark.parametrize("method", ["resample", "mean", "zero"])
def test_frozen_heads(method):
    """Wang et al. 2022: the sender acts through MLPs; all other heads compute what they did."""
    model, clean, corrupt = pair("gpt2")
    batch, other = model.batch(clean), model.batch(corrupt)
    edges = [("L0H1", "L1H0.q"), ("L0H1", "logits"), ("embed", "L1H2.v"), ("L0MLP", "L1H1.k")]
    result = patch_paths(
        model, clean, corrupt, edges=edges, metric=METRIC, method=method, mode="frozen heads"
    )
    clean_writes = written(model, [batch])
    new = {
        "resample": lambda name: written(model, [other])[name],
        "mean": lambda name: clean_writes[name].mean((0, 1)),
        "zero": lambda name: 0 * clean_writes[name],
    }[method]
    z = run(model, clean, record="z").cache
    frozen = [edits.replace("z", z["z", layer], layer=layer) for layer in range(2)]
    for (writer, reader), patched in zip(edges, result.patched, strict=True):
        change = (new(writer) - clean_writes[writer]).expand_as(clean_writes[writer])
        at = {"L0H1": "attn_out", "embed": "embed", "L0MLP": "mlp_out"}[writer]
        where = (at,) if at == "embed" else (at, 0)
        sent = run(model, clean, record="all", edits=[*frozen, edits.add(where, change)]).cache
        if reader == "logits":
            made = edits.replace(("resid_post", 1), sent["resid_post", 1])
        else:
            head, point = int(reader[3]), reader[-1]
            made = edits.replace((point, 1), sent[point, 1][:, :, head], head=head)
        assert_close(patched, measured(run(model, clean, edits=[made])))


def test_the_paths_of_induction_by_hand():
    """Of two texts that differ in what follows, the induction head's value alone differs."""
    model = load("induction-by-hand")
    metric = metrics.logit_diff(model.to_single_token("c"), model.to_single_token("d"))
    result = patch_paths(model, ["abcxab"], ["abdxab"], metric=metric)
    live = {edge for edge, effect in zip(result.edges, result.effect, strict=True) if effect != 0}
    assert live == {("embed", "L1H0.v"), ("L1H0", "logits")}
    assert result.corrupt.item() == -result.clean.item() < 0


def test_python_2l_answers_by_its_induction_heads():
    model, prompts = load("python-2l"), read_prompts("python-2l-pairs")[:12]
    result = patch_paths(
        model,
        [prompt.text for prompt in prompts],
        [prompt.corrupt for prompt in prompts],
        metric=logit_diff_of_prompts(model.to_single_token, prompts),
        edges=[(f"L1H{head}", "logits") for head in range(8)],
    )
    frame = result.to_frame()
    assert set(frame["writer"].head(3)) == {"L1H0", "L1H2", "L1H5"}
    assert frame["significant"].head(3).all()
    passed = frame["significant"].sum()
    assert f"* q ≤ 0.05: {passed} of 8 edges" in result.summary()
    assert [line.split(" *")[0] for line in result.summary().splitlines()[1:4]] == frame["name"][
        :3
    ].tolist()


def test_a_cancelled_call_is_resumed():
    model, clean, corrupt = pair("gpt2")
    settings = {"metric": METRIC, "memory": 60_000.0}
    cells = []
    stop = {"progress": lambda *at: cells.append(at), "cancelled": lambda: bool(cells)}
    part = patch_paths(model, clean, corrupt, **stop, **settings)
    assert part.partial is not None
    assert part.patched.isnan().any()
    whole = patch_paths(model, clean, corrupt, **settings)
    patching = patch_paths(model, clean, corrupt, resume=part.partial, **settings)
    assert patching.partial is None
    torch.testing.assert_close(patching.patched, whole.patched, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"edges": [("L0H9", "logits")]}, UnknownPlace, "L0H9"),
        ({"edges": [("L1H0", "L0H0.q")]}, InvalidInput, "There is no edge"),
        ({"edges": []}, InvalidInput, "no edge"),
        ({"method": "noise"}, InvalidInput, "method='noise'"),
        ({"mode": "all"}, InvalidInput, "mode='all'"),
        ({"metric": "logits"}, InvalidInput, "metric='logits'"),
        ({"edges": [("L0.b_O", "logits")], "mode": "frozen heads"}, InvalidInput, "is a bias"),
    ],
)
def test_what_can_not_be_patched_is_refused(more, error, message):
    model, clean, corrupt = pair("gpt2")
    with pytest.raises(error, match=message):
        patch_paths(model, clean, corrupt, **{"metric": METRIC} | more)


def test_pairs_that_do_not_align_are_shown():
    model = load("python-2l")
    with pytest.raises(InvalidInput, match="needs its counterpart at the same position"):
        patch_paths(model, ["def f(x):"], ["def f(x, y):"])


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_edges_into_a_component_are_all_that_it_reads(name):
    """Also of a head that shares its keys and values with others."""
    model, clean, corrupt = pair(name)
    patching = patch_paths(model, clean, corrupt, into="L1H1", metric=METRIC)
    shared = "KV0" if name == "llama" else "H1"
    readers = {"L1H1.q", f"L1{shared}.k", f"L1{shared}.v"}
    every = [(w.name, r.name) for w, r in computation_graph(model).edges]
    assert patching.edges == tuple(edge for edge in every if edge[1] in readers)
    same = patch_paths(model, clean, corrupt, edges=patching.edges, metric=METRIC)
    assert_close(patching.patched, same.patched)
    mlp = patch_paths(model, clean, corrupt, into="L1MLP", metric=METRIC)
    assert {reader for _, reader in mlp.edges} == {"L1MLP"}
    logits = patch_paths(model, clean, corrupt, into="logits", metric=METRIC)
    assert logits.edges == tuple(edge for edge in every if edge[1] == "logits")


@pytest.mark.parametrize("method", ["mean", "zero"])
def test_means_and_zeros_need_no_corrupted_prompts(method):
    model, clean, corrupt = pair("gpt2")
    alone = patch_paths(model, clean, into="L1H0", method=method, metric=METRIC)
    beside = patch_paths(model, clean, corrupt, into="L1H0", method=method, metric=METRIC)
    assert_close(alone.patched, beside.patched)
    assert alone.corrupt is None
    assert "corrupted" not in alone.summary()
    assert alone.payload()["corrupt"] is None


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"into": "L1H0"}, InvalidInput, "corrupted prompts"),
        ({"into": "L9H0", "method": "zero"}, UnknownPlace, "L9H0"),
        ({"into": "embed", "method": "zero"}, InvalidInput, "names no edge"),
        ({"into": "L1H0", "edges": [("embed", "logits")], "method": "zero"}, InvalidInput, "both"),
    ],
)
def test_what_cannot_be_patched_alone(settings, error, match):
    model, clean, _ = pair("gpt2")
    with pytest.raises(error, match=match):
        patch_paths(model, clean, metric=METRIC, **settings)


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, clean, n):
    graph = computation_graph(model)
    edges = [(writer.name, reader.name) for writer, reader in graph.edges[::7]]
    other = other_tokens(model, clean)
    result = patch_paths(model, clean, other, metric=metrics.logit(3), edges=edges)
    return [{"clean": result.clean[i], "patched": result.patched[:, i]} for i in range(n)]


def of_case(case, **settings):
    return patch_paths(case.model, case.clean, case.corrupt, metric=case.metric, **settings)


def to_logits(case):
    """The edges from whatever is computed from a prompt."""
    sources = computation_graph(case.model).reader("logits").sources
    return [(writer.name, "logits") for writer in sources if writer.place is not None]


DECLARED = Declared(
    analysis=patch_paths,
    made=Made(
        lambda: patch_paths(example.model(), *example.PAIR, metric=example.LOGIT),
        ("effect", "effect"),
    ),
    call=Call(
        small.PAIR,
        small.METRIC,
        {
            "edges": (odd.TEXT, odd.BELOW, odd.LISTED, [], [("L0H0", 3)]),
            "into": odd.CHOICE,
            "method": odd.CHOICE,
            "mode": odd.CHOICE,
            "metric": odd.CHOICE,
            **odd.SWEPT,
        },
    ),
    command=Command(
        "paths",
        ("--model", "rasp-reverse", "--method", "zero"),
        "paths",
        "edges (zero patching)",
        "into=None method=resample mode=edge metric=logit-diff",
    ),
    of_each_prompt=EachPrompt(numbers_of_prompts, WITHOUT_EDGES),
    of_each_pair=Without("tests/laws/test_edges.py has the edges of two stacks"),
    symmetric=Symmetric(
        {
            "": of_case,
            "frozen heads": lambda case: of_case(
                case, method="mean", mode="frozen heads", edges=to_logits(case)
            ),
        },
        refused=NORMALIZING_THE_STREAM,
        of_experts=("",),
    ),
)
