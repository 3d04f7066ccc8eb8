"""Checks the annotations of every function of the packages while tests run, at little cost.

jaxtyping's import hook decorates every function with :func:`jaxtyping.jaxtyped`, which binds the
arguments, checks them, calls the function, and checks arguments and result once more. The same
holds, in a third of the time, if beartype checks each argument and the result once: within a
context of its own where axes are annotated, and alone where none are. A check takes as long as the
work on small tensors: calls 1, 16, 256, … of each function in each test are checked, and by
``make nightly`` calls 1, 4, 16, … What checks a function is made at its first call: many functions
are not called in a process, and an annotation that is a string may name what is defined after it.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from inspect import isclass, isfunction, isgeneratorfunction
from types import CodeType, FunctionType
from typing import Any, ForwardRef, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype

EVERYTHING = jaxtyping.jaxtyped
"""jaxtyping's own decorator."""
BY_BEARTYPE = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))
"""Raises what jaxtyping raises: a TypeError."""
GROWTH = int(os.environ.get("TEST_CHECKS_GROWTH", "16"))
"""How many times the number of a checked call the number of the next one is."""
called: list[Callable[[], None]] = []
"""For each function that the test that runs has called: what makes its next call the first."""
INNER_CALLS_CHECKED = 10
"""Of a function within a function, which is decorated anew whenever the outer one is called."""
inner_calls: Counter[CodeType] = Counter()


PICKLED = ("interp.executors.ray_cluster", "interp.executors.worker_server")
"""Modules whose classes Ray pickles for its processes, which can't import this module."""


def begin_test() -> None:
    """Number the calls of every function anew."""
    while called:
        called.pop()()


def has_axes(hint: object) -> bool:
    """Whether a shape is part of an annotation: itself, or any of its arguments."""
    if isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    parts = hint if isinstance(hint, list | tuple) else get_args(hint)
    return any(has_axes(part) for part in parts)


def has_names(hint: object) -> bool:
    """Whether an annotation, or a part of it, is a string."""
    parts = hint if isinstance(hint, list | tuple) else get_args(hint)
    return isinstance(hint, str | ForwardRef) or any(has_names(part) for part in parts)


def checked(what: Any = None, *, typechecker: Any) -> Any:
    """What the import hook decorates functions and classes with, in place of ``jaxtyped``."""
    if what is None:
        return lambda what: checked(what, typechecker=typechecker)
    if isclass(what) and is_dataclass(what):
        what.__init__ = checked(what.__init__, typechecker=typechecker)
        return what
    if what.__module__ in PICKLED:
        return what
    if not isfunction(what):
        return EVERYTHING(what, typechecker=typechecker)
    if "<locals>" in what.__qualname__:
        return _checked_inner_function(what, typechecker)
    return _checked_function(what, typechecker)


def _checked_function(function: Callable[..., Any], typechecker: Any) -> Callable[..., Any]:
    checking: Callable[..., Any] | None = None
    number = 1  # of the next call that is checked
    left = 0  # calls before that

    def begin() -> None:
        nonlocal number, left
        number, left = 1, 0

    @wraps(function)
    def first_calls(*args: Any, **kwargs: Any) -> Any:
        nonlocal checking, number, left
        if left > 0:  # short, since most calls end here
            left -= 1
            return function(*args, **kwargs)
        if number == 1:
            called.append(begin)
        number, left = number * GROWTH, number * (GROWTH - 1) - 1
        if checking is None:
            checking = _checking(function, typechecker)
        return checking(*args, **kwargs)

    return first_calls


def _checking(function: Any, typechecker: Any) -> Callable[..., Any]:
    """The function, checked at each call."""
    if isgeneratorfunction(function):
        return EVERYTHING(function, typechecker=typechecker)
    hints = function.__annotations__
    if any(map(has_names, hints.values())):
        try:
            hints = get_type_hints(function, include_extras=True)
        except (NameError, TypeError):  # a name or a subscript that only type checkers know
            return EVERYTHING(function, typechecker=typechecker)
        function = _copy_with(function, hints)
    inner = BY_BEARTYPE(function)
    if not any(map(has_axes, hints.values())):
        return inner

    def in_context(*args: Any, **kwargs: Any) -> Any:
        with EVERYTHING("context"):
            return inner(*args, **kwargs)

    return in_context


def _copy_with(function: Any, hints: dict[str, Any]) -> Callable[..., Any]:
    """The same function with other annotations."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, hints
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    return copy


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
        return _checking(function, typechecker)(*args, **kwargs)

    return first_calls
