"""No analysis depends on the order of heads, neurons, vocabulary tokens or prompts.

    analysis(permuted model, permuted prompts) = analysis(model, prompts), permuted

A new analysis needs a line in ``ANALYSES``: a function of a :class:`permuted.Case`. The numbers of
all its tables are compared, by the labels of their rows.
"""

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields
from inspect import signature
from itertools import cycle

import pandas as pd
import pytest
import torch
from architectures import assert_close
from permuted import COMPONENT, Case, Permutation, Rows, case_of, labelled

import analyses
from analyses import (
    ablate,
    ablate_heads,
    attention_pattern,
    attention_patterns,
    attention_statistics,
    attribute_edges,
    attribute_nodes,
    compare,
    composition,
    direct_logit_attribution,
    erase,
    explain,
    frequencies,
    head_effects,
    head_roles,
    logit_lens,
    neurons,
    order_sensitivity,
    ov,
    patch_activations,
    patch_paths,
    permutation_covariance,
    positions,
    predictions,
    probe,
    prune,
    qk,
    steer,
    top_texts,
    train_lens,
)
from analyses.results.result import Result
from interp import PAD, Transformer, computation_graph

BOUND = 1e-10
Frames = dict[str, pd.DataFrame]
Analysis = Callable[[Case], Result | Frames]


def attribution(by: str) -> Analysis:
    return lambda case: direct_logit_attribution(
        case.model, case.clean, target=case.target, distractor=case.distractor, by=by
    )


def patterns(case: Case) -> Frames:
    """Of every head of a layer on every prompt."""
    frames = [
        attention_pattern(case.model, case.clean[n : n + 1], 1, head).to_frame().assign(prompt=n)
        for n in range(len(case.clean))
        for head in range(case.model.blocks[1].attn.n_heads)
    ]
    return {"patterns": pd.concat(frames)}


def all_patterns(case: Case) -> Frames:
    """Of every head of every layer on every prompt, by attention and by values."""
    frames = {
        weighted: [
            attention_patterns(case.model, case.clean[n : n + 1], weighted=weighted)
            .to_frame()
            .assign(prompt=n)
            for n in range(len(case.clean))
        ]
        for weighted in (False, True)
    }
    return {f"weighted {name}": pd.concat(parts) for name, parts in frames.items()}


def of_every_head(ask: Callable[..., Result], **settings: object) -> Analysis:
    """All tables of every head of layer 1, concatenated."""

    def frames(case: Case) -> Frames:
        heads = range(case.model.blocks[1].attn.n_heads)
        results = [ask(case.model, 1, head, top=4, **settings) for head in heads]
        return {
            name: pd.concat([tables(result)[name].assign(name=result.name) for result in results])
            for name in tables(results[0])
        }

    return frames


def scaled(model: Transformer) -> Transformer:
    """Another model of the same shape: all weights are a tenth larger."""
    other = deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1.1)
    return other


def ablation(units: str, **settings: object) -> Analysis:
    return lambda case: ablate(case.model, case.clean, units=units, metric=case.metric, **settings)


def paths(case: Case, **settings: object) -> Result:
    return patch_paths(case.model, case.clean, case.corrupt, metric=case.metric, **settings)


def tops(case: Case) -> Frames:
    """All cells of the heads of a layer."""
    frames: dict[str, list[pd.DataFrame]] = {}
    for head in range(case.model.blocks[1].attn.n_heads):
        result = top_texts(case.model, case.clean, of=f"L1H{head}", top=999)
        for kind, frame in tables(result).items():
            frames.setdefault(kind, []).append(frame.assign(name=f"L1H{head}"))
    return {kind: pd.concat(parts) for kind, parts in frames.items()}


def steered(case: Case) -> Frames:
    """Continuations of the prompts, with the strength as a label."""
    settings = {"layer": 1, "contrast": (case.clean, case.corrupt), "new_tokens": 4}
    result = steer(case.model, case.clean, strengths=(0.0, 3.0), **settings)
    return {name: frame.astype({"strength": str}) for name, frame in tables(result).items()}


def grids(*at: str, **settings: object) -> Analysis:
    return lambda case: patch_activations(
        case.model, case.clean, case.corrupt, metric=case.metric, at=at, **settings
    )


def is_long(case: Case) -> torch.Tensor:
    """A label that does not depend on the order of prompts or tokens."""
    return (case.clean != PAD).sum(-1) > 4


def predicted(case: Case) -> pd.DataFrame:
    """Whether a prompt is long, predicted between prompts of even and of odd length, both ways."""
    folds = (case.clean != PAD).sum(-1) % 2
    result = probe(case.model, case.clean, is_long(case), at=("resid_post", "z"), folds=folds)
    return pd.DataFrame(
        [
            {"name": place, "prompt": prompt, "correct": float(correct)}
            for place, row in enumerate(result.correct)
            for prompt, correct in enumerate(row)
        ]
    )


def predicted_tokens(method: str) -> Analysis:
    """With the attention of a layer ablated."""
    return lambda case: predictions(
        case.model,
        case.clean,
        targets=case.target,
        distractors=case.distractor,
        ablate=["L0ATTN"],
        method=method,
    )


def to_logits(case: Case) -> list[tuple[str, str]]:
    """The edges from whatever is computed from a prompt."""
    sources = computation_graph(case.model).reader("logits").sources
    return [(writer.name, "logits") for writer in sources if writer.place is not None]


ANALYSES: dict[str, Analysis] = {
    "ablate, heads": ablation("heads", part="pattern", method="zero"),
    "ablate, key/value heads": ablation("heads", part="v"),
    "ablate, layers": ablation("layers"),
    "ablate, mlps": ablation("mlps", per_position=True),
    "ablate, neurons": ablation("neurons"),
    "ablate, pairs": ablation("pairs", method="zero"),
    "ablate_heads": lambda case: ablate_heads(case.model, case.clean, metric="kl"),
    "attention_pattern": patterns,
    "attention_patterns": all_patterns,
    "attention_statistics": lambda case: attention_statistics(
        case.model, case.clean, classes={"some": case.some}
    ),
    "ov": of_every_head(ov),
    "qk": of_every_head(qk, positions=4),
    "qk, given tokens": lambda case: of_every_head(qk, tokens=case.some, positions=4)(case),
    "compare": lambda case: compare(
        case.model,
        scaled(case.model),
        case.clean,
        analysis=lambda model, prompts: ablate_heads(model, prompts, metric="kl"),
    ),
    "composition": lambda case: composition(case.model, offset=2),
    "direct_logit_attribution, component": attribution("component"),
    "direct_logit_attribution, head": attribution("head"),
    "direct_logit_attribution, source": attribution("source"),
    "erase": lambda case: erase(
        case.model, case.clean, is_long(case), metric=case.metric, at=("resid_pre", "z")
    ),
    "frequencies": lambda case: frequencies(
        case.model, torch.tensor([case.some[:2]]), residues=case.some
    ),
    "head_effects": lambda case: head_effects(
        case.model, case.clean, target=case.target, distractor=case.distractor
    ),
    "head_roles": lambda case: head_roles(case.model, rows=5, half=4),
    "logit_lens": lambda case: logit_lens(case.model, case.clean, targets=case.target),
    "attribute_edges": lambda case: attribute_edges(
        case.model, case.clean, case.corrupt, metric=case.metric, check=1000
    ),
    "attribute_edges, integrated gradients": lambda case: attribute_edges(
        case.model, case.clean, case.corrupt, metric=case.metric, method="eap-ig", check=0
    ),
    "attribute_nodes": lambda case: attribute_nodes(
        case.model, case.clean, case.corrupt, metric=case.metric, check=1000
    ),
    "explain": lambda case: explain(
        case.model, case.clean, case.corrupt, metric=case.metric, steps=3
    ),
    "attribute_nodes, positions": lambda case: attribute_nodes(
        case.model, case.clean, case.corrupt, metric=case.metric, method="atp", positions=True
    ),
    "order_sensitivity": lambda case: order_sensitivity(
        case.model, case.clean, permutations=["random"], draws=1
    ),
    "neurons": lambda case: neurons(case.model, case.clean, layer=1, top=999, metric=case.metric),
    "patch_activations": grids("resid_pre", "mlp_out", over=("layer", "pos")),
    "patch_activations, heads": grids("z", "q", over=("layer", "head")),
    "patch_activations, key/value heads": grids("v", over=("layer", "head"), direction="noise"),
    "patch_paths": paths,
    "patch_paths, frozen heads": lambda case: paths(
        case, method="mean", mode="frozen heads", edges=to_logits(case)
    ),
    "permutation_covariance": lambda case: permutation_covariance(case.model),
    "positions": lambda case: positions(case.model),
    "predictions": predicted_tokens("mean"),
    "predictions, zeros": predicted_tokens("zero"),
    "probe": lambda case: {"accuracy": predicted(case)},
    "prune": lambda case: prune(
        paths(case).scores, case.model, case.clean, case.corrupt, metric=case.metric, draws=1
    ),
    "steer": steered,
    "top_texts": tops,
    "top_texts, a stream": lambda case: top_texts(
        case.model, case.clean, of=("resid_post", 1), top=999
    ),
    "train_lens": lambda case: train_lens(
        case.model, case.clean, held_out=case.corrupt, steps=3, rows=len(case.clean)
    ),
}
LEFT_OUT = {
    "direct_logit_attribution": ["control"],
    "erase": ["control", "removed_control"],
    "head_effects": ["control"],
    "permutation_covariance": ["error"],
    "predictions": ["id"],
    "neurons": ["rank"],
    "prune": ["control", "rank"],
    "top_texts": ["rank", "source"],
}
"""Columns that are not compared: values drawn at random, ranks among possibly equal values, names
that contain numbers of prompts, and ids of tokens beside their labels."""
UNIT = re.compile(rf"{COMPONENT.pattern}(?: \+ {COMPONENT.pattern})*")
"""A component, or a pair of them, which is named in the order of their indices."""
OWN_PROMPTS = {"explain", "head_roles"}
"""Analyses that draw token ids: their vocabulary is not permuted."""
NO_EDGES = {"attribute_edges", "explain", "patch_paths", "prune"}
"""Analyses of edges, which a model that normalizes its stream lacks."""
POST_NORM = {"bert"}
OF_TEXTS = {"steer"}
"""Analyses of generated texts, which an encoder can't continue."""
ENCODERS = ["bert"]
FAST = ["gpt2", "llama", "neox"]
SLOW = ["gptj", "gemma2"]
OF_EXPERTS = [
    *("ablate, mlps", "direct_logit_attribution, component", "logit_lens"),
    *("attribute_nodes, positions", "patch_paths"),
]
"""Analyses that also run on a mixture of experts, because they depend on what an MLP computes."""


def named(analysis: str) -> str:
    """The function that an entry is about."""
    return analysis.partition(",")[0]


def tables(result: Result | Frames) -> Frames:
    """All tables of a result, by name."""
    if isinstance(result, dict):
        return result
    methods = [name for name in dir(result) if name.endswith("_frame") and name[0] != "_"]
    return {name: getattr(result, name)() for name in methods}


def components(result: Result | Frames, name: Callable[[str], str] = str) -> list[list[str]]:
    """Heads and neurons that the summary names, in its order; the two of a pair in theirs."""
    text = "" if isinstance(result, dict) else result.summary()
    return [
        sorted(name(component[0]) for component in COMPONENT.finditer(unit[0]))
        for unit in UNIT.finditer(text)
    ]


def assert_symmetric(ask: Analysis, case: Case, permutation: Permutation, analysis: str) -> None:
    expected, moved = ask(case), ask(permutation.of_case(case))
    assert components(moved) == components(expected, permutation.name)
    left_out, after = LEFT_OUT.get(analysis, []), tables(moved)
    for name, frame in tables(expected).items():
        assert_same_rows(
            labelled(after[name].drop(columns=left_out, errors="ignore"), permutation.nothing),
            labelled(frame.drop(columns=left_out, errors="ignore"), permutation),
            f"{analysis}, {name}",
        )


def assert_same_rows(actual: Rows, expected: Rows, what: str) -> None:
    assert actual.keys() == expected.keys(), what
    if expected:
        numbers, wanted = (
            torch.tensor([rows[label] for label in expected], dtype=torch.float64)
            for rows in (actual, expected)
        )
        assert numbers.isnan().equal(wanted.isnan()), what
        for column, wanted_column in zip(
            numbers.nan_to_num().mT, wanted.nan_to_num().mT, strict=True
        ):
            assert_close(column, wanted_column, BOUND, what)


def in_turn() -> list[object]:
    """Every analysis on every model that it applies to; one model each, in turn, is not slow.

    Runs on an encoder and, in turn, on a model with another order of steps or with more norms are
    marked slow, the others nightly.
    """
    names, slow = cycle(FAST), cycle(SLOW)
    cases: list[object] = []
    for analysis in ANALYSES:
        marks = {next(names): [], **{name: [pytest.mark.slow] for name in (*ENCODERS, next(slow))}}
        for name in (*FAST, *SLOW, *ENCODERS):
            if named(analysis) in NO_EDGES and name in POST_NORM:
                continue
            if named(analysis) in OF_TEXTS and name in ENCODERS:
                continue
            marked = marks.get(name, [pytest.mark.nightly])
            cases.append(pytest.param(analysis, name, marks=marked))
    return cases + [
        pytest.param(analysis, "mixtral", marks=pytest.mark.slow) for analysis in OF_EXPERTS
    ]


@pytest.mark.parametrize("name", [*FAST, *SLOW, *ENCODERS, "mixtral"])
def test_the_permuted_model_computes_the_same(name):
    case = case_of(name)
    permutation = Permutation.drawn(case, 0)
    moved = permutation.of_case(case)
    with torch.no_grad():
        expected = case.model(case.clean)[permutation.prompts][..., permutation.vocabulary]
        logits = moved.model(moved.clean)
    assert_close(logits[moved.clean != PAD], expected[moved.clean != PAD])


@pytest.mark.parametrize(("analysis", "name"), in_turn())
def test_what_is_found_moves_with_heads_neurons_tokens_and_prompts(analysis, name):
    case = case_of(name)
    permutation = Permutation.drawn(case, len(analysis))
    if named(analysis) in OWN_PROMPTS:
        permutation = permutation.without("vocabulary")
    assert_symmetric(ANALYSES[analysis], case, permutation, named(analysis))


def sorted_apart(case: Case) -> Frames:
    """Effects in the order of their size beside names in the order of the heads."""
    effect = ablate_heads(case.model, case.clean, metric=case.metric).effect.mean(-1)[1]
    names = [f"L1H{head}" for head in range(len(effect))]
    return {"sorted": pd.DataFrame({"name": names, "effect": effect.sort().values})}


def of_first(unit: str) -> Analysis:
    """The effect of a part by its index, whose row does not say which part that is."""
    ask = ablation({"first": unit})
    return lambda case: {"first": tables(ask(case))["to_frame"][["effect"]]}


def of_first_token(case: Case) -> Frames:
    frame = logit_lens(case.model, case.clean, targets=0).to_frame()
    return {"first": frame[["point", "layer", "prompt", "pos", "target_probability"]]}


def of_first_prompt(case: Case) -> Frames:
    frame = logit_lens(case.model, case.clean[:1]).to_frame()
    return {"first": frame[["point", "layer", "pos", "entropy"]].query("pos < 3")}


def of_first_edge(case: Case) -> Frames:
    return {"first": paths(case, edges=[("embed", "L1H0.v")]).to_frame()[["effect"]]}


HEADS = ("heads", "kv_heads")
DEPENDENT: dict[str, tuple[tuple[str, ...], Analysis]] = {
    "the first head": (HEADS, of_first("L0H0")),
    "an edge of the first head": (HEADS, of_first_edge),
    "names apart from their numbers": (HEADS, sorted_apart),
    "the first neuron": (("neurons",), of_first("L0N0")),
    "the first token": (("vocabulary",), of_first_token),
    "the first prompt": (("prompts",), of_first_prompt),
}
"""Analyses that depend on an order, with the order."""


@pytest.mark.parametrize("analysis", DEPENDENT)
def test_what_depends_on_an_order_does_not_move_with_it(analysis):
    orders, ask = DEPENDENT[analysis]
    case = case_of("gpt2")
    permutation = Permutation.drawn(case, 1)
    others = {field.name for field in fields(permutation)} - set(orders)
    assert_symmetric(ask, case, permutation.without(*orders), analysis)
    with pytest.raises(AssertionError, match="off by"):
        assert_symmetric(ask, case, permutation.without(*others), analysis)


def test_every_analysis_of_a_model_is_in_the_table():
    of_models = {
        name
        for name, function in analyses.available().items()
        if {"model", "model_a"} & set(signature(function).parameters)
    }
    assert of_models == set(map(named, ANALYSES))
