"""Is a field of a configuration what it may be?"""

from typing import Any, get_args

from interp.errors import InvalidConfig


def positive(part: object, *names: str) -> None:
    """Make sure that fields are whole numbers of at least 1."""
    for name in names:
        value = getattr(part, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidConfig(f"{name}={value!r} must be a whole number of at least 1.")


def positive_number(part: object, name: str) -> None:
    """Make sure that a field is ``None`` or a number over 0."""
    value = getattr(part, name)
    if value is not None and not value > 0:
        raise InvalidConfig(f"{name}={value!r} must be over 0.")


def one_of(part: object, name: str, kind: Any) -> None:  # noqa: ANN401 - a Literal
    """Make sure that a field is one of the words of a ``Literal``."""
    value, known = getattr(part, name), get_args(kind)
    if value not in known:
        raise InvalidConfig(f"{name}={value!r} is not known; it is one of {', '.join(known)}.")
