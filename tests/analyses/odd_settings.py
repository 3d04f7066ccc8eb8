"""Every analysis, given settings that mean nothing: each must be refused by name, before any run.

Run as a program, it prints a line for each call that is not. It is a program of its own because the
tests check annotations: there, an odd setting never reaches a function that is annotated.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import signature

import torch

from analyses import (
    ablate,
    ablate_heads,
    attention_pattern,
    attention_statistics,
    attribute_edges,
    attribute_nodes,
    direct_logit_attribution,
    head_roles,
    logit_lens,
    patch_activations,
    patch_paths,
    prune,
    train_lens,
)
from interp import (
    AttentionConfig,
    Config,
    InterpError,
    MLPConfig,
    StackConfig,
    Transformer,
    computation_graph,
    metrics,
)
from interp.model.network import Network

D_VOCAB = 13
MODEL = Transformer(
    Config(12, D_VOCAB, 16, decoder=StackConfig(2, AttentionConfig(3, 4), MLPConfig(10)))
)
CLEAN = torch.arange(12).view(3, 4)
CORRUPT = (CLEAN + 1) % D_VOCAB
METRIC = {"metric": metrics.logit_diff(1, 2)}
SCORES = {(one.name, other.name): 1.0 for one, other in computation_graph(MODEL).edges}

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
OTHERS = {
    *("model", "prompts", "prompt", "clean", "corrupt", "reference", "held_out", "scores"),
    *("progress", "cancelled"),
}
"""Arguments that are no settings; the errors of prompts are of tokens."""


@dataclass(frozen=True, eq=False)
class Asked:
    """An analysis, what it is asked, and odd values of its settings."""

    analysis: Callable[..., object]
    given: tuple[object, ...]
    settings: Mapping[str, object]
    odd: Mapping[str, tuple[object, ...]]

    def __call__(self, **settings: object) -> object:
        return self.analysis(*self.given, **{**self.settings, **settings})


SWEPT = {"memory": (TEXT, BELOW, LISTED), "resume": SOMETHING}
SAMPLED = {"seed": SEED, "rows": COUNT}
PAIR = (MODEL, CLEAN, CORRUPT)
ASKED = (
    Asked(
        ablate,
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
        ablate_heads,
        (MODEL, CLEAN),
        METRIC,
        {"metric": CHOICE, "method": CHOICE, **SAMPLED} | SWEPT,
    ),
    Asked(
        attention_pattern,
        (MODEL, CLEAN[:1]),
        {"layer": 0, "head": 0},
        dict.fromkeys(("layer", "head"), (TEXT, 99, -99, BROKEN, LISTED, NOTHING, True))
        | {"attention": CHOICE, "target": SOMETHING},
    ),
    Asked(
        attention_statistics,
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
        head_roles,
        (MODEL,),
        {},
        {
            "tokens": (TEXT, BELOW, BROKEN, LISTED, NESTED, True),
            "half": (TEXT, BELOW, 0, BROKEN, LISTED, 99, True),
            "repeats": (*COUNT, 1),
            **SAMPLED,
        },
    ),
    Asked(
        logit_lens,
        (MODEL, CLEAN),
        {},
        {"at": CHOICE, "norm": CHOICE, "lens": SOMETHING, "targets": TOKEN, "top": (*COUNT, 99)},
    ),
    Asked(
        train_lens,
        (MODEL, CLEAN),
        {},
        {"steps": COUNT, "lr": (TEXT, BELOW, 0, LISTED, NOTHING, True), "resume": SOMETHING}
        | SAMPLED,
    ),
    Asked(
        direct_logit_attribution,
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
        attribute_edges,
        PAIR,
        METRIC,
        {
            "metric": CHOICE,
            "method": CHOICE,
            "steps": COUNT,
            "adaptive": SWITCH,
            "check": (TEXT, BELOW, BROKEN, LISTED, NOTHING, True),
            "seed": SEED,
            **SWEPT,
        },
    ),
    Asked(
        attribute_nodes,
        PAIR,
        METRIC,
        {"metric": CHOICE, "method": CHOICE, "positions": (*SWITCH, True), "check": COUNT}
        | {"seed": SEED}
        | SWEPT,
    ),
    Asked(
        patch_activations,
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
        patch_paths,
        PAIR,
        METRIC,
        {
            "edges": (TEXT, BELOW, LISTED, [], [("L0H0", 3)]),
            "kind": CHOICE,
            "mode": CHOICE,
            "metric": CHOICE,
            **SWEPT,
        },
    ),
    Asked(
        prune,
        (SCORES, *PAIR),
        METRIC,
        {
            "metric": CHOICE,
            "sizes": (TEXT, BELOW, BROKEN, LISTED, [TEXT]),
            "rank": CHOICE,
            "kind": CHOICE,
            "heldout": SOMETHING,
            "draws": COUNT,
            "seed": SEED,
            "memory": SWEPT["memory"],
        },
    ),
)
"""Every analysis that has settings."""


class HasRun(Exception):
    """The model was run."""


def stream(*_: object) -> None:
    """In place of any forward."""
    raise HasRun


def failures(asked: Asked) -> Iterator[str]:
    """What an analysis does otherwise than expected."""
    analysis = asked.analysis.__name__
    settings = set(signature(asked.analysis).parameters) - OTHERS
    if settings != set(asked.odd):
        yield f"{analysis}: asked of {sorted(asked.odd)}, but it has {sorted(settings)}"
    try:
        asked()
        yield f"{analysis} does not run the model"
    except HasRun:
        pass
    for name, values in asked.odd.items():
        for odd in values:
            call = f"{analysis}({name}={odd!r})"
            try:
                asked(**{name: odd})
                yield f"{call} is taken"
            except InterpError as error:
                if name.removesuffix("s") not in str(error).lower():
                    yield f"{call} does not name the setting: {error}"
            except Exception as error:
                yield f"{call}: {type(error).__name__}: {error}"


if __name__ == "__main__":
    Network.stream = stream
    lines = [line for asked in ASKED for line in failures(asked)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
