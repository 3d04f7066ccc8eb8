"""Checks the annotations of every function of the packages while tests run, at little cost.

jaxtyping's import hook decorates every function with :func:`jaxtyping.jaxtyped`, which binds the
arguments, checks them, calls the function, and checks arguments and result once more. The same
holds, in a third of the time, if beartype checks each argument and the result once: within a
context of its own where axes are annotated, and alone where none are. Checking axes takes as long
as the work on small tensors: of a function that has them, or may have them since an annotation is a
string, calls 1, 4, 16, 64, … of each test are checked.
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from inspect import isclass, isfunction, isgeneratorfunction
from types import CodeType
from typing import Any, ForwardRef, get_args

import jaxtyping
from beartype import BeartypeConf, beartype

EVERYTHING = jaxtyping.jaxtyped
"""jaxtyping's own decorator."""
BY_BEARTYPE = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))
"""Raises what jaxtyping raises: a TypeError."""
CALLS_CHECKED = frozenset(4**n for n in range(16))
"""Of a function that has axes or may have them, in each test: by number, from 1."""
calls: Counter[Callable[..., Any]] = Counter()
"""In the test that runs."""
INNER_CALLS_CHECKED = 10
"""Of a function within a function, which is decorated anew whenever the outer one is called."""
inner_calls: Counter[CodeType] = Counter()


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
    if not isfunction(what):
        return EVERYTHING(what, typechecker=typechecker)
    if "<locals>" in what.__qualname__:
        return _checked_inner_function(what, typechecker)
    return _checked_function(what, typechecker)


def _checked_function(function: Callable[..., Any], typechecker: Any) -> Callable[..., Any]:
    if isgeneratorfunction(function):
        return EVERYTHING(function, typechecker=typechecker)
    try:
        axes = [has_axes(hint) for hint in function.__annotations__.values()]
    except Unresolved:
        return _checked_at_first(function, EVERYTHING(function, typechecker=typechecker))
    inner = BY_BEARTYPE(function)
    if not any(axes):
        return inner

    def in_context(*args: Any, **kwargs: Any) -> Any:
        with EVERYTHING("context"):
            return inner(*args, **kwargs)

    return _checked_at_first(function, in_context)


def _checked_at_first(
    function: Callable[..., Any], checking: Callable[..., Any]
) -> Callable[..., Any]:
    @wraps(function)
    def first_calls(*args: Any, **kwargs: Any) -> Any:
        calls[function] += 1
        return (checking if calls[function] in CALLS_CHECKED else function)(*args, **kwargs)

    return first_calls


def _checked_inner_function(function: Callable[..., Any], typechecker: Any) -> Callable[..., Any]:
    code = function.__code__
    if inner_calls[code] >= INNER_CALLS_CHECKED:
        return function

    @wraps(function)
    def first_calls(*args: Any, **kwargs: Any) -> Any:
        inner_calls[code] += 1
        # At the end of the process, what is called for objects that are freed can't be checked.
        if sys.is_finalizing() or inner_calls[code] > INNER_CALLS_CHECKED:
            return function(*args, **kwargs)
        return _checked_function(function, typechecker)(*args, **kwargs)

    return first_calls
