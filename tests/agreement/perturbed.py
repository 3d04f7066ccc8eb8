"""Configurations with changed fields, generated from the class of a configuration.

The fields are those that the class declares, their aliases, further arguments of its constructor,
and attributes that its modules read although no class declares them. The values to try for a field
follow from its type and from its present value.
"""

import random
import re
import sys
from collections.abc import Mapping
from dataclasses import fields as fields_of
from functools import cache
from inspect import getsource
from itertools import chain
from typing import Any, TypeGuard, get_args

import transformers.configuration_utils
import transformers.masking_utils
import transformers.modeling_rope_utils
from agreement.small import DYNAMIC, FAR, FULL, LINEAR, LLAMA3, LONGROPE, SLIDING, YARN, Case
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import RopeParameters

Fields = Mapping[str, object]
MISSING = "missing"
"""Stands for a field that is left out."""

UNKNOWN = "depth_multiplier"
"""A field that no family here has; in others, it scales what each sub-layer writes."""
TAKEN = re.compile(r"kwargs\.(?:pop|get|setdefault)\(\s*\"(\w+)\"")
READ = re.compile(r"(?:get|has)attr\((?:self|(?:self\.)?config), \"(\w+)\"")
SHARED_MODULES = (
    transformers.configuration_utils,
    transformers.masking_utils,
    transformers.modeling_rope_utils,
)
SET_HERE = {"attn_implementation", "experts_implementation", "text_config", "vision_config"}
"""Fields that the comparison sets; configurations of parts have defaults of gigabytes."""

PAIRS = [1.0, 1.3, 2.0, 2.5]
ROPES: list[dict[str, Any]] = [
    {},
    FAR,
    {"partial_rotary_factor": 0.5},
    LINEAR | FAR,
    DYNAMIC,
    LLAMA3,
    YARN,
    YARN | {"factor": None},
    LONGROPE | {"short_factor": PAIRS[:3], "long_factor": PAIRS[1:]},
    LONGROPE | {"short_factor": PAIRS, "long_factor": PAIRS[::-1]},
    {FULL: LINEAR | FAR, SLIDING: FAR},
    {FULL: YARN, SLIDING: {"rope_type": "default"}},
    {FULL: None, SLIDING: FAR},
]


def drawn(case: Case, count: int, together: int = 1) -> list[Fields]:
    """Draw ``count`` changes at random, of ``together`` fields each.

    They differ between cases, and are the same in every run.
    """
    draw, values = random.Random(f"{case.config.__name__} {case.fields}"), alternatives(case)
    return [
        {name: draw.choice(values[name]) for name in draw.sample(list(values), together)}
        for _ in range(count)
    ]


def each_alone(case: Case, most: int = 150) -> list[Fields]:
    """Every change of a single field, at most ``most`` per field, drawn at random."""
    draw = random.Random(0)
    return [
        {name: value}
        for name, values in alternatives(case).items()
        for value in draw.sample(values, min(most, len(values)))
    ]


def changed(fields: Fields, changes: Fields) -> dict[str, object]:
    """The fields with the changes applied."""
    merged = {**fields, **changes}
    return {name: value for name, value in merged.items() if value != MISSING}


def alternatives(case: Case) -> dict[str, list[object]]:
    """Other values of every field that a model may read."""
    config = case.config(**case.fields)
    types = {field.name: str(field.type) for field in fields_of(case.config)}
    choices = {
        name: values_of(name, types.get(name), getattr(config, name, None))
        for name in names_of(case.config)
    }
    for name, value in case.fields.items():
        if name in choices and not is_number(value):
            choices[name].append(MISSING)
    return choices


@cache
def names_of(config: type) -> tuple[str, ...]:
    """Every field that models of a class of configurations may read."""
    modeling = sys.modules[config.__module__.replace("configuration_", "modeling_")]
    modules = (sys.modules[config.__module__], modeling, *SHARED_MODULES)
    sources = [getsource(module) for module in modules]
    used = chain.from_iterable(pattern.findall(s) for s in sources for pattern in (TAKEN, READ))
    declared = (field.name for field in fields_of(config))
    return tuple(sorted({*used, *declared, *config.attribute_map, UNKNOWN} - SET_HERE))


def values_of(name: str, declared: str | None, value: object) -> list[object]:
    """Values to try for a field: null, and values of its declared type or of its value's type."""
    kinds = {type(value).__name__, *re.findall(r"\w+", declared or "bool int float")}
    candidates: list[object] = [None]
    for kind, values in VALUES.items():
        candidates += values(value) if kind in kinds else []
    if name in ("rope_parameters", "rope_scaling"):
        candidates += ropes(value)
    candidates += re.findall(r"'(\w+)'", declared or "")
    return [
        candidate
        for candidate in candidates
        if type(candidate) is not type(value) or candidate != value
    ]


def integers(value: object) -> list[object]:
    near = value if type(value) is int else 4
    return [-1, 0, 1, 2, 3, 8, near - 1, near + 1, near * 2, near // 2]


def numbers(value: object) -> list[object]:
    near = value if is_number(value) and value else 0.5
    return [0.0, near / 2, near * 2, 1.0, 50.0]


def words(value: object) -> list[object]:
    gated = [f"gated-{name}" for name in ACT2FN]
    activations = [*ACT2FN, *gated] if str(value).split("-")[-1] in ACT2FN else []
    return [*activations, "other", "float16"]


def lists(value: object) -> list[object]:
    old = list(value) if isinstance(value, list | tuple) else [FULL] * 3
    types = [[kind] * len(old) for kind in (FULL, SLIDING, "local", "global")]
    mixed = [([FULL, SLIDING] * len(old))[: len(old)], [SLIDING] + [FULL] * (len(old) - 1)]
    shares = [[[["global"], 4]], [[["local", "global"], 2]], [[["global"], 1], [["local"], 3]]]
    return [[], [0], [1, 2], [4, 4], [4, 8], [12, 16], old[::-1], old[:-1], *types, *mixed, *shares]


VALUES = {
    "bool": lambda value: [True, False],
    "int": integers,
    "float": numbers,
    "str": words,
    "list": lists,
    "tuple": lists,
    "dict": lambda value: [{}, {"0": "a", "1": "b", "2": "c"}, {"0": {"num_attention_heads": 2}}],
}


def ropes(value: object) -> list[object]:
    """Scalings of rotary positions, and each with one of its parameters changed or left out."""
    base = [value] if isinstance(value, dict) else []
    scalings: list[object] = []
    for rope in (*ROPES, *base):
        scalings += [rope, rope | {UNKNOWN: 1.0}]
        scalings += [
            {key: parameter for key, parameter in rope.items() if key != name} for name in rope
        ]
        for name, hint in RopeParameters.__annotations__.items():
            kinds = " ".join(kind.__name__ for kind in get_args(hint))
            scalings += [
                rope | {name: candidate} for candidate in values_of(name, kinds, rope.get(name))
            ]
    return scalings


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
