"""A stand-in for ``hypothesis`` where it is not installed, so that test modules can be imported.

Tests that draw examples are skipped; all others run. No GPU-marked test draws examples.
"""

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from typing import Any

import pytest

REASON = "hypothesis is not installed"


class Anything:
    """Every attribute, call and union returns the object itself, as needed at import."""

    def __getattr__(self, name: str) -> "Anything":
        return self

    def __call__(self, *_: object, **__: object) -> "Anything":
        """Return the object itself."""
        return self

    def __or__(self, other: object) -> "Anything":
        return self


class Decorator:
    """Stands for ``settings``, ``example`` and similar decorators, and does not change a test."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __call__(self, test: Callable[..., Any]) -> Callable[..., Any]:
        """Return the test itself."""
        return test

    @classmethod
    def register_profile(cls, *_: object, **__: object) -> None:
        """Do nothing."""

    @classmethod
    def load_profile(cls, *_: object) -> None:
        """Do nothing."""


def _attribute(name: str) -> Anything:
    """Any public attribute; Python provides those of modules, such as ``__file__``."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything()


def given(*_: object, **__: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Stands for ``hypothesis.given``: the test is skipped."""
    return pytest.mark.skip(reason=REASON)


def install() -> bool:
    """Put the stand-in into ``sys.modules`` if hypothesis is missing; return whether it was."""
    if importlib.util.find_spec("hypothesis") is not None:
        return False
    names = ("hypothesis", "hypothesis.strategies")
    # With a spec: importlib raises an error for a module without one, and torch searches for these.
    module, strategies = (module_from_spec(ModuleSpec(name, loader=None)) for name in names)
    for stand_in in (module, strategies):
        setattr(stand_in, "__getattr__", _attribute)  # noqa: B010 - of a module
    for name in ("settings", "example", "seed", "reproduce_failure"):
        setattr(module, name, Decorator)
    module.given, module.strategies = given, strategies  # type: ignore[attr-defined]
    sys.modules |= dict(zip(names, (module, strategies), strict=True))
    return True
