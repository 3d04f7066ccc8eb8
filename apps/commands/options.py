"""The options that the commands of all analyses share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_MODEL = "python-2l"
FILES = ("model", "prompts", "reference", "held_out", "heldout", "texts", "lens", "other")
"""Options whose value may be the path of a file or folder."""


class DTypeName(StrEnum):
    """The data type of the computation."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class KernelName(StrEnum):
    """The kernel of products with weights."""

    AUTO = "auto"
    DEFAULT = "default"
    PACKED = "packed"


class ExecutorName(StrEnum):
    """Where the forward passes of sweeps run."""

    LOCAL = "local"
    PROCESSES = "processes"
    RAY = "ray"


UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_bytes(text: str) -> int:
    """Parse a number of bytes, such as 2000000000, 2e9 or 2GB.

    Raises:
        typer.BadParameter: the text is not a number of at least one byte.
    """
    unit = next((unit for unit in UNITS if text.lower().endswith(unit.lower())), "")
    try:
        number = float(text[: len(text) - len(unit)]) * UNITS.get(unit, 1)
        if number >= 1:
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(
        f"{text[:40]!r} is not a number of bytes; write e.g. 2GB ({', '.join(UNITS)})."
    )


Model = Annotated[
    str, typer.Option("--model", "-m", help="A bundled model, a folder or hub:org/name.")
]
Prompts = Annotated[
    str | None,
    typer.Option(
        help="A prompt file (.jsonl, .csv, .parquet, a template .toml, text) or a bundled set.",
        show_default="the model's own",
    ),
]
Out = Annotated[Path | None, typer.Option(help="Output folder, created if missing.")]
Device = Annotated[
    str,
    typer.Option(
        help="Device: cpu, cuda, cuda:1, …; balanced: layers on all GPUs; cuda:0,cuda:1: on these; "
        "tensor-parallel: each layer divided among the processes of torchrun."
    ),
]
DType = Annotated[
    DTypeName | None,
    typer.Option(help="Data type to compute in.", show_default="that of the model"),
]
Kernel = Annotated[
    KernelName,
    typer.Option(
        help="Kernel of products without gradients: PyTorch's own, packed weights, or the faster "
        "one of a large model, measured once on this machine."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of random draws, if the analysis makes any.")]
Rows = Annotated[
    int | None,
    typer.Option(help="Prompts per forward pass.", min=1, show_default="chosen by the analysis"),
]
Memory = Annotated[
    int | None,
    typer.Option(
        parser=parse_bytes,
        metavar="BYTES",
        help="Memory that the forward passes of a sweep may use, e.g. 2GB.",
        show_default="a quarter of the free memory, on a CPU at most 1 GiB",
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue from the partial results of a run that was stopped."),
]
ResumeWithoutEffect = Annotated[
    bool, typer.Option("--resume", help="No effect: this command keeps no partial results.")
]
"""``--resume`` of commands that keep no partial results; accepted, so that scripts may pass it."""
ResumeParts = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue with the parts of --per-prompt of a run that was stopped; no effect without "
        "it: this command keeps no partial results.",
    ),
]
Site = Annotated[
    Path | None,
    typer.Option(
        help="Also write static pages to this folder: an index of all heads and a page for each.",
        show_default="none",
    ),
]
HeadVis = Annotated[
    Path | None,
    typer.Option(
        "--headvis", help="Also write the files of HeadVis to this folder.", show_default="none"
    ),
]
PerPrompt = Annotated[
    Path | None,
    typer.Option(
        help="Run prompts in parts of 256, and write the numbers of each to Parquet files in this "
        "new folder; the report has their means. For more prompts than memory holds.",
        show_default="all prompts at once",
    ),
]
ExecutorOption = Annotated[
    ExecutorName,
    typer.Option(
        "--executor",
        help="Where the forward passes of sweeps and of passes over texts run: in this process, in "
        "several processes of this machine, or on a Ray cluster.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Number of workers of --executor processes or ray.",
        show_default="one per GPU or CPU",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="The Ray cluster: auto for the one that runs on this machine, or host:port.",
        show_default="a new one on this machine",
    ),
]
JobTimeout = Annotated[
    float | None,
    typer.Option(
        help="Seconds within which a worker must answer what should take it a second or one "
        "forward, before it is ended and replaced; inf waits for any time.",
        show_default="3600",
    ),
]
SWEEPING = {
    "executor": (ExecutorOption, ExecutorName.LOCAL),
    "workers": (Workers, None),
    "address": (Address, None),
    "job_timeout": (JobTimeout, None),
}
"""The options of commands whose forwards workers can run."""
FURTHER = {"site": (Site, None), "headvis": (HeadVis, None)}
"""The options of commands that write more folders than that of their report."""
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Top = Annotated[int, typer.Option(help="Number of rows to print.", min=1)]
SHARED = {
    "model": (Model, DEFAULT_MODEL),
    "prompts": (Prompts, None),
    "out": (Out, None),
    "device": (Device, "cpu"),
    "dtype": (DType, None),
    "kernel": (Kernel, KernelName.AUTO),
    "seed": (Seed, 0),
    "rows": (Rows, None),
    "memory": (Memory, None),
    "resume": (Resume, False),
    "per_prompt": (PerPrompt, None),
    **SWEEPING,
    **FURTHER,
    "json": (Json, False),
    "top": (Top, 10),
}
"""The options that all commands of analyses have, with their defaults."""
