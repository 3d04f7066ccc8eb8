"""No analysis depends on the order of heads, neurons, vocabulary tokens or prompts.

    analysis(permuted model, permuted prompts) = analysis(model, prompts), permuted

An analysis declares its calls in its own test file: see :mod:`declared`. The numbers of all its
tables are compared, by the labels of their rows.
"""

import re
from collections.abc import Callable
from dataclasses import fields
from inspect import signature

import pandas as pd
import pytest
import torch
from architectures import assert_close
from declared import Symmetric, Symmetry, declared_as, turn_of, with_variants
from permuted import (
    COMPONENT,
    ENCODERS,
    Case,
    Frames,
    Permutation,
    Rows,
    case_of,
    labelled,
    tables_of,
)

import analyses
from analyses import ablate, ablate_heads, logit_lens, patch_paths
from analyses.results.result import Result
from interp import PAD

BOUND = 1e-10
ANALYSES: dict[str, Symmetric] = declared_as("symmetric")
CALLS: dict[str, Symmetry] = dict(
    variant
    for name, declared in ANALYSES.items()
    for variant in with_variants(name, declared.variants)
)
UNIT = re.compile(rf"{COMPONENT.pattern}(?: \+ {COMPONENT.pattern})*")
"""A component, or a pair of them, which is named in the order of their indices."""
FAST = ["gpt2", "llama", "neox"]
SLOW = ["gptj", "gemma2"]
OF_EXPERTS = [
    call
    for name, declared in ANALYSES.items()
    for call, _ in with_variants(name, dict.fromkeys(declared.of_experts))
]


def declared_for(call: str) -> Symmetric:
    """What the analysis of a call declares."""
    return ANALYSES[call.partition(",")[0]]


def components(result: Result | Frames, name: Callable[[str], str] = str) -> list[list[str]]:
    """Heads and neurons that the summary names, in its order; the two of a pair in theirs."""
    text = "" if isinstance(result, dict) else result.summary()
    return [
        sorted(name(component[0]) for component in COMPONENT.finditer(unit[0]))
        for unit in UNIT.finditer(text)
    ]


def assert_symmetric(
    ask: Symmetry,
    case: Case,
    permutation: Permutation,
    what: str,
    not_compared: tuple[str, ...] = (),
) -> None:
    expected, moved = ask(case), ask(permutation.of_case(case))
    assert components(moved) == components(expected, permutation.name)
    left_out, after = list(not_compared), tables_of(moved)
    for name, frame in tables_of(expected).items():
        assert_same_rows(
            labelled(after[name].drop(columns=left_out, errors="ignore"), permutation.nothing),
            labelled(frame.drop(columns=left_out, errors="ignore"), permutation),
            f"{what}, {name}",
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
    """Every call on every model that it applies to; of these, all but one each are marked nightly.

    Half of the calls run, in turn, on a decoder by ``make test``; the other half on a model with
    another order of steps, with more norms or on an encoder, and these runs are marked slow.
    """
    cases: list[object] = []
    for call in CALLS:
        refused = declared_for(call).refused
        others = [name for name in (*SLOW, *ENCODERS) if name not in refused]
        turn, number = divmod(turn_of(call), 2 * len(FAST))
        is_slow, decoder = divmod(number, len(FAST))
        marks = {others[turn % len(others)]: [pytest.mark.slow]} if is_slow else {FAST[decoder]: []}
        for name in (*FAST, *SLOW, *ENCODERS):
            if name not in refused:
                marked = marks.get(name, [pytest.mark.nightly])
                cases.append(pytest.param(call, name, marks=marked))
    return cases + [pytest.param(call, "mixtral", marks=pytest.mark.slow) for call in OF_EXPERTS]


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
    declared = declared_for(analysis)
    if declared.draws_tokens:
        permutation = permutation.without("vocabulary")
    assert_symmetric(CALLS[analysis], case, permutation, analysis, declared.not_compared)


def sorted_apart(case: Case) -> Frames:
    """Effects in the order of their size beside names in the order of the heads."""
    effect = ablate_heads(case.model, case.clean, metric=case.metric).effect.mean(-1)[1]
    names = [f"L1H{head}" for head in range(len(effect))]
    return {"sorted": pd.DataFrame({"name": names, "effect": effect.sort().values})}


def of_first(unit: str) -> Symmetry:
    """The effect of a part by its index, whose row does not say which part that is."""

    def frames(case: Case) -> Frames:
        result = ablate(case.model, case.clean, units={"first": unit}, metric=case.metric)
        return {"first": result.to_frame()[["effect"]]}

    return frames


def of_first_token(case: Case) -> Frames:
    frame = logit_lens(case.model, case.clean, targets=0).to_frame()
    return {"first": frame[["point", "layer", "prompt", "pos", "target_probability"]]}


def of_first_prompt(case: Case) -> Frames:
    frame = logit_lens(case.model, case.clean[:1]).to_frame()
    return {"first": frame[["point", "layer", "pos", "entropy"]].query("pos < 3")}


def of_first_edge(case: Case) -> Frames:
    edges = [("embed", "L1H0.v")]
    result = patch_paths(case.model, case.clean, case.corrupt, metric=case.metric, edges=edges)
    return {"first": result.to_frame()[["effect"]]}


HEADS = ("heads", "kv_heads")
DEPENDENT: dict[str, tuple[tuple[str, ...], Symmetry]] = {
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


def test_every_analysis_of_a_model_is_tested():
    of_models = {
        name
        for name, function in analyses.available().items()
        if {"model", "model_a"} & set(signature(function).parameters)
    }
    assert of_models == set(ANALYSES), "see symmetric= of declared.Declared"
