"""Turns an analysis into a command: adds the shared options, runs it and reports its result.

A command is written as a function that takes its inputs and its own options, and returns a result:

    @analysis_command("Reading each layer")
    def lens(inputs: "Inputs", *, at: ...) -> "Result":
        '''Read a prediction from the stream after each layer.'''

:func:`analysis_command` adds the options that all commands share. The command it returns loads the
model, reads the prompts, shows progress, writes the output folder and prints a table and a
conclusion. Modules of commands import torch, pandas and plotly only inside functions.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.commands.options import SHARED, ResumeWithoutEffect

if TYPE_CHECKING:
    from analyses.results import Result

Label = str | Callable[[Mapping[str, Any]], str]
SPEC = "spec"
"""The attribute of a command that holds its :class:`CommandSpec`."""
FIRST = ("model", "prompts")
"""The shared options that ``--help`` lists before a command's own."""


@dataclass(frozen=True)
class CommandSpec:
    """The analysis that a command runs, and how it is presented.

    Attributes:
        name: the name of the command, as typed.
        analysis: function of the inputs and of the command's own options.
        label: text beside the progress bar; ``{name}`` stands for the value of an option. Or a
            function of the options, for what they cost.
        folder: the default output folder below ``reports``; ``{name}`` stands for an option, the
            ``command`` or the ``model``. Values from a fixed list that differ from the default,
            such as ``--part v``, are appended.
        reads: the fields of prompts that the analysis reads.
        is_resumable: whether the analysis keeps partial results, which ``--resume`` continues.
    """

    name: str
    analysis: Callable[..., "Result"]
    label: Label
    folder: str
    reads: tuple[str, ...]
    is_resumable: bool = False

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The command's own options, by their Python names."""
        own = list(inspect.signature(self.analysis).parameters.values())[1:]
        return {one.name: one for one in own}

    def options(self, model: str, given: dict[str, Any]) -> dict[str, Any]:
        """The values of the command's own options, with defaults for those not given.

        The default of a metric is that of the model's card.
        """
        from apps.defaults import default_metric  # noqa: PLC0415

        options = {name: one.default for name, one in self.parameters.items()} | given
        if options.get("metric", "") is None:
            options["metric"] = default_metric(model)
        return options

    def folder_name(self, model: str, options: dict[str, Any]) -> str:
        """The name of the default output folder."""
        others = [
            value.value
            for name, value in options.items()
            if isinstance(value, StrEnum)
            and value != self.parameters[name].default
            and f"{{{name}}}" not in self.folder
        ]
        return "-".join([self.folder.format(**options, model=model, command=self.name), *others])


def spec_of(command: Callable[..., None]) -> CommandSpec:
    """The specification of a command that :func:`analysis_command` made."""
    return vars(command)[SPEC]


def parsed(command: Callable[..., None], words: Sequence[str], where: str) -> dict[str, Any]:
    """Parse the words of a command line into all options of a command, by their Python names.

    Args:
        command: a command that :func:`analysis_command` made.
        words: the options, such as ``["--method", "zero"]``.
        where: the place that they come from, for the error message.

    Raises:
        InvalidInput: the words are not valid options of the command.
    """
    from interp.errors import InvalidInput  # noqa: PLC0415

    found: dict[str, Any] = {}

    def take(**options: Any) -> None:  # noqa: ANN401 - as the command line gives them
        found.update(options)

    vars(take)["__signature__"] = inspect.signature(command)
    take.__annotations__ = command.__annotations__
    app = typer.Typer(add_completion=False)
    app.command()(take)
    try:
        app(args=[*words], standalone_mode=False)
    except Exception as error:
        message = getattr(error, "format_message", None)  # click's, which typer may bring along
        if message is None:
            raise
        raise InvalidInput(f"{where}: {message()}") from error
    return found


def analysis_command(
    label: Label,
    *,
    folder: str = "{model}-{command}",
    reads: tuple[str, ...] = ("text",),
    is_resumable: bool = False,
) -> Callable[[Callable[..., "Result"]], Callable[..., None]]:
    """Decorator that makes a command of a function that runs an analysis.

    Args:
        label: as for :class:`CommandSpec`.
        folder: as for :class:`CommandSpec`.
        reads: the fields of prompts that the analysis reads; empty if it reads no prompts. A logit
            difference reads target and distractor in any case. With ``corrupt``, the prompts
            default to the model's minimal pairs.
        is_resumable: whether the function passes :meth:`Inputs.how_resumable` to its analysis.
    """

    def decorate(analysis: Callable[..., "Result"]) -> Callable[..., None]:
        spec = CommandSpec(name_of(analysis), analysis, label, folder, reads, is_resumable)

        def command(**options: Any) -> None:  # noqa: ANN401 - as the command line gives them
            from apps.commands.carry_out import carry_out  # noqa: PLC0415

            shared = {name: options.pop(name) for name in SHARED if name in options}
            carry_out(spec, shared, options)

        parameters = _with_shared_options(spec)
        vars(command)["__signature__"] = inspect.Signature(parameters)
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        command.__name__, command.__doc__ = analysis.__name__, analysis.__doc__
        vars(command)[SPEC] = spec
        return command

    return decorate


def name_of(analysis: Callable[..., object]) -> str:
    """The name of a command, as typed."""
    return analysis.__name__.replace("_", "-")


def _with_shared_options(spec: CommandSpec) -> list[inspect.Parameter]:
    """The parameters of a command: its own options between the shared ones."""
    place = spec.folder.replace("{command}", spec.name)
    listed = "reports/" + re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), place)
    out = Annotated[
        Path | None,
        typer.Option(help="Output folder, created if missing.", show_default=listed),
    ]
    kinds = {**SHARED, "out": (out, None)}
    if not spec.is_resumable:
        kinds["resume"] = (ResumeWithoutEffect, False)
    if not spec.reads:
        del kinds["prompts"]
    shared = {
        name: inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default
        )
        for name, (kind, default) in kinds.items()
    }
    first = [shared.pop(name) for name in FIRST if name in shared]
    return [*first, *spec.parameters.values(), *shared.values()]
