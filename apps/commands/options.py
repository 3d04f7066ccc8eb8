"""The options of commands: those that all have, and those that several have."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_MODEL = "python-2l"
FILES = ("model", "prompts", "reference", "held_out", "heldout", "texts", "lens", "other")
"""Options whose value may be the path of a file or folder."""


class DTypeName(StrEnum):
    """What is computed in."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_bytes(text: str) -> int:
    """A number of bytes, as 2000000000, 2e9 or 2GB.

    Raises:
        typer.BadParameter: it is none.
    """
    unit = next((unit for unit in UNITS if text.lower().endswith(unit.lower())), "")
    try:
        number = float(text[: len(text) - len(unit)]) * UNITS.get(unit, 1)
        if number >= 1:
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(
        f"{text[:40]!r} is no number of bytes; write e.g. 2GB ({', '.join(UNITS)})."
    )


Model = Annotated[str, typer.Option("--model", "-m", help="A bundled model or a folder.")]
Prompts = Annotated[
    str | None,
    typer.Option(
        help="A prompt file (.jsonl, .csv, .parquet, a template .toml, text) or a bundled set.",
        show_default="the model's own",
    ),
]
Out = Annotated[Path | None, typer.Option(help="Output folder, created if missing.")]
Device = Annotated[str, typer.Option(help="Device: cpu, cuda, cuda:1, …")]
DType = Annotated[
    DTypeName | None,
    typer.Option(help="What is computed in.", show_default="that of the model"),
]
Seed = Annotated[int, typer.Option(help="Random seed, where anything is drawn.")]
Rows = Annotated[
    int | None,
    typer.Option(help="Prompts a forward.", min=1, show_default="as the analysis chooses"),
]
Memory = Annotated[
    int | None,
    typer.Option(
        parser=parse_bytes,
        metavar="BYTES",
        help="What the forwards of a sweep may take, e.g. 2GB.",
        show_default="a quarter of what is free",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on from what a stopped run of this command kept.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Top = Annotated[int, typer.Option(help="Rows of the printed table.", min=1)]
SHARED = {
    "model": (Model, DEFAULT_MODEL),
    "prompts": (Prompts, None),
    "out": (Out, None),
    "device": (Device, "cpu"),
    "dtype": (DType, None),
    "seed": (Seed, 0),
    "rows": (Rows, None),
    "memory": (Memory, None),
    "resume": (Resume, False),
    "json": (Json, False),
    "top": (Top, 10),
}
"""The options that all commands of analyses have, with their defaults."""


# ---- what several have -------------------------------------------------------------------------


class MetricName(StrEnum):
    """The metric that is measured."""

    LOSS = "loss"
    LOGIT_DIFF = "logit-diff"
    KL = "kl"


class MethodName(StrEnum):
    """What replaces what is ablated."""

    ZERO = "zero"
    MEAN = "mean"
    RESAMPLE = "resample"


class PairMetricName(StrEnum):
    """The metric that a clean prompt and its corrupted counterpart differ in."""

    LOGIT_DIFF = "logit-diff"
    LOGIT = "logit"
    PROB = "prob"


class AttributionName(StrEnum):
    """How effects are estimated."""

    CONDUCTANCE = "conductance"
    EAP = "eap"
    EAP_IG = "eap-ig"
    EXACT = "exact"


class KindName(StrEnum):
    """What an edge carries in place of its own value."""

    RESAMPLE = "resample"
    MEAN = "mean"
    ZERO = "zero"


Metric = Annotated[
    MetricName | None,
    typer.Option(
        help="The metric; kl is from the model's own prediction.",
        show_default="as in the model's card, else loss",
    ),
]
PairMetric = Annotated[
    PairMetricName, typer.Option(help="The metric; logit and prob are of the target alone.")
]
Kind = Annotated[
    KindName, typer.Option(help="What a patched edge carries: the corrupted prompt's, a mean, 0.")
]
