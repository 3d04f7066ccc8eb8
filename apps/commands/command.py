"""How an analysis becomes a command: the options that all have, and what is done around it.

A command is a function of its inputs and of its own options, and returns a result:

    @analysis_command("Reading each layer")
    def lens(inputs: "Inputs", *, top: ...) -> "Result":
        '''Read a prediction from the stream after each layer.'''

:func:`analysis_command` adds the options that all commands have. What it makes loads the model,
reads the prompts, shows progress, writes the folder and prints a table and a conclusion. Modules
with commands import torch, pandas and plotly inside the functions only.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.terminal import print_stdout, print_table, progress

if TYPE_CHECKING:
    from analyses.result import Result

DEFAULT_MODEL = "python-2l"
QUESTION = "question"
"""The attribute of a command that holds what it asks."""


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


Model = Annotated[str, typer.Option("--model", "-m", help="A bundled model or a folder.")]
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
Prompts = Annotated[
    str | None,
    typer.Option(
        help="A prompt file (.jsonl, .csv, .parquet, a template .toml, text) or a bundled set.",
        show_default="the model's own",
    ),
]
Kind = Annotated[
    KindName, typer.Option(help="What a patched edge carries: the corrupted prompt's, a mean, 0.")
]
Seed = Annotated[int, typer.Option(help="Random seed of what is drawn.")]
Device = Annotated[str, typer.Option(help="Device: cpu, cuda, cuda:1, …")]
Top = Annotated[int, typer.Option(help="Rows of the printed table.", min=1)]


@dataclass(frozen=True)
class Question:
    """What a command asks.

    Attributes:
        analysis: the function of its inputs and its own options.
        label: what is being done, beside the progress.
        reads: the fields of prompts that are read.
    """

    analysis: Callable[..., "Result"]
    label: str
    reads: tuple[str, ...]

    def defaults(self, model: str) -> dict[str, Any]:
        """Its options where none is given; of the metric, that of the model's card."""
        from apps.defaults import default_metric  # noqa: PLC0415

        own = list(inspect.signature(self.analysis).parameters.values())[1:]
        options = {one.name: one.default for one in own}
        if options.get("metric", "") is None:
            options["metric"] = default_metric(model)
        return options


def question_of(command: Callable[..., None]) -> Question:
    """What a command that :func:`analysis_command` made asks."""
    return vars(command)[QUESTION]


def analysis_command(
    label: str, *, folder: str = "{model}-{command}", reads: tuple[str, ...] = ("text",)
) -> Callable[[Callable[..., "Result"]], Callable[..., None]]:
    """The command that runs an analysis: the function with the options that all commands have.

    Args:
        label: what is being done, beside the progress; ``{name}`` stands for an option.
        folder: the default output folder below ``reports``; ``{name}`` stands for an option, the
            ``command`` or the ``model``. Names that are given for other options, such as ``--part
            v``, are appended.
        reads: the fields of prompts that the analysis reads; none if it reads no prompts. A logit
            difference reads target and distractor in any case. With ``corrupt``, the default are
            the model's minimal pairs.
    """

    def decorate(analysis: Callable[..., "Result"]) -> Callable[..., None]:
        def command(**options: Any) -> None:  # noqa: ANN401 - as the command line gives them
            _run(analysis, options, label, folder, reads)

        own = list(inspect.signature(analysis).parameters.values())[1:]
        place = folder.replace("{command}", name_of(analysis))
        parameters = _with_shared_options(own, place, has_prompts=bool(reads))
        vars(command)["__signature__"] = inspect.Signature(parameters)
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        command.__name__, command.__doc__ = analysis.__name__, analysis.__doc__
        vars(command)[QUESTION] = Question(analysis, label, reads)
        return command

    return decorate


def name_of(analysis: Callable[..., object]) -> str:
    """The name of a command, as it is typed."""
    return analysis.__name__.replace("_", "-")


def _with_shared_options(
    own: list[inspect.Parameter], folder: str, *, has_prompts: bool
) -> list[inspect.Parameter]:
    """The parameters of a command: its own between those that all have."""
    out = Annotated[
        Path | None,
        typer.Option(
            help="Output folder, created if missing.",
            show_default="reports/" + re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), folder),
        ),
    ]

    def option(name: str, kind: object, default: object) -> inspect.Parameter:
        keyword = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(name, keyword, annotation=kind, default=default)

    first = [option("model", Model, DEFAULT_MODEL)]
    first += [option("prompts", Prompts, None)] if has_prompts else []
    last = [option("out", out, None), option("device", Device, "cpu"), option("top", Top, 10)]
    return [*first, *own, *last]


def _folder_name(
    analysis: Callable[..., "Result"], folder: str, model: str, options: dict[str, Any]
) -> str:
    """The name of the default output folder."""
    defaults = inspect.signature(analysis).parameters
    others = [
        value.value
        for name, value in options.items()
        if isinstance(value, StrEnum)
        and value != defaults[name].default
        and f"{{{name}}}" not in folder
    ]
    return "-".join([folder.format(**options, model=model, command=name_of(analysis)), *others])


def _run(
    analysis: Callable[..., "Result"],
    options: dict[str, Any],
    label: str,
    folder: str,
    reads: tuple[str, ...],
) -> None:
    """Run an analysis, write its folder and print what was found."""
    from apps.commands.analysis_run import Settings, run_analysis  # noqa: PLC0415
    from apps.commands.outputs import write_files  # noqa: PLC0415
    from apps.defaults import default_metric  # noqa: PLC0415
    from apps.presentation import conclusion, table  # noqa: PLC0415
    from interp.atomic_folder import atomic_folder  # noqa: PLC0415

    model, out, device, top = (options.pop(name) for name in ("model", "out", "device", "top"))
    prompts = options.pop("prompts", None)
    if options.get("metric", "") is None:
        options["metric"] = default_metric(model)
    settings = Settings(name_of(analysis), model, prompts, options, device, reads)
    place = out or Path("reports") / _folder_name(
        analysis, folder, Path(model).resolve().name, options
    )
    with atomic_folder(place) as temporary:
        with progress(label.format(**options)) as tick:
            run = run_analysis(analysis, settings, tick)
        write_files(run, temporary)
    print_table(*table(run.result, top))
    print_stdout(f"\n{conclusion(run.result)}")
    print_stdout(f"Report: {place / 'report.html'}")
