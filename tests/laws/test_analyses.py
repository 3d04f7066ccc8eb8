"""In every analysis, each prompt has the numbers that it has alone, in whatever form it is given.

Prompts are padded on either side or anywhere, have token types, are images or texts, or come as a
ready-made batch. An analysis declares its numbers in its own test file: see :mod:`declared`.
"""

from dataclasses import replace
from inspect import signature
from typing import Any

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    D_MODEL,
    D_VOCAB,
    PLAIN,
    assert_close,
    build,
    in_turn,
    padded,
)
from declared import (
    EachPrompt,
    PromptNumbers,
    Without,
    declarations,
    declared_as,
    turn_of,
    with_variants,
)
from torch import Tensor

import analyses
from analyses import ablate_heads
from interp import (
    PAD,
    Config,
    EmbeddingConfig,
    MLPConfig,
    PatchConfig,
    StackConfig,
    Transformer,
    edits,
    load,
    metrics,
    run,
)
from interp.errors import InvalidInput

METRIC = metrics.logit(3)
ANALYSES: dict[str, EachPrompt] = declared_as("of_each_prompt")
REFUSED = [(name, kind) for name, declared in ANALYSES.items() for kind in declared.refused]
OF_PAIRS: dict[str, PromptNumbers] = dict(
    variant
    for name, variants in declared_as("of_each_pair").items()
    for variant in with_variants(name, variants)
)


# ---- prompts as they come: all together, and each alone --------------------------------------


def ids_of(lengths: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(D_VOCAB, (length,), generator=generator) for length in lengths]


def tokens(side: str) -> tuple[Transformer, Any, list[Any]]:
    rows = ids_of((4, 2, 6))
    return build("gpt2"), padded(rows, side, extra=1), [row[None] for row in rows]


def with_holes() -> tuple[Transformer, Any, list[Any]]:
    a, b, c = (int(token) for token in ids_of((3,))[0])
    ids = torch.tensor([[a, PAD, b, c], [PAD, c, PAD, a]])
    return build("llama"), ids, [torch.tensor([[a, b, c]]), torch.tensor([[c, a]])]


def ready_made(name: str) -> tuple[Transformer, Any, list[Any]]:
    model, rows = build(name), ids_of((4, 2, 6))
    ids = padded(rows, "left")
    return model, model.batch(ids), [model.batch(row) for row in rows]


def in_a_list() -> tuple[Transformer, Any, list[Any]]:
    """As ``model.check`` returns it."""
    model, batch, each = ready_made("gpt2")
    return model, [batch], [[prompt] for prompt in each]


def masked() -> tuple[Transformer, Any, list[Any]]:
    model, rows = build("bert"), ids_of((4, 2, 6))
    ids = padded(rows, "right")
    return (
        model,
        model.batch(ids.where(ids != PAD, 7), mask=ids != PAD),
        [r[None] for r in rows],
    )


def typed() -> tuple[Transformer, Any, list[Any]]:
    model, rows = build(replace(ARCHITECTURES["bert-types"], head=None)), ids_of((4, 3, 6))
    types = [(torch.arange(len(row)) >= 2).long() for row in rows]
    batch = model.batch(padded(rows, "left"), types=padded(types, "left").clamp(min=0))
    return model, batch, [model.batch(row, types=t) for row, t in zip(rows, types, strict=True)]


def images(*, batch: bool) -> tuple[Transformer, Any, list[Any]]:
    patches = EmbeddingConfig(patches=PatchConfig(4, 6, 2, channels=2, n_special=2))
    stack = StackConfig(2, PLAIN, MLPConfig(10), embedding=patches)
    model = build(Config(D_MODEL, 7, 8, encoder=stack, bias_u=True))
    pixels = torch.randn(
        3, 2, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    return model, model.batch(pixels) if batch else pixels, list(pixels.split(1))


def texts() -> tuple[Transformer, Any, list[Any]]:
    prompts = ["QxmvQxm", "ab", "abcab"]
    return load("induction-by-hand"), prompts, prompts


PROMPTS = {
    "padded left": lambda: tokens("left"),
    "padded right": lambda: tokens("right"),
    "padded within": with_holes,
    "a ready-made batch": lambda: ready_made("gemma2"),
    "a ready-made batch of an encoder": lambda: ready_made("bert"),
    "a list of a ready-made batch": in_a_list,
    "a mask": masked,
    "token types": typed,
    "images": lambda: images(batch=False),
    "a ready-made batch of images": lambda: images(batch=True),
    "texts": texts,
}


ALIKE = [
    ("padded left", "padded right", "a list of a ready-made batch"),
    ("a ready-made batch of an encoder", "a mask"),
    ("images", "a ready-made batch of images"),
    ("padded within", "token types", "texts"),
]
"""Kinds of prompts that run almost the same code; all but the last three are of one model."""


def kinds_in_turn() -> list[Any]:
    """Every analysis with every kind of prompts; but for one of each group of similar kinds, in
    turn, all are nightly, and those are slow for about half of the analyses."""
    cases = []
    for name, declared in ANALYSES.items():
        half, turn = turn_of(name) % 2, turn_of(name) // 2
        allowed = [kind for kind in PROMPTS if kind not in declared.refused]
        later = {g for group in ALIKE for g in group if g != group[turn % len(group)]}
        soon = [pytest.mark.slow] if half or declared.is_slow else []
        cases += [
            pytest.param(name, kind, marks=[pytest.mark.nightly] if kind in later else soon)
            for kind in allowed
        ]
    return cases


@pytest.mark.parametrize(("analysis", "kind"), kinds_in_turn())
def test_each_prompt_has_the_numbers_that_it_has_alone(analysis, kind):
    model, together, each = PROMPTS[kind]()
    bound = 1e-12 if model.dtype == torch.float64 else 1e-5
    measure = ANALYSES[analysis].measure
    rows = measure(model, together, len(each))
    for number, prompt in enumerate(each):
        alone = measure(model, [prompt] if isinstance(prompt, str) else prompt, 1)[0]
        assert rows[number].keys() == alone.keys()
        for name, expected in alone.items():
            assert_close(rows[number][name], expected, bound, name)


@pytest.mark.parametrize(("analysis", "kind"), sorted(REFUSED))
def test_a_question_that_a_model_does_not_have_is_refused(analysis, kind):
    model, together, each = PROMPTS[kind]()
    declared = ANALYSES[analysis]
    with pytest.raises(InvalidInput, match=declared.refused[kind]):
        declared.measure(model, each[0:1] if kind == "texts" else together, len(each))


@pytest.mark.parametrize(("analysis", "ready"), in_turn(OF_PAIRS, [False, True], OF_PAIRS))
def test_each_pair_has_the_numbers_that_it_has_alone(analysis, ready):
    sides = ("right", "left") if ready else ("left", "right")
    model, sources, targets = build("t5"), ids_of((3, 5)), ids_of((4, 2), seed=1)
    pair = [padded(rows, side) for rows, side in zip((sources, targets), sides, strict=True)]
    if ready:
        pair = model.check(*pair)
    rows = OF_PAIRS[analysis](model, tuple(pair), 2)
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = OF_PAIRS[analysis](model, (source[None], target[None]), 1)[0]
        for name, expected in alone.items():
            assert_close(rows[number][name], expected, what=name)


def test_every_analysis_of_a_model_measures_each_prompt_or_has_a_reason():
    of_models = {
        name
        for name, function in analyses.available().items()
        if {"model", "model_a"} & set(signature(function).parameters)
    }
    reasons = {
        name
        for name, declared in declarations().items()
        if isinstance(declared.of_each_prompt, Without)
    }
    assert of_models <= {*ANALYSES, *reasons}, "see of_each_prompt= of declared.Declared"


REPLACED = ["token types", "images", "padded within"]


@pytest.mark.parametrize("kind", REPLACED)
def test_the_mean_of_z_is_that_over_the_prompts_as_each_is_alone(kind):
    model, together, each = PROMPTS[kind]()
    z = torch.cat([run(model, prompt, record="z").cache["z", 1].flatten(0, 1) for prompt in each])
    edit = edits.replace("z", z.mean(0)[2], layer=1, head=2)
    result = ablate_heads(model, together, metric=METRIC, method="mean")
    for number, prompt in enumerate(each):
        done = run(model, prompt, edits=[edit])
        assert_close(result.ablated[1, 2, number], METRIC(done.logits, done.batch)[0])


@pytest.mark.parametrize("method", ["mean", "resample"])
@pytest.mark.parametrize("kind", REPLACED)
def test_recording_z_in_parts_changes_nothing(kind, method):
    model, together, _ = PROMPTS[kind]()
    few, whole = (
        ablate_heads(model, together, metric=METRIC, method=method, rows=n) for n in (2, 64)
    )
    assert_close(few.ablated, whole.ablated)
