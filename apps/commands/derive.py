"""Derives the options of a command from the signature and the docstring of an analysis.

A parameter of an analysis is one of three things:

    an input     ``model``, ``prompts``, ``clean``, ``corrupt``, …: taken from the model and prompts
    a setting    ``seed``, ``rows``, ``memory``, ``progress``, …: options that all commands share
    an option    with the parameter's name, the type of its annotation (a choice for a ``Literal``,
                 an option that may be repeated for a sequence), its default, and the first
                 sentence of its entry under ``Args:`` as help text

:class:`Option` says where an option differs from its parameter; :class:`Input` makes an input of a
parameter, or hides it. A parameter of another type, or with the name of a shared option such as
``top``, is left at its default.
"""

import inspect
import re
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

from apps.commands.options import SHARED
from apps.commands.readers import corpus_of, metric_of, prompts_of, with_dictionaries_of

if TYPE_CHECKING:
    from apps.commands.inputs import Inputs

SIMPLE = (bool, float, int, str, Path)
"""Types of options, the first of which is taken where an annotation has several."""
SEQUENCES = (abc.Sequence, abc.Collection, abc.Iterable, list, tuple)
NOT_GIVEN = inspect.Parameter.empty


@dataclass(frozen=True)
class Input:
    """A parameter that is no option.

    Attributes:
        read: its argument, from the inputs; ``None`` leaves the parameter at its default.
        fields: the fields of prompts that it reads.
    """

    read: "Callable[[Inputs], Any] | None" = None
    fields: tuple[str, ...] = ()


HIDDEN = Input()


@dataclass(frozen=True)
class Option:
    """How an option differs from the parameter that it sets.

    Attributes:
        name: its name in Python.
        kind: its type, one of :data:`SIMPLE` or a list of one.
        choices: its values, if they are a fixed list.
        default: its value if it is not given; ``None`` leaves the parameter at its default.
        help: the help text.
        shown: the text of ``--help`` for the default.
        min: the smallest number.
        read: the argument, from the inputs and the value, which is ``None`` if it is not given.
    """

    name: str | None = None
    kind: Any = None
    choices: tuple[str, ...] = ()
    default: Any = NOT_GIVEN
    help: str | None = None
    shown: str | None = None
    min: int | None = None
    read: "Callable[[Inputs, Any], Any] | None" = None


INPUTS: dict[str, Input] = {
    "inputs": Input(lambda inputs: inputs, ("text",)),
    "model": Input(lambda inputs: inputs.model),
    "prompts": Input(lambda inputs: inputs.batch, ("text",)),
    "prompt": Input(lambda inputs: inputs.texts[:1], ("text",)),
    "clean": Input(lambda inputs: inputs.pairs[0], ("text", "corrupt")),
    "corrupt": Input(lambda inputs: inputs.pairs[1], ("text", "corrupt")),
    "labels": Input(lambda inputs: inputs.labels, ("target",)),
    "target": Input(lambda inputs: inputs.tokens("target"), ("target",)),
    "distractor": Input(lambda inputs: inputs.distractors, ("distractor",)),
    "targets": Input(lambda inputs: inputs.targets, ("target",)),
    "distractors": Input(
        lambda inputs: None if inputs.targets is None else inputs.distractors, ("distractor",)
    ),
}
"""Parameters that are filled from the model and the prompts."""
RESERVED = {*SHARED, "debug", "help"}
"""Names that other options of every command have."""
OTHERS = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
SETTINGS = ("seed", "rows", "memory", "progress", "cancelled", "checkpoint", "resume")
"""Parameters that are filled from the options that all commands share; see ``Inputs.how``."""
METRICS = ("loss", "logit-diff", "kl")
OPTIONS: dict[str, Option] = {
    "metric": Option(
        choices=METRICS,
        default=None,
        help="Metric; kl is the divergence from the model's own prediction.",
        shown="that of the model's card, else loss",
        read=metric_of,
    ),
    "texts": Option(
        kind=str,
        default=None,
        help="A file of any size with one text per line (.jsonl: objects with a text; "
        ".csv, .parquet: a column text), the folder of a dataset or a harvest, or a bundled set.",
        shown="the model's own prompts",
        read=corpus_of,
    ),
    "reference": Option(
        kind=str,
        help="Prompts that means and resampled values come from: a file or a bundled set.",
        shown="the prompts themselves",
        read=prompts_of,
    ),
}
"""Parameters that mean the same in all analyses, and are given as something else."""
METRIC_OF_PAIRS = Option(
    choices=("logit-diff", "logit", "prob"),
    default="logit-diff",
    help="Metric; logit and prob are those of the target alone.",
    read=metric_of,
)
"""The metric of analyses of a clean prompt and its corrupted counterpart."""

DICTIONARIES = (
    "A dictionary whose features the model has: a folder, a hub:org/name, or a bundled one such as "
    "python-4l/mlp-0."
)
MODEL_WITH_DICTIONARIES = Option(
    "dictionary",
    kind=list[str],
    default=None,
    help=DICTIONARIES,
    shown="none",
    read=with_dictionaries_of,
)
"""The model of analyses that take features of dictionaries, which are options of the command."""


@dataclass(frozen=True)
class Derived:
    """What a command derives from its analysis.

    Attributes:
        function: the analysis.
        inputs: the inputs, by the parameters that they fill.
        options: the options, by the parameters that they set.
        parameters: the options as typer takes them, by their own names.
        settings: names of the settings that the analysis takes.
    """

    function: Callable[..., Any]
    inputs: dict[str, Input]
    options: dict[str, Option]
    parameters: dict[str, inspect.Parameter]
    settings: list[str] = field(default_factory=list[str])

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields of prompts that the analysis reads."""
        return tuple(
            dict.fromkeys(name for source in self.inputs.values() for name in source.fields)
        )

    @property
    def is_resumable(self) -> bool:
        """Whether the analysis can continue from a partial result."""
        return self.partial is not None

    @property
    def partial(self) -> type | None:
        """The class of the partial result that the analysis continues, which files can hold."""
        parameters = inspect.signature(self.function, eval_str=True).parameters
        if "resume" not in parameters or "cancelled" not in parameters:
            return None
        kinds = _members(parameters["resume"].annotation)
        saved = [kind for kind in kinds if hasattr(kind, "save") and hasattr(kind, "load")]
        return saved[0] if saved else None

    @property
    def has_separate_prompts(self) -> bool:
        """Whether it has a number for each prompt that need not depend on the other prompts."""
        from analyses.results import Result  # noqa: PLC0415 - imports torch

        returned = inspect.signature(self.function, eval_str=True).return_annotation
        is_result = isinstance(returned, type) and issubclass(returned, Result)
        return is_result and returned.separate_prompts is not Result.separate_prompts

    @property
    def saves_checkpoints(self) -> bool:
        """Whether the analysis gives its state while it runs, instead of when it is cancelled."""
        return "checkpoint" in self.settings

    def call(self, inputs: "Inputs", values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as it is
        """Call the analysis with the values of the options, by their own names."""
        arguments: dict[str, Any] = {
            name: source.read(inputs)
            for name, source in self.inputs.items()
            if source.read is not None
        }
        for name, option in self.options.items():
            value = values[option.name or name]
            value = value.value if isinstance(value, StrEnum) else value
            if option.read is not None:
                arguments[name] = option.read(inputs, value)
            elif value is not None and value != []:
                arguments[name] = value
        if "inputs" not in self.inputs:  # which passes its settings on
            others = {*inspect.signature(self.function).parameters} - {*self.settings}
            how = inputs.how_resumable if self.is_resumable else inputs.how
            arguments |= how(self.function, *others)
        return self.function(**arguments)


def derive(function: Callable[..., Any], differs: Mapping[str, Option | Input]) -> Derived:
    """Derive the options of an analysis.

    Args:
        function: the analysis.
        differs: what differs from the signature and the docstring, by the parameter; these options
            come first, in this order.

    Raises:
        InvalidInput: a parameter without a default can't be given on the command line.
    """
    signature = inspect.signature(function, eval_str=True)
    texts = help_texts(inspect.getdoc(function) or "")
    derived = Derived(function, {}, {}, {})
    for name in {**differs, **signature.parameters}:
        parameter = signature.parameters[name]
        if name in SETTINGS and name not in differs:
            derived.settings.append(name)
            continue
        option = differs.get(name) or _usual(name, signature)
        if isinstance(option, Input):
            derived.inputs[name] = option
            continue
        name_of_option, kind = option.name or name, _kind(parameter.annotation, option)
        if kind is not None and name_of_option not in RESERVED:
            derived.options[name] = option
            derived.parameters[name_of_option] = inspect.Parameter(
                name_of_option,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default(parameter, option, kind),
                annotation=_annotation(parameter, option, kind, texts.get(name, "")),
            )
        elif parameter.default is NOT_GIVEN and parameter.kind not in OTHERS:
            raise _not_an_option(function, parameter)
    return derived


def help_texts(docstring: str) -> dict[str, str]:
    """The first sentence of each entry below ``Args:``, by its name, without markup."""
    entries = docstring.partition("\nArgs:\n")[2].split("\n\n")[0]
    parsed = re.findall(r"^ {4}(\w+)(?: \([^)]*\))?: (.*(?:\n {5,}.*)*)", entries, re.MULTILINE)
    return {name: _first_sentence(text) for name, text in parsed}


def _first_sentence(text: str) -> str:
    plain = re.sub(r":\w+:`~?([^`]+)`", r"\1", " ".join(text.split())).replace("`", "")
    sentence = re.split(r"(?<!e\.g)(?<!i\.e)\. (?=[^a-z])", plain)[0].rstrip(".")
    is_code = text.startswith(("`", '"'))
    return f"{sentence if is_code else sentence[:1].upper() + sentence[1:]}."


def _usual(name: str, signature: inspect.Signature) -> Option | Input:
    """What a parameter of this name is in any analysis."""
    if name == "metric" and "corrupt" in signature.parameters:
        return METRIC_OF_PAIRS
    return INPUTS.get(name) or OPTIONS.get(name) or Option()


def _members(annotation: Any) -> list[Any]:  # noqa: ANN401 - a type, or a form of typing
    """The types that a union is made of, without ``None``; a type that is no union by itself."""
    is_union = get_origin(annotation) in {Union, UnionType}
    members = get_args(annotation) if is_union else (annotation,)
    return [member for member in members if member is not type(None)]


def _kind(annotation: Any, option: Option) -> Any:  # noqa: ANN401 - a type, or a form of typing
    """The type of an option: a simple one, an enumeration, or a list; ``None`` if there is none."""
    if option.choices:
        return _enumeration(option.choices)
    if option.kind is not None:
        return option.kind
    members = _members(annotation)
    for sequence in members:
        if get_origin(sequence) in SEQUENCES:
            element = _simple([part for arg in get_args(sequence) for part in _members(arg)])
            if element is not None:
                return list[element]
    return _simple(members)


def _simple(members: list[Any]) -> Any:  # noqa: ANN401 - a type
    """The first type that can be an option, or an enumeration of the values of a literal."""
    for kind in SIMPLE:
        if kind in members:
            return kind
    choices = [
        value for member in members if get_origin(member) is Literal for value in get_args(member)
    ]
    is_text = choices and all(isinstance(value, str) for value in choices)
    return _enumeration(tuple(choices)) if is_text else None


def _enumeration(choices: tuple[str, ...]) -> Any:  # noqa: ANN401 - a type, made by a call
    return StrEnum("Choice", {f"VALUE_{n}": choice for n, choice in enumerate(choices)})


def _is_list(kind: Any) -> bool:  # noqa: ANN401 - a type
    return get_origin(kind) is list


def _default(parameter: inspect.Parameter, option: Option, kind: Any) -> Any:  # noqa: ANN401
    """The default of an option; that of a list is left to the analysis."""
    default = parameter.default if option.default is NOT_GIVEN else option.default
    if default is None or default is NOT_GIVEN:
        return default
    if _is_list(kind):
        return None
    return kind(default) if issubclass(kind, StrEnum) else default


def _annotation(parameter: inspect.Parameter, option: Option, kind: Any, text: str) -> Any:  # noqa: ANN401
    """The type of an option with its name, help text and the text of its default."""
    name, default, default_text = option.name or parameter.name, parameter.default, option.shown
    text = option.help or text
    if _is_list(kind):
        text = f"{text.rstrip('.')}; may be repeated."
        if default_text is None and isinstance(default, abc.Sequence):
            values = [default] if isinstance(default, str) else default
            default_text = ", ".join(map(str, values)) or "none"
    flag = f"--{name.replace('_', '-')}"
    names = [f"{flag}/--no-{flag[2:]}" if default is True else flag] if kind is bool else [flag]
    accepted = kind if _default(parameter, option, kind) is not None else kind | None
    return Annotated[
        accepted, typer.Option(*names, help=text, show_default=default_text or True, min=option.min)
    ]


def _not_an_option(function: Callable[..., Any], parameter: inspect.Parameter) -> Exception:
    """The error about a parameter that is no option and has no default."""
    from interp.errors import InvalidInput  # noqa: PLC0415

    return InvalidInput(
        f"{function.__name__} can't be a command: its parameter {parameter} can't be given as an "
        "option. Give it a default, or another name than that of a shared option and one of the "
        "types bool, int, float, str, Path, a Literal of texts, or a sequence of these."
    )
