"""Call every public function with wrong arguments: each call must raise an error of the package.

Run as a program, it prints a line for each call that does not, or whose message does not show what
was given. It is a separate program because the tests check annotations, so that a wrong argument
would never reach an annotated function. Each row is a wrong argument and a pattern of the message.
"""

import operator
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import analyses
import interp
from interp import InterpError, Start, edits, metrics
from interp.errors import shorten
from interp.model.batch import Batch

LONGEST = 1000
"""Maximum length of a message, in characters, however long the argument is."""
warnings.simplefilter("ignore")  # of what is given, as nested tensors
MODEL = interp.load("python-2l")
PAIR = interp.load("dates")
PROMPT = "def f(x):"
IDS = MODEL.to_tokens(PROMPT)
ZERO = edits.zero("z", layer=0, head=0)
STREAM = torch.zeros(*IDS.shape, MODEL.d_model)
FOLDER = Path(tempfile.gettempdir())


class Unprintable:
    """Its repr raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


Rows = list[tuple[Any, str]]
Calls = dict[str, Callable[[Any], Any]]

THINGS: Rows = [
    (object(), "object"),
    (Unprintable(), "Unprintable"),
    (1.5, r"1\.5|float"),
    (1j, r"1j|complex"),
    (b"bytes", "b'bytes'"),  # last: edits= reads it as a sequence
]
"""Arguments that are wrong everywhere."""
TOKENS: Rows = [
    *THINGS,
    (None, "None"),
    (3, r"\b3\b|axes"),
    (True, "bool"),
    (["a", 5], r"5 in \['a', 5\]"),
    ([5, "a"], r"\[5, 'a'\]"),
    (["a", None], "None"),
    ([[1, 2], [3]], r"\[\[1, 2\], \[3\]\]|interp\.PAD"),
    ([[[1]]], r"\[\[\[1\]\]\]"),
    ({"input_ids": [1]}, "tokenizer.*input_ids"),
    ({1, 2}, r"\{1, 2\}"),
    ([1.5], "float"),
    ([[2**70]], r"\[\["),
    ([10**6], "1000000"),
    ([], "empty|No text"),
    ("", "empty|''"),
    ("\ud800", "ud800"),
    ("x " * 100_000, "context|encoded"),
    (np.array(["a"]), "ndarray|str"),
    (IDS.float(), "float32"),
    (IDS.to(torch.complex64), "complex64"),
    (IDS.to_sparse(), "sparse"),
    (IDS.to("meta"), "meta"),
    (torch.quantize_per_tensor(IDS.float(), 1.0, 0, torch.quint8), "quint8"),
    (torch.nested.nested_tensor([IDS[0], IDS[0, 1:]]), "nested"),
    (Batch(IDS, images=torch.zeros(1, 3, 4, 4)), "images"),
]
"""Arguments that are not prompts of a text model."""
OF_TOKENS: Calls = {
    "model": MODEL,
    "run": lambda x: interp.run(MODEL, x),
    "run_with_cache": MODEL.run_with_cache,
    "run_with_hooks": MODEL.run_with_hooks,
    "generate": MODEL.generate,
    "loss": MODEL.loss,
    "top": MODEL.top,
    "position_of": lambda x: MODEL.position_of(x, 5),
    "sweep": lambda x: interp.sweep(MODEL, x, [ZERO], metrics.logit(3)),
    "a pair's source": lambda x: PAIR(x, [[1]]),
    "a pair's target": lambda x: PAIR([[1]], x),
}
TEXTS: Rows = [
    *THINGS,
    (None, "None"),
    (3, r"\b3\b"),
    (["a", 5], "5"),
    ([["a"]], r"\['a'\]"),
    ("\ud800", "ud800"),
]
IDS_OF_TEXT: Rows = [
    *THINGS,
    (None, "None"),
    ("text", "'text'|is 4 tokens"),
    ([[1, 2], [3]], r"\[\[1, 2\], \[3\]\]"),
    (10**6, "1000000"),
    (IDS.to("meta"), "meta"),
    (IDS.to_sparse(), "sparse"),
    (torch.zeros(2, 2, 2).long(), r"2, 2, 2"),
]
OF_IDS: Calls = {"to_string": MODEL.to_string}
MASKS: Rows = [
    *THINGS[:2],
    ("mask", "'mask'"),
    ([[1, 2], [3]], r"\[\[1, 2\], \[3\]\]"),
    (torch.ones(1, 2), r"\(1, 2\)"),
    (torch.ones(IDS.shape, device="meta"), "meta"),
    (torch.ones(IDS.shape).to_sparse(), "sparse"),
]
OF_MASKS: Calls = {
    "model": lambda x: MODEL(IDS, mask=x),
    "run": lambda x: interp.run(MODEL, IDS, mask=x),
    "run_with_cache": lambda x: MODEL.run_with_cache(IDS, mask=x),
    "run_with_hooks": lambda x: MODEL.run_with_hooks(IDS, mask=x),
    "loss": lambda x: MODEL.loss(IDS, mask=x),
    "sweep": lambda x: interp.sweep(MODEL, IDS, [ZERO], metrics.logit(3), mask=x),
}
PLACES: Rows = [
    *THINGS,
    (3, r"\b3\b"),
    ((), "empty"),
    ([3], r"\b3\b"),
    ("patern", "'patern'.*Nearest"),
    (("z", 7), r"\('z', 7\).*0\.\.1"),
    (("z", -3), r"\('z', -3\).*0\.\.1"),
    (("z", 1.5), r"\('z', 1\.5\)"),
    (("z", True), "True"),
    (("z", "0"), r"\('z', '0'\)"),
    (("z", 0, object()), "object"),
    ("x" * 10**6, "xxx"),
    (torch.tensor(0), r"(?i)tensor|\(0,\)"),
    (IDS, "(?i)tensor"),
]
CACHE = interp.run(MODEL, IDS, record="all").cache
OF_PLACES: Calls = {
    "record": lambda x: interp.run(MODEL, IDS, record=x),
    "store": lambda x: interp.run(MODEL, IDS, store=x),
    "names_filter": lambda x: MODEL.run_with_cache(IDS, names_filter=x),
    "keep": CACHE.keep,
    "cache[]": lambda x: CACHE[x],
    "in cache": lambda x: x in CACHE,
    "fwd_hooks": lambda x: MODEL.run_with_hooks(IDS, fwd_hooks=[(x, lambda z, hook: z)]),
    "edits.zero": lambda x: interp.run(MODEL, IDS, edits=[edits.zero(x)]),
}
RUN: dict[str, Rows] = {
    "edits": [*THINGS[:-1], (3, "3"), ("zero", "'z'|'zero'"), ([3], "3"), (None, "None")],
    "start": [*THINGS, (3, "3"), (STREAM, "Tensor")],
    "stop_at_layer": [*THINGS, ("1", "'1'"), (9, "9"), (True, "True"), ([1], r"\[1\]")],
    "kernel": [*THINGS, (None, "None"), ("flash", "'flash'")],
    "gradients_of": [*THINGS, ("loss", "'loss'"), (3, "3")],
}
STARTS: Rows = [
    (("1", STREAM), "'1'"),
    ((1.5, STREAM), r"1\.5"),
    ((True, STREAM), "True"),
    ((9, STREAM), "9"),
    ((0, "stream"), "'stream'"),
    ((0, None), "None"),
    ((0, STREAM[:, 1:]), r"torch.Size|\(1, "),
    ((0, STREAM.double()), "float64"),
    ((0, STREAM.to("meta")), "meta"),
    ((0, STREAM.to_sparse()), "sparse"),
]
HOOKS: Rows = [
    *THINGS,
    ({"z": print}, "'z'"),
    ("z", "'z'"),
    (3, r"\b3\b"),
    (None, "None"),
    ([3], r"\b3\b"),
    ([("z",)], r"\('z',\)"),
    ([(("z", 0), 3)], r"\(\('z', 0\), 3\)"),
    ([(("z", 0), print, 3)], r"\(\('z', 0\),"),
]
GENERATION: dict[str, Rows] = {
    "max_new_tokens": [*THINGS, (0, "0"), ("3", "'3'"), (True, "True"), (None, "None")],
    "top_k": [*THINGS, (0, "0"), ("3", "'3'"), (True, "True")],
    "temperature": [*THINGS[:2], *THINGS[3:], ("1", "'1'"), (-1.0, "-1"), (None, "None")],
    "seed": [*THINGS, ("1", "'1'"), (None, "None"), (2**80, str(2**80)[:9])],
    "edits": [*THINGS[:-1], (3, "3"), ([3], "3")],
}
TOP: dict[str, Rows] = {
    "k": [*THINGS, (0, "0"), ("3", "'3'"), (True, "True"), (None, "None")],
    "pos": [*THINGS, (99, "99"), ("1", "'1'"), (True, "True")],
    "answer": [*THINGS, (10**6, "1000000"), (-1, "-1"), ("no such token at all", "tokens")],
    "target": [(3, "3|inputs"), ("x", "inputs")],
}
NUMBERS: Rows = [*THINGS, ("1", "'1'"), (True, "True")]
SWEEPS: dict[str, Rows] = {
    "edits": [*THINGS[:-1], (3, "3"), ([3], "3"), ([[3]], "3")],
    "metric": [*THINGS, (None, "None"), (3, "3"), ("loss", "'loss'")],
    "memory": [*THINGS[:2], ("1", "'1'"), (-1, "-1")],
    "executor": [*THINGS, ("there", "'there'"), (None, "None")],
    "resume": [*THINGS, (3, r"\b3\b")],
}
MODELS: Rows = [*THINGS, (None, "None"), ("python-2l", "'python-2l'"), (3, r"\b3\b")]
OF_MODELS: Calls = {
    "run": lambda x: interp.run(x, IDS),
    "sweep": lambda x: interp.sweep(x, IDS, [ZERO], metrics.logit(3)),
    "verify": analyses.verify,
    "packed": interp.packed,
    "packing_gain": interp.packing_gain,
}
SELECTIONS: Rows = [*THINGS[:-1], ("1", "'1'"), (True, "True"), (99, "99"), (-99, "-99")]
OF_SELECTIONS: Calls = {
    name: lambda x, name=name: interp.run(
        MODEL, IDS, edits=[edits.zero("z", **dict[str, Any]({"layer": 0} | {name: x}))]
    )
    for name in ("layer", "batch", "pos", "head", "unit")
}
VALUES: Rows = [*THINGS[:2], *THINGS[3:], ("1", "'1'"), (None, "None"), (True, "True")]
OF_VALUES: Calls = {
    "edits.scale": lambda x: edits.scale("z", x),
    "edits.add": lambda x: edits.add("z", x),
    "edits.replace": lambda x: edits.replace("z", x),
}
TARGETS: Rows = [
    *THINGS[:-1],
    (None, "None"),
    ("not one", "tokens"),
    (10**6, "1000000"),
    (-1, "-1"),
]
OF_TARGETS: Calls = {
    name: lambda x, metric=metric: interp.sweep(MODEL, IDS, [ZERO], metric(x))
    for name, metric in {
        "logit": metrics.logit,
        "prob": metrics.prob,
        "accuracy": metrics.accuracy,
        "logit_diff": lambda target: metrics.logit_diff(3, target),
    }.items()
}
POSITIONS: Rows = [*THINGS, ("last", "'last'"), (True, "True"), (99, "99")]
OF_POSITIONS: Calls = {
    "logit(pos=)": lambda x: interp.sweep(MODEL, IDS, [ZERO], metrics.logit(3, pos=x)),
}
PATHS: Rows = [
    *THINGS,
    (None, "None"),
    (3, r"\b3\b"),
    ("a\0b", r"a\\x00b"),
    (FOLDER, re.escape(str(FOLDER))),
]
OF_PATHS: Calls = {
    "cache.save": CACHE.save,
    "model.save": MODEL.save,
    "load_cache": interp.load_cache,
    "read_prompts": interp.read_prompts,
    "card": interp.card,
    "history": interp.history,
}
LOADING: Rows = [
    *THINGS,
    (None, "None"),
    (3, r"\b3\b|int"),
    ("no-such-model", "'no-such-model'"),
    ("x" * 10**5, "xxx"),
    (FOLDER / "no such folder", "no such folder"),
    ("a\0b", r"a\\x00b"),
    ("", "''"),
    ({}, "configuration"),
]
NO_CUDA: Rows = [] if torch.cuda.is_available() else [("cuda", "CUDA|NVIDIA")]


def keyword(call: Callable[..., object], name: str) -> Callable[[Any], object]:
    """The call with its argument passed by name."""
    return lambda x: call(**{name: x})


def tables() -> list[tuple[Calls, Rows]]:
    """Every group of calls, with the rows that each of the calls is given."""
    sweep_defaults = {"edits": [ZERO], "metric": metrics.logit(3)}

    def run(**options: Any) -> object:
        return interp.run(MODEL, IDS, **dict[str, Any]({"record": "z"} | options))

    def generate(**options: Any) -> object:
        return MODEL.generate(IDS, **dict[str, Any]({"max_new_tokens": 1} | options))

    def top(**options: Any) -> object:
        return MODEL.top(IDS, **options)

    def sweep(**options: Any) -> object:
        return interp.sweep(MODEL, IDS, **(sweep_defaults | options))

    options = [(run, RUN), (generate, GENERATION), (top, TOP), (sweep, SWEEPS)]
    return [
        (OF_TOKENS, TOKENS),
        ({"to_tokens": MODEL.to_tokens, "to_single_token": MODEL.to_single_token}, TEXTS),
        (OF_IDS, IDS_OF_TEXT),
        (
            {"to_labels": MODEL.to_labels, "to_str_tokens": MODEL.to_str_tokens},
            [row for row in IDS_OF_TEXT if row[0] != "text"],
        ),
        (OF_MASKS, MASKS),
        (OF_PLACES, PLACES),
        ({"Start": lambda x: interp.run(MODEL, IDS, start=Start(*x))}, STARTS),
        ({"fwd_hooks": lambda x: MODEL.run_with_hooks(IDS, fwd_hooks=x)}, HOOKS),
        ({"position_of": lambda x: MODEL.position_of(IDS, x)}, [*THINGS, (None, "None")]),
        ({"padding_side": lambda x: MODEL.to_tokens("a", padding_side=x)}, NUMBERS),
        ({"stack": lambda x: MODEL.to_tokens("a", stack=x)}, NUMBERS),
        (OF_MODELS, MODELS),
        (OF_SELECTIONS, SELECTIONS),
        (OF_VALUES, VALUES),
        (OF_TARGETS, TARGETS),
        (OF_POSITIONS, POSITIONS),
        (OF_PATHS, PATHS),
        ({"save(dtype=)": lambda x: MODEL.save(FOLDER / "x", x)}, [*THINGS, ("int8", "'int8'")]),
        ({"load": interp.load}, LOADING),
        (
            {"load(dtype=)": lambda x: interp.load("python-2l", dtype=x)},
            [*THINGS, ("int8", "'int8'.*float16"), (torch.int8, "int8")],
        ),
        ({"to": MODEL.to}, [("nowhere", "nowhere"), *NO_CUDA]),
        *[
            ({f"{call.__name__}({name}=)": keyword(call, name)}, rows)
            for call, kinds in options
            for name, rows in kinds.items()
        ],
    ]


def fault(call: Callable[[Any], object], argument: object, expected: str) -> str | None:
    """What is wrong with how a call refuses its argument; ``None`` if nothing is."""
    try:
        call(argument)
    except InterpError as error:
        message = str(error)
        if len(message) > LONGEST:
            return f"a message of {len(message)} characters"
        if not re.search(expected, message, re.DOTALL):
            return f"a message that does not name it ({expected}): {message[:300]}"
        return None
    except BaseException as error:  # of any kind: that is what is looked for
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "no error"


def faults() -> list[str]:
    """A line for each call that raises no error, or a wrong error or message."""
    lines: list[str] = []
    for calls, rows in tables():
        for (name, call), (argument, expected) in product(calls.items(), rows):
            wrong = fault(call, argument, expected)
            if wrong is not None:
                lines.append(f"{name}({shorten(argument)}): {wrong}")
    return lines


INTEGERS = (np.int64, np.int32, np.uint8, torch.tensor)
OF_INTEGERS: Calls = {
    "edits": lambda n: edits.zero("z", layer=n, head=n, pos=n).to_dict(),
    "edits, whole": lambda n: edits.zero(("z", n)).digest,
    "cache[]": lambda n: CACHE["z", n],
    "record": lambda n: list(interp.run(MODEL, IDS, record=[("z", n)]).cache),
    "stop_at_layer": lambda n: interp.run(MODEL, IDS, stop_at_layer=n).stream,
    "Start": lambda n: interp.run(MODEL, IDS, start=Start(n, STREAM)).logits,
    "generate": lambda n: MODEL.generate(IDS, max_new_tokens=n, top_k=n, seed=n),
    "metrics": lambda n: metrics.logit_diff(n, n, pos=n),
    "top": lambda n: MODEL.top(IDS, n, answer=n, pos=n).rows,
    "position_of": lambda n: MODEL.position_of([0, 1], n),
    "to_string": MODEL.to_string,
    "S": lambda n: MODEL.blocks[0].attn.S(n).left,
    "Y": lambda n: MODEL.blocks[0].attn.Y(n, n).right,
}
"""The converse: calls that take an integer of any type."""


def refused_integers() -> list[str]:
    """A line for each call for which a 1 of another integer type is not the same as 1."""
    lines: list[str] = []
    for (name, call), kind in product(OF_INTEGERS.items(), INTEGERS):
        try:
            same = torch.equal if isinstance(call(1), torch.Tensor) else operator.eq
            if not same(call(kind(1)), call(1)):
                lines.append(f"{name}({kind.__name__}(1)): another result than of 1")
        except Exception as error:  # of any kind: that is what is looked for
            lines.append(f"{name}({kind.__name__}(1)): {type(error).__name__}: {error}")
    return lines


if __name__ == "__main__":
    lines = [*faults(), *refused_integers()]
    print("\n".join(lines))  # noqa: T201
    sys.exit(bool(lines))
