"""What each analysis is asked in vain: its settings, each with values that mean nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature

import torch

import analyses
from interp import (
    AttentionConfig,
    Config,
    MLPConfig,
    StackConfig,
    Transformer,
    computation_graph,
    metrics,
)
from interp.zoo.history import History

D_VOCAB = 13
MODEL = Transformer(
    Config(12, D_VOCAB, 16, decoder=StackConfig(2, AttentionConfig(3, 4), MLPConfig(10)))
)
CLEAN = torch.arange(12).view(3, 4)
CORRUPT = (CLEAN + 1) % D_VOCAB
METRIC = {"metric": metrics.logit_diff(1, 2)}
SCORES = {(writer.name, reader.name): 1.0 for writer, reader in computation_graph(MODEL).edges}

TEXT, BELOW, BROKEN, LISTED, NOTHING, NESTED = "a", -1, 1.5, [0, 99], None, [[0, "a"]]
COUNT = (TEXT, BELOW, 0, BROKEN, LISTED, NOTHING, True)
"""What is no number from 1 on."""
SEED = (TEXT, BROKEN, 2**64, LISTED, NOTHING, True)
CHOICE = (TEXT, BELOW, BROKEN, LISTED, {})
"""What is none of a few names."""
SWITCH = ("no", 1, NOTHING)
SOMETHING = (TEXT, BELOW, BROKEN, LISTED, {})
"""What is no result, lens or number of bytes."""
TOKEN = (TEXT, BELOW, BROKEN, D_VOCAB, LISTED, True, {})
OFFSET = (TEXT, BROKEN, LISTED, NOTHING, True, 10**30)
"""What is no number of positions."""
NUMBERS = (TEXT, BELOW, BROKEN, [], [TEXT], [BROKEN], [99], [True], [1, 1])
"""What is no list of different indices."""
EMPTY = (NOTHING, [], torch.empty(0, 4, dtype=torch.long), torch.empty(3, 0, dtype=torch.long))
"""What holds no prompt, or prompts without a token; ``None`` first."""


@dataclass(frozen=True, eq=False)
class Asked:
    """An analysis, what it is asked, and odd values of its settings."""

    analysis: Callable[..., object]
    arguments: tuple[object, ...]
    settings: Mapping[str, object]
    odd: Mapping[str, tuple[object, ...]]
    runs: bool = True
    """Whether it runs the model; other analyses read weights, or results."""

    def __call__(self, **settings: object) -> object:
        arguments = signature(self.analysis).bind_partial(*self.arguments).arguments
        return self.analysis(**{**arguments, **self.settings, **settings})


INDEX = (TEXT, 99, -99, BROKEN, LISTED, NOTHING, True)
"""What is the index of no layer and no head."""
SWEPT = {"memory": (TEXT, BELOW, LISTED), "resume": SOMETHING}
SAMPLED = {"seed": SEED, "rows": COUNT}
PAIR = (MODEL, CLEAN, CORRUPT)
LABELLED, LABELS = CLEAN[[0, 1, 2, 0]], ["x", "y", "x", "y"]
ODD_LABELS = (TEXT, BELOW, NOTHING, [], ["x"], ["x"] * 4, ["x", "x", "x", "y"], [NOTHING] * 4)
POINTS = (*CHOICE, NOTHING, [], [TEXT], "pattern", [3])
POSITION = (TEXT, BROKEN, LISTED, NOTHING, True, 99)
HISTORY = History([2.0, 1.0], {}, [])
ASKED = (
    Asked(
        analyses.ablate,
        (MODEL, CLEAN),
        METRIC,
        {
            "units": (*CHOICE, {"a": 3}, {"a": [3]}, {"a": ["L0H0", "L0H0"]}),
            "layers": (TEXT, 1, BROKEN, LISTED, [BELOW], [BROKEN], [True], []),
            "method": CHOICE,
            "part": CHOICE,
            "per_position": SWITCH,
            "metric": CHOICE,
            **SAMPLED,
            **SWEPT,
        },
    ),
    Asked(
        analyses.ablate_heads,
        (MODEL, CLEAN),
        METRIC,
        {"metric": CHOICE, "method": CHOICE, **SAMPLED} | SWEPT,
    ),
    Asked(
        analyses.attention_pattern,
        (MODEL, CLEAN[:1]),
        {"layer": 0, "head": 0},
        dict.fromkeys(("layer", "head"), INDEX) | {"attention": CHOICE, "target": SOMETHING},
    ),
    Asked(
        analyses.attention_patterns,
        (MODEL, CLEAN[:1]),
        {},
        {"attention": CHOICE, "target": SOMETHING, "weighted": SWITCH},
    ),
    Asked(
        analyses.attention_statistics,
        (MODEL, CLEAN),
        {},
        {
            "offsets": (*COUNT, 10**30),
            "classes": (TEXT, BELOW, LISTED, {"a": NOTHING}, {"a": BROKEN}, {"a": 99}, {3: 1}),
            "attention": CHOICE,
            "queries": (TEXT, BELOW, LISTED, torch.ones(3, 4)),
        },
    ),
    Asked(
        analyses.head_roles,
        (MODEL,),
        {},
        {
            "tokens": (TEXT, BELOW, BROKEN, LISTED, NESTED, True),
            "half": (TEXT, BELOW, 0, BROKEN, LISTED, 99, True),
            "repeats": (*COUNT, 1),
            "first_mlp": SWITCH,
            **SAMPLED,
        },
    ),
    Asked(
        analyses.logit_lens,
        (MODEL, CLEAN),
        {},
        {"at": CHOICE, "norm": CHOICE, "lens": SOMETHING, "targets": TOKEN, "top": (*COUNT, 99)},
    ),
    Asked(
        analyses.train_lens,
        (MODEL, CLEAN),
        {},
        {"steps": COUNT, "lr": (TEXT, BELOW, 0, LISTED, NOTHING, True), "resume": SOMETHING}
        | SAMPLED,
    ),
    Asked(
        analyses.direct_logit_attribution,
        (MODEL, CLEAN),
        {"target": 1},
        {
            "target": (*TOKEN, NOTHING),
            "distractor": TOKEN,
            "pos": (TEXT, BROKEN, LISTED),
            "by": CHOICE,
            "seed": SEED,
        },
    ),
    Asked(
        analyses.head_effects,
        (MODEL, CLEAN),
        {"target": 1, "distractor": 12},
        {
            "target": (*TOKEN, NOTHING, 12),
            "distractor": (*TOKEN, NOTHING, 1),
            "pos": (TEXT, BROKEN, LISTED),
            "heads": (TEXT, BELOW, BROKEN, LISTED, [], ["L9H0"], [[]]),
            "method": CHOICE,
            **SAMPLED,
            **SWEPT,
        },
    ),
    Asked(
        analyses.attribute_edges,
        PAIR,
        METRIC,
        {
            "metric": CHOICE,
            "method": CHOICE,
            "steps": (TEXT, BELOW, 0, BROKEN, LISTED, True),
            "tolerance": (TEXT, BELOW, 0.0, BROKEN, LISTED, True),
            "check": (TEXT, BELOW, BROKEN, LISTED, NOTHING, True),
            "seed": SEED,
            **SWEPT,
        },
    ),
    Asked(
        analyses.attribute_nodes,
        PAIR,
        METRIC,
        {"metric": CHOICE, "method": CHOICE, "positions": (*SWITCH, True), "check": COUNT}
        | {"seed": SEED}
        | SWEPT,
    ),
    Asked(
        analyses.patch_activations,
        PAIR,
        METRIC,
        {
            "metric": CHOICE,
            "at": (*CHOICE, NOTHING),
            "over": (*CHOICE, NOTHING),
            "direction": CHOICE,
            "stack": CHOICE,
            "rows": COUNT,
            **SWEPT,
        },
    ),
    Asked(
        analyses.patch_paths,
        PAIR,
        METRIC,
        {
            "edges": (TEXT, BELOW, LISTED, [], [("L0H0", 3)]),
            "into": CHOICE,
            "method": CHOICE,
            "mode": CHOICE,
            "metric": CHOICE,
            **SWEPT,
        },
    ),
    Asked(
        analyses.prune,
        (SCORES, *PAIR),
        METRIC,
        {
            "metric": CHOICE,
            "sizes": (TEXT, BELOW, BROKEN, LISTED, [TEXT]),
            "rank": CHOICE,
            "method": CHOICE,
            "heldout": SOMETHING,
            "draws": COUNT,
            "seed": SEED,
            "memory": SWEPT["memory"],
        },
    ),
    Asked(
        analyses.compare,
        (MODEL, MODEL, CLEAN),
        {},
        {
            **dict.fromkeys(("model_a", "model_b"), (TEXT, BELOW, BROKEN, LISTED, NOTHING)),
            "analysis": (*SOMETHING, NOTHING, lambda *_: 3),
            "column": (BELOW, BROKEN, LISTED, {}),
        },
    ),
    Asked(analyses.composition, (MODEL,), {}, {"offset": OFFSET}, runs=False),
    Asked(
        analyses.ov,
        (MODEL, 0, 0),
        {},
        {
            **dict.fromkeys(("layer", "head"), INDEX),
            "tokens": (TEXT, BELOW, BROKEN, D_VOCAB, LISTED, [], True, {}),
            "top": COUNT,
            "attention": CHOICE,
            "first_mlp": SWITCH,
            "seed": SEED,
        },
        runs=False,
    ),
    Asked(
        analyses.qk,
        (MODEL, 0, 0),
        {},
        {
            **dict.fromkeys(("layer", "head"), INDEX),
            "tokens": (TEXT, BELOW, BROKEN, D_VOCAB, LISTED, [], True, {}),
            "offset": OFFSET,
            "positions": (*COUNT, 1),
            "top": COUNT,
            "attention": CHOICE,
            "first_mlp": SWITCH,
        },
        runs=False,
    ),
    Asked(
        analyses.erase,
        (MODEL, LABELLED, LABELS),
        {},
        {
            "labels": ODD_LABELS,
            "metric": CHOICE,
            "at": POINTS,
            "pos": POSITION,
            "method": (*CHOICE, NOTHING),
            "stack": CHOICE,
            "seed": SEED,
            **SWEPT,
        },
    ),
    Asked(
        analyses.probe,
        (MODEL, LABELLED, LABELS),
        {"folds": 2},
        {
            "labels": ODD_LABELS,
            "at": POINTS,
            "pos": POSITION,
            "kind": (*CHOICE, NOTHING),
            "folds": (*COUNT, 1, 5, [0, 0, 0, 0], [[0, 1]], [0, 0.5, 1, torch.nan]),
            "stack": CHOICE,
            "seed": SEED,
        },
    ),
    Asked(
        analyses.explain,
        PAIR,
        METRIC,
        {
            "metric": CHOICE,
            "most": COUNT,
            "steps": COUNT,
            "seed": SEED,
            "memory": SWEPT["memory"],
        },
    ),
    Asked(
        analyses.frequencies,
        (MODEL, [0, 1, 12]),
        {"residues": range(5)},
        {
            "residues": (TEXT, BELOW, BROKEN, [], [0, 1], [0, 0, 1], [0, 1, 99], [TEXT], NOTHING),
            "pos": (TEXT, BROKEN, LISTED, NOTHING, True, 99, -99),
            "seed": SEED,
        },
    ),
    Asked(analyses.positions, (MODEL,), {}, {"longest": (*COUNT, 1), "seed": SEED}, runs=False),
    Asked(
        analyses.neurons,
        (MODEL, CLEAN),
        {"layer": 0},
        {
            "layer": INDEX,
            "neurons": NUMBERS,
            "stack": CHOICE,
            "top": COUNT,
            "tokens": (*COUNT, 99),
            "bos": SWITCH,
            "ablate": (TEXT, BELOW, BROKEN, LISTED, NOTHING, True),
            "method": (*CHOICE, NOTHING),
            "metric": CHOICE,
            "memory": SWEPT["memory"],
            **SAMPLED,
        },
    ),
    Asked(
        analyses.top_texts,
        (MODEL, CLEAN),
        {"of": "L0H0"},
        {
            "of": (TEXT, BELOW, BROKEN, LISTED, NOTHING, "L9H0", "L0H99", ("resid_post", 9)),
            "by": CHOICE,
            "top": COUNT,
            "end": (*CHOICE, NOTHING),
            "bos": SWITCH,
            **SAMPLED,
        },
    ),
    Asked(
        analyses.predictions,
        (MODEL, CLEAN),
        {},
        {
            "pos": (TEXT, BROKEN, LISTED, True),
            "top": COUNT,
            "targets": TOKEN,
            "distractors": TOKEN,
            "hidden": (CLEAN,),
            "ablate": (TEXT, BELOW, BROKEN, LISTED, NOTHING, ["L9H0"], ["L0H0", "L0H0"], [TEXT]),
            "method": (*CHOICE, NOTHING),
            **{name: SAMPLED[name] for name in ("seed", "rows")},
        },
    ),
    Asked(
        analyses.steer,
        (MODEL, CLEAN),
        {"layer": 0, "vector": torch.ones(12), "new_tokens": 2},
        {
            "layer": INDEX,
            "vector": (
                *SOMETHING,
                NOTHING,
                torch.ones(4),
                torch.zeros(12),
                torch.full((12,), torch.nan),
            ),
            "contrast": (TEXT, BELOW, LISTED, (CLEAN, CLEAN, CLEAN)),
            "at": (*CHOICE, NOTHING, "pattern"),
            "pos": (TEXT, BROKEN, LISTED, True),
            "strengths": (
                *(TEXT, 1.0, [], [TEXT], [torch.nan], [torch.inf], NOTHING, [NOTHING], [[1.0]]),
                [True],
            ),
            "ablate": (TEXT, BELOW, BROKEN, LISTED, NOTHING, ["L9H0"], ["L0H0", "L0H0"]),
            "method": (*CHOICE, NOTHING, "resample"),
            "new_tokens": (*COUNT, 99),
            "temperature": (TEXT, BELOW, LISTED, NOTHING, torch.nan),
            "seed": SEED,
        },
    ),
    Asked(
        analyses.order_sensitivity,
        (MODEL, CLEAN),
        {},
        {
            "permutations": (TEXT, BELOW, LISTED, [], ["random", "random"], NOTHING),
            "scope": (*CHOICE, NOTHING),
            **dict.fromkeys(("mask", "positions"), ("no", 1, LISTED)),
            "draws": COUNT,
            "seed": SEED,
        },
    ),
    Asked(analyses.permutation_covariance, (MODEL,), {}, {"seed": SEED}),
    Asked(
        analyses.training_history,
        ("model", HISTORY),
        {},
        {
            "name": (BELOW, LISTED, NOTHING),
            "history": (*SOMETHING, NOTHING, History([], {}, [])),
            "score": (TEXT, BELOW, LISTED, {}),
            "column": (BELOW, BROKEN, LISTED, {}),
        },
        runs=False,
    ),
)
"""Every analysis, with odd values of each of its settings."""
