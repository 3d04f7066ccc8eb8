"""Checks of a configuration's fields; each raises ``InvalidConfig`` with the field's name."""

from typing import Any, get_args

from interp.errors import InvalidConfig


def check_positive_integers(part: object, *names: str) -> None:
    """Check that fields are integers of at least 1."""
    for name in names:
        value = getattr(part, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidConfig(f"{name}={value!r} must be an integer of at least 1.")


def check_positive(part: object, name: str) -> None:
    """Check that a field is ``None`` or a number greater than 0."""
    value = getattr(part, name)
    if value is not None and not value > 0:
        raise InvalidConfig(f"{name}={value!r} must be greater than 0.")


def check_choice(part: object, name: str, literal: Any) -> None:  # noqa: ANN401 - a Literal
    """Check that a field is one of the strings of a ``Literal``."""
    value, choices = getattr(part, name), get_args(literal)
    if value not in choices:
        raise InvalidConfig(f"{name}={value!r} must be one of {', '.join(choices)}.")
