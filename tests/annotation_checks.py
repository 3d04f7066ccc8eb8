"""Checks the annotations of every function of the packages while tests run, at little cost.

jaxtyping's import hook decorates every function with :func:`jaxtyping.jaxtyped`, which binds the
arguments, checks them, calls the function, and checks arguments and result once more. Where no
axis is annotated there are no axes to compare, and beartype alone checks the same; where one is,
beartype around the function checks each argument and the result once. Half of the time of a run
of the tests is saved.
"""

from collections.abc import Callable
from dataclasses import is_dataclass
from inspect import isclass, isfunction, isgeneratorfunction
from typing import Any, ForwardRef, get_args

import jaxtyping
from beartype import beartype

EVERYTHING = jaxtyping.jaxtyped
"""jaxtyping's own decorator."""


class Unresolved(Exception):
    """An annotation is a string: what it means is not known yet."""


def has_axes(hint: object) -> bool:
    """Whether a shape is part of an annotation: itself, or any of its arguments."""
    if isinstance(hint, str | ForwardRef):
        raise Unresolved
    if isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    parts = hint if isinstance(hint, list | tuple) else get_args(hint)
    return any(has_axes(part) for part in parts)


def checked(what: Any = None, *, typechecker: Any) -> Any:
    """What the import hook decorates functions and classes with, in place of ``jaxtyped``."""
    if what is None:
        return lambda what: checked(what, typechecker=typechecker)
    if isclass(what) and is_dataclass(what):
        what.__init__ = checked(what.__init__, typechecker=typechecker)
        return what
    if not isfunction(what) or isgeneratorfunction(what):
        return EVERYTHING(what, typechecker=typechecker)
    return _checked_function(what, typechecker)


def _checked_function(function: Callable[..., Any], typechecker: Any) -> Callable[..., Any]:
    try:
        axes = [has_axes(hint) for hint in function.__annotations__.values()]
    except Unresolved:
        return EVERYTHING(function, typechecker=typechecker)
    if any(axes):
        return EVERYTHING(beartype(function), typechecker=None)
    return beartype(function)
