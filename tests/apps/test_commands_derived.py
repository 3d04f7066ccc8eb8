"""A command's options come from the signature and the docstring of its analysis."""

import inspect
from collections.abc import Sequence
from typing import Literal

import pytest
from declared import declared_as
from torch import Tensor

from apps.commands import COMMANDS
from apps.commands.derive import Input, Option, derive
from interp import Sweep, Transformer
from interp.errors import InvalidInput


def test_commands_have_the_options_that_saved_runs_were_made_with():
    specs = {spec.name: spec for spec in COMMANDS}
    for command in declared_as("command").values():
        parameters = specs[command.name].parameters
        options = {f"{name}={parameter.default}" for name, parameter in parameters.items()}
        assert options == {*command.options.split()}, command.name


def test_every_option_has_a_help_text():
    for spec in COMMANDS:
        for name, parameter in spec.parameters.items():
            text = parameter.annotation.__metadata__[0].help
            assert text.endswith("."), (spec.name, name)
            assert "``" not in text, (spec.name, name)


def example(
    model: Transformer,
    prompts: object,
    *,
    layer: int,
    at: str | Sequence[str] = "resid_post",
    way: Literal["up", "down"] = "up",
    is_signed: bool = False,
    scale: float | int | None = None,
    mask: Tensor | None = None,
    digit: Literal[1, 2] = 1,
    top: int = 5,
    seed: int = 0,
    cancelled: object = None,
    resume: Sweep | None = None,
    **others: object,
) -> tuple[object, ...]:
    """Give back what it was called with.

    Args:
        model: the model.
        prompts: texts.
        layer: a layer; negative values count from the end. Or so.
        at: what is read, as in :func:`~analyses.probe`,
            e.g. ``L0`` or ``z``. More on this.
        way: ``up`` or ``down``.
        is_signed (bool): whether signs count.
        scale: a factor.

    Returns:
        layer: not a parameter.
    """
    return (
        prompts,
        layer,
        at,
        way,
        is_signed,
        scale,
        mask,
        digit,
        top,
        seed,
        cancelled,
        resume,
        others,
    )


def test_an_option_has_the_name_type_default_and_help_of_its_parameter():
    derived = derive(example, {"scale": Option("factor", min=1)})
    options = derived.parameters
    assert [*options] == ["factor", "layer", "at", "way", "is_signed"]
    kinds = {name: parameter.annotation.__origin__ for name, parameter in options.items()}
    assert (kinds["layer"], kinds["at"]) == (int, list[str] | None)
    assert (kinds["factor"], kinds["is_signed"]) == (float | None, bool)
    assert [*kinds["way"]] == ["up", "down"]
    assert options["layer"].default is inspect.Parameter.empty
    assert (options["at"].default, options["way"].default) == (None, "up")
    assert {
        name: parameter.annotation.__metadata__[0].help for name, parameter in options.items()
    } == {
        "factor": "A factor.",
        "layer": "A layer; negative values count from the end.",
        "at": "What is read, as in analyses.probe, e.g. L0 or z; may be repeated.",
        "way": "up or down.",
        "is_signed": "Whether signs count.",
    }
    assert options["at"].annotation.__metadata__[0].show_default == "resid_post"
    assert options["factor"].annotation.__metadata__[0].min == 1
    assert derived.reads == ("text",)
    assert derived.settings == ["seed", "cancelled", "resume"]
    assert derived.is_resumable


def test_a_parameter_that_is_no_option_needs_a_default():
    def needs(model: Transformer, mask: Tensor) -> None: ...

    def takes_a_name_that_all_commands_have(model: Transformer, device: int) -> None: ...

    with pytest.raises(InvalidInput, match=r"its parameter mask: torch\.Tensor can't be given"):
        derive(needs, {})
    with pytest.raises(InvalidInput, match=r"another name than that of a shared option"):
        derive(takes_a_name_that_all_commands_have, {})
    assert not derive(needs, {"mask": Input(lambda _: None)}).parameters
