"""Every analysis, given settings that mean nothing: each must be refused by name, before any run.

Run as a program, it prints a line for each call that is not. It is a program of its own because the
tests check annotations: there, an odd setting never reaches a function that is annotated.
"""

import sys
from collections.abc import Iterator
from inspect import Parameter, signature
from typing import Any, NoReturn

from settings_asked import ASKED, EMPTY, Asked

import analyses
from interp import InterpError
from interp.model.network import Network

PROMPTS = ("prompts", "prompt", "texts", "clean", "corrupt")
NAMED = {"of": " no ", "model_a": "model", "model_b": "model", "new_tokens": "new"}
"""What an error calls a setting, where it is not the name itself, without a plural's s."""
OTHERS = {*PROMPTS, "model", "reference", "held_out", "scores", "progress", "cancelled"}
"""Arguments that are no settings."""


class HasRun(Exception):
    """The model was run."""


def stream(*_: Any, **settings: Any) -> NoReturn:
    """In place of any forward."""
    raise HasRun


def failures(asked: Asked) -> Iterator[str]:
    """What an analysis does otherwise than expected."""
    analysis = asked.analysis.__name__
    parameters = signature(asked.analysis).parameters
    settings = set(parameters) - OTHERS
    if settings != set(asked.odd):
        yield f"{analysis}: asked of {sorted(asked.odd)}, but it has {sorted(settings)}"
    if asked.runs != has_run(asked):
        yield f"{analysis} {'does not run' if asked.runs else 'runs'} the model"
    for name, values in asked.odd.items():
        for odd in values:
            yield from taken(asked, name, odd, NAMED.get(name, name.removesuffix("s")))
    for name in sorted(set(parameters).intersection(PROMPTS)):
        for empty in EMPTY if parameters[name].default is Parameter.empty else EMPTY[1:]:
            yield from taken(asked, name, empty, "")


def has_run(asked: Asked) -> bool:
    """Whether an analysis runs the model, if its settings mean something."""
    try:
        asked()
    except HasRun:
        return True
    return False


def taken(asked: Asked, name: str, odd: object, named: str) -> Iterator[str]:
    """What is wrong about the error of a value that means nothing, in which ``named`` stands."""
    call = f"{asked.analysis.__name__}({name}={odd!r})"
    try:
        asked(**{name: odd})
        yield f"{call} is taken"
    except InterpError as error:
        if named not in str(error).lower():
            yield f"{call} does not name the setting: {error}"
    except Exception as error:
        yield f"{call}: {type(error).__name__}: {error}"


def forgotten() -> Iterator[str]:
    """Public analyses that are asked nothing."""
    asked = {entry.analysis.__name__ for entry in ASKED}
    for name in analyses.available():
        if name not in asked:
            yield f"{name} is not listed in settings_asked.py"


if __name__ == "__main__":
    Network.stream = stream
    lines = [*forgotten(), *(line for asked in ASKED for line in failures(asked))]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
