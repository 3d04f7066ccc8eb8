"""The group of all commands, in which those of analyses have no options until they are used."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from apps.commands import find_command, plug_ins, summary
from apps.commands.command import CommandSpec
from apps.failures import errors_as_exit_codes, reports_errors

TOPICS = {
    "What does the model predict?": ("predict", "continue", "lens", "train-lens"),
    "What does a head attend to?": (
        *("patterns", "roles", "census", "heads", "scores", "qk-covariance", "top-texts"),
    ),
    "Which part writes the answer?": ("dla", "head-effects", "neurons"),
    "Which part does the answer need?": ("ablate", "patch", "nodes"),
    "Which edges carry it?": ("trace", "graph", "paths", "attribute", "prune", "explain"),
    "What do weights alone say?": ("circuits", "positions", "frequencies"),
    "Does order matter?": ("order", "covariance"),
    "What can be read from activations, and what does it change?": ("probe", "erase", "steer"),
    "What do dictionaries explain?": ("harvest", "train-dictionary", "check-dictionaries"),
    "What differs between models?": ("compare",),
    "Models, prompts and results": (
        *("models", "prompts", "explore", "report", "repeat", "convert", "verify", "doctor"),
    ),
}
"""The commands by what one wants to know, as ``interp --help`` lists them."""
OTHERS = "Others"
"""The title of commands of other distributions."""
LONGEST_HELP = 300
"""Number of characters up to which the first sentence of a command's help is shown."""


class Commands(TyperGroup):
    """Derives the options of an analysis when its command is used, and not when it is listed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - click's, or typer's copy of it
        """The names of all commands; those of plug-ins are last."""
        self._add_plug_ins()
        return super().list_commands(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - likewise
        """Write all commands by topic, each with the whole first sentence of its help."""
        others = {*self.list_commands(ctx)}.difference(*TOPICS.values())
        for topic, names in {**TOPICS, OTHERS: sorted(others)}.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            if commands:
                formatter.write_paragraph()
                formatter.write_text(topic)
                with formatter.indentation():
                    formatter.write_dl(
                        [(name, each.get_short_help_str(LONGEST_HELP)) for name, each in commands]
                    )

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - likewise
        """The command of a name, without the options of an analysis."""
        if cmd_name not in self.commands:
            self._add_plug_ins()
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - likewise
        """The command that the words call, with its options, and the words that follow."""
        name, command, rest = super().resolve_command(ctx, args)
        with errors_as_exit_codes(debug=ctx.params.get("debug", False)):
            analysis = find_command(str(name))
            if analysis is not None:
                command = _command(analysis.name, reports_errors(analysis.function(_carry_out)))
        return name, command, rest

    def _add_plug_ins(self) -> None:
        for name, plug_in in plug_ins().items():
            self.add_command(_command(name, lambda: None, summary(plug_in)), name)


def _command(name: str, function: Callable[..., None], text: str | None = None) -> Any:  # noqa: ANN401
    """The command of a function, as a group has it."""
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, help=text)(function)
    return typer.main.get_command(single)


def _carry_out(command: CommandSpec, shared: dict[str, Any], options: dict[str, Any]) -> None:
    """Run a command; what it needs is imported when it runs."""
    from apps.commands.carry_out import carry_out  # noqa: PLC0415

    carry_out(command, shared, options)
