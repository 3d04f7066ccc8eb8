"""How an analysis becomes a command: the options that all have, and what is done around it.

A command is a function of its inputs and of its own options, and returns a result:

    @analysis_command("Reading each layer")
    def lens(inputs: "Inputs", *, at: ...) -> "Result":
        '''Read a prediction from the stream after each layer.'''

:func:`analysis_command` adds the options that all commands have. What it makes loads the model,
reads the prompts, shows progress, writes the folder and prints a table and a conclusion. Modules
with commands import torch, pandas and plotly inside the functions only.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.commands.options import SHARED

if TYPE_CHECKING:
    from analyses.result import Result

QUESTION = "question"
"""The attribute of a command that holds what it asks."""
FIRST = ("model", "prompts")
"""The shared options that ``--help`` lists before a command's own."""


@dataclass(frozen=True)
class Question:
    """What a command asks.

    Attributes:
        name: of the command, as it is typed.
        analysis: the function of its inputs and its own options.
        label: what is being done, beside the progress; ``{name}`` stands for an option.
        folder: the default output folder below ``reports``; ``{name}`` stands for an option, the
            ``command`` or the ``model``. Names that are given for other options, such as ``--part
            v``, are appended.
        reads: the fields of prompts that are read.
    """

    name: str
    analysis: Callable[..., "Result"]
    label: str
    folder: str
    reads: tuple[str, ...]

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """Its own options, by their Python names."""
        own = list(inspect.signature(self.analysis).parameters.values())[1:]
        return {one.name: one for one in own}

    def options(self, model: str, given: dict[str, Any]) -> dict[str, Any]:
        """Its own options, with defaults where none is given; of a metric, that of the card."""
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


def question_of(command: Callable[..., None]) -> Question:
    """What a command that :func:`analysis_command` made asks."""
    return vars(command)[QUESTION]


def parsed(command: Callable[..., None], words: Sequence[str], where: str) -> dict[str, Any]:
    """All options of a command, by their Python names, from words of a command line.

    Args:
        command: that :func:`analysis_command` made.
        words: the options, such as ``["--method", "zero"]``.
        where: where they stand, for the message.

    Raises:
        InvalidInput: they are not its options.
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
    label: str, *, folder: str = "{model}-{command}", reads: tuple[str, ...] = ("text",)
) -> Callable[[Callable[..., "Result"]], Callable[..., None]]:
    """The command that runs an analysis: the function with the options that all commands have.

    Args:
        label: as of :class:`Question`.
        folder: likewise.
        reads: the fields of prompts that the analysis reads; none if it reads no prompts. A logit
            difference reads target and distractor in any case. With ``corrupt``, the default are
            the model's minimal pairs.
    """

    def decorate(analysis: Callable[..., "Result"]) -> Callable[..., None]:
        question = Question(name_of(analysis), analysis, label, folder, reads)

        def command(**options: Any) -> None:  # noqa: ANN401 - as the command line gives them
            from apps.commands.carry_out import carry_out  # noqa: PLC0415

            shared = {name: options.pop(name) for name in SHARED if name in options}
            carry_out(question, shared, options)

        parameters = _with_shared_options(question)
        vars(command)["__signature__"] = inspect.Signature(parameters)
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        command.__name__, command.__doc__ = analysis.__name__, analysis.__doc__
        vars(command)[QUESTION] = question
        return command

    return decorate


def name_of(analysis: Callable[..., object]) -> str:
    """The name of a command, as it is typed."""
    return analysis.__name__.replace("_", "-")


def _with_shared_options(question: Question) -> list[inspect.Parameter]:
    """The parameters of a command: its own between those that all have."""
    place = question.folder.replace("{command}", question.name)
    listed = "reports/" + re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), place)
    out = Annotated[
        Path | None,
        typer.Option(help="Output folder, created if missing.", show_default=listed),
    ]
    kinds = {**SHARED, "out": (out, None)}
    if not question.reads:
        del kinds["prompts"]
    shared = {
        name: inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default
        )
        for name, (kind, default) in kinds.items()
    }
    first = [shared.pop(name) for name in FIRST if name in shared]
    return [*first, *question.parameters.values(), *shared.values()]
