"""Every analysis, given settings that mean nothing: each must be refused by name, before any run.

Run as a program, it prints a line for each call that is not. It is a program of its own because the
tests check annotations: there, an odd setting never reaches a function that is annotated.
"""

import sys
from collections.abc import Iterator
from inspect import Parameter, signature
from typing import Any, NoReturn

from declared import Declared, declarations, odd

from interp import InterpError
from interp.model.network import Network

PROMPTS = ("prompts", "prompt", "texts", "clean", "corrupt")
NAMED = {"of": " no ", "model_a": "model", "model_b": "model", "new_tokens": "new"}
"""What an error calls a setting, where it is not the name itself, without a plural's s."""
OTHERS = {*PROMPTS, "model", "reference", "held_out", "scores"}
OTHERS |= {"progress", "cancelled", "checkpoint"}
"""Arguments that are no settings: prompts and models, and functions that are called."""


class HasRun(Exception):
    """The model was run."""


def stream(*_: Any, **settings: Any) -> NoReturn:
    """In place of any forward."""
    raise HasRun


def failures(declared: Declared) -> Iterator[str]:
    """What an analysis does otherwise than declared."""
    call = declared.call
    parameters = signature(declared.analysis).parameters
    settings = set(parameters) - OTHERS
    if settings != set(call.odd):
        yield f"{declared.name}: odd= has {sorted(call.odd)}, its settings are {sorted(settings)}"
    if call.runs != has_run(declared):
        yield f"{declared.name} {'does not run' if call.runs else 'runs'} the model"
    for name, values in call.odd.items():
        for value in values:
            yield from taken(declared, name, value, NAMED.get(name, name.removesuffix("s")))
    for name in sorted(set(parameters).intersection(PROMPTS)):
        optional = parameters[name].default is not Parameter.empty
        for value in odd.PROMPTS[1:] if optional else odd.PROMPTS:
            yield from taken(declared, name, value, "")


def has_run(declared: Declared) -> bool:
    """Whether an analysis runs the model, if its settings mean something."""
    try:
        declared.result_of_call()
    except HasRun:
        return True
    return False


def taken(declared: Declared, name: str, value: object, named: str) -> Iterator[str]:
    """What is wrong about the error of a value that means nothing, in which ``named`` stands."""
    call = f"{declared.name}({name}={value!r})"
    try:
        declared.result_of_call(**{name: value})
        yield f"{call} is taken"
    except InterpError as error:
        if named not in str(error).lower():
            yield f"{call} does not name the setting: {error}"
    except Exception as error:
        yield f"{call}: {type(error).__name__}: {error}"


if __name__ == "__main__":
    Network.stream = stream
    lines = [line for declared in declarations().values() for line in failures(declared)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
