"""A command's options come from the signature and the docstring of its analysis."""

import inspect
from collections.abc import Sequence
from typing import Literal

import pytest
from torch import Tensor

from apps.commands import COMMANDS
from apps.commands.derive import Input, Option, derive
from interp import Sweep, Transformer
from interp.errors import InvalidInput

OPTIONS = {
    "predict": "pos=None likeliest=10 ablate=None method=mean reference=None",
    "patterns": "offsets=8 classes=None attention=None",
    "roles": "half=None sequences=32 repeats=2 first_mlp=False",
    "ablate": "units=heads metric=None method=mean part=z layers=None reference=None "
    "per_position=False",
    "patch": "at=resid_pre over=layer-pos direction=denoise metric=logit-diff",
    "paths": "into=None method=resample mode=edge metric=logit-diff",
    "attribute": "method=conductance metric=logit-diff steps=None tolerance=None check=64",
    "nodes": "method=atp-star metric=logit-diff positions=False check=64",
    "prune": "scores=conductance rank=size method=resample metric=logit-diff heldout=None",
    "explain": "metric=logit-diff most=64",
    "dla": "by=head",
    "head-effects": "head=None method=mean",
    "lens": "at=None norm=recomputed lens=None",
    "train-lens": "steps=250 batch=4 tokens=None lr=0.003 held_out=None",
    "circuits": "ov=None qk=None token=None offset=None first_mlp=False",
    "positions": "longest=256",
    "frequencies": "pos=-1",
    "probe": "at=None pos=-1 kind=ridge folds=5",
    "erase": "metric=None at=None pos=-1 method=leace",
    "covariance": "",
    "order": "permutation=None scope=whole draws=4",
    "top-texts": "of=L0H0 texts=None by=None end=highest bos=False",
    "compare": "other=None analysis=ablate metric=None",
    "neurons": "layer=0 neuron=None stack=None texts=None ablate=32 method=mean bos=False",
    "steer": "layer=-1 at=resid_pre strength=None new_tokens=20 temperature=0.0",
}
"""The options of each command with their defaults, which saved runs and scripts rely on."""


def test_commands_have_the_options_that_saved_runs_were_made_with():
    specs = {spec.name: spec for spec in COMMANDS}
    for command, recorded in OPTIONS.items():
        options = {
            f"{name}={parameter.default}" for name, parameter in specs[command].parameters.items()
        }
        assert options == {*recorded.split()}, command


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
