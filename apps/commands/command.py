"""A command of an analysis: options from its signature and docstring, a table and a conclusion.

The command loads the model, reads the prompts, shows progress, writes the output folder and
prints a table and a conclusion. An analysis is imported only when its command is used, since that
takes seconds.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.commands.derive import Derived, Input, Option, derive
from apps.commands.options import FURTHER, SHARED, SWEEPING, ResumeParts, ResumeWithoutEffect

if TYPE_CHECKING:
    from analyses.results import Result
    from apps.commands.inputs import Inputs

Label = str | Callable[[Mapping[str, Any]], str]
CarryOut = Callable[["CommandSpec", dict[str, Any], dict[str, Any]], None]
FIRST = ("model", "prompts")
"""The shared options that ``--help`` lists before a command's own."""


@dataclass(frozen=True, eq=False)
class CommandSpec:
    """The analysis that a command runs, and how it is presented.

    Attributes:
        name: the name of the command, as typed.
        entry: where its function is.
        help: what it does, whose first sentence is in ``interp --help``; ``None`` is the docstring
            of its function.
        label: text beside the progress bar; ``{name}`` stands for the value of an option. Or a
            function of the options, for what they cost.
        differs: where options differ from the parameters of the function, by the parameter.
        folder: the default output folder below ``reports``; ``{name}`` stands for an option, the
            ``command`` or the ``model``. Values from a fixed list that differ from the default,
            such as ``--part v``, are appended.
        fields: the fields of prompts that the analysis reads, empty if it reads none; ``None``:
            those of its parameters. With ``corrupt``, prompts default to the model's minimal pairs.
        keeps_partial_results: whether ``--resume`` continues it, although its function has no
            parameter ``resume``.
        also_writes: options with further folders that it writes, such as ``site``.
        passes_over_texts: whether it runs no sweep, but a pass whose forwards workers can run.
    """

    name: str
    entry: EntryPoint
    help: str | None
    label: Label
    differs: Mapping[str, Option | Input] = field(default_factory=dict[str, Option | Input])
    folder: str = "{model}-{command}"
    fields: tuple[str, ...] | None = None
    keeps_partial_results: bool = False
    also_writes: tuple[str, ...] = ()
    passes_over_texts: bool = False

    @cached_property
    def derived(self) -> Derived:
        """The analysis with its options.

        Raises:
            InvalidInput: the analysis is that of another distribution, and can't be used.
        """
        from interp.errors import InvalidInput, first_line  # noqa: PLC0415

        try:
            return derive(self.entry.load(), self.differs)
        except InvalidInput:
            raise
        except Exception as error:
            if self.entry.dist is None:
                raise
            raise InvalidInput(
                f"{self.name}: the analysis {self.entry.value} of {self.entry.dist.name} can't be "
                f"used: {type(error).__name__}: {first_line(error).rstrip('.')}."
            ) from error

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields of prompts that the analysis reads."""
        return self.derived.reads if self.fields is None else self.fields

    @property
    def is_resumable(self) -> bool:
        """Whether partial results are kept, which ``--resume`` continues."""
        return self.keeps_partial_results or self.derived.is_resumable

    @property
    def uses_workers(self) -> bool:
        """Whether it runs sweeps or a pass over texts, whose forwards an executor can run."""
        sweeps = self.keeps_partial_results or "memory" in self.derived.settings
        return sweeps or self.passes_over_texts

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The command's own options, by their Python names."""
        return self.derived.parameters

    def analysis(self, inputs: "Inputs", **options: Any) -> "Result":  # noqa: ANN401 - as parsed
        """Run the analysis with the values of the command's own options.

        Raises:
            InvalidInput: what it returns is no result, or has no provenance.
        """
        from analyses.results import Result  # noqa: PLC0415
        from interp.errors import InvalidInput  # noqa: PLC0415
        from interp.execution import Provenance  # noqa: PLC0415

        result = self.derived.call(inputs, options)
        if not isinstance(result, Result):
            raise InvalidInput(
                f"{self.name}: {self.entry.value} should return an analyses.results.Result, got a "
                f"{type(result).__name__}."
            )
        if not isinstance(getattr(result, "provenance", None), Provenance):
            raise InvalidInput(
                f"{self.name}: the {type(result).__name__} of {self.entry.value} needs a field "
                "provenance, an interp.execution.Provenance."
            )
        return result

    def options(self, model: str, chosen: dict[str, Any]) -> dict[str, Any]:
        """The values of the command's own options, with defaults for those not given.

        The default of a metric is that of the model's card.

        Raises:
            InvalidInput: an option without a default is not given.
        """
        from apps.defaults import default_metric  # noqa: PLC0415
        from interp.errors import InvalidInput  # noqa: PLC0415

        options = {name: parameter.default for name, parameter in self.parameters.items()} | chosen
        for name, value in options.items():
            if value is inspect.Parameter.empty:
                raise InvalidInput(f"{self.name} needs --{name.replace('_', '-')}.")
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

    def function(self, carry_out: CarryOut) -> Callable[..., None]:
        """The function of all options that typer makes the command of.

        Args:
            carry_out: runs the command, given the shared options and its own.

        Raises:
            InvalidInput: as for :attr:`derived`.
        """

        def command(**options: Any) -> None:  # noqa: ANN401 - as the command line gives them
            shared = {name: options.pop(name) for name in SHARED if name in options}
            carry_out(self, shared, options)

        self._sign(command)
        docstring = inspect.getdoc(self.derived.function) or self.name
        command.__doc__ = self.help or docstring.split("\n\n")[0]
        return command

    def parse(self, words: Sequence[str], where: str) -> dict[str, Any]:
        """Parse the words of a command line into all options, by their Python names.

        Args:
            words: the options, such as ``["--method", "zero"]``.
            where: the place that they come from, for the error message.

        Raises:
            InvalidInput: the words are not valid options of the command.
        """
        from interp.errors import InvalidInput  # noqa: PLC0415

        values: dict[str, Any] = {}

        def take(**options: Any) -> None:  # noqa: ANN401 - as the command line gives them
            values.update(options)

        self._sign(take)
        app = typer.Typer(add_completion=False)
        app.command()(take)
        try:
            app(args=[*words], standalone_mode=False)
        except Exception as error:
            message = getattr(error, "format_message", None)  # click's, which typer may bring along
            if message is None:
                raise
            raise InvalidInput(f"{where}: {message()}") from error
        return values

    def _sign(self, function: Callable[..., None]) -> None:
        """Give a function the signature of the command: its own options between the shared ones."""
        place = self.folder.replace("{command}", self.name)
        listed = "reports/" + re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), place)
        out = Annotated[
            Path | None,
            typer.Option(help="Output folder, created if missing.", show_default=listed),
        ]
        kinds = {**SHARED, "out": (out, None)}
        if not self.is_resumable:
            in_parts = self.derived.has_separate_prompts
            kinds["resume"] = (ResumeParts if in_parts else ResumeWithoutEffect, False)
        if not self.reads:
            del kinds["prompts"]
        if not self.derived.has_separate_prompts:
            del kinds["per_prompt"]
        for name in {*FURTHER} - {*self.also_writes} | (
            {*SWEEPING} if not self.uses_workers else set()
        ):
            del kinds[name]
        shared = {
            name: inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default
            )
            for name, (kind, default) in kinds.items()
        }
        first = [shared.pop(name) for name in FIRST if name in shared]
        parameters = [*first, *self.parameters.values(), *shared.values()]
        vars(function)["__signature__"] = inspect.Signature(parameters)
        function.__annotations__ = {
            parameter.name: parameter.annotation for parameter in parameters
        }
