"""A configuration in short: the fields that differ from their defaults."""

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any


def changed_fields(part: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401 - a dataclass
    """Name and value of each field that has no default, or another value than it."""
    for field in fields(part):
        value = getattr(part, field.name)
        if field.default is MISSING or value != field.default:
            yield field.name, value


def short_repr(value: object) -> str:
    """The call that builds an equal configuration, without fields that have their defaults."""
    if isinstance(value, tuple):
        return f"({', '.join(map(short_repr, value))}{',' * (len(value) == 1)})"
    if not is_dataclass(value):
        return repr(value)
    given = ", ".join(f"{name}={short_repr(own)}" for name, own in changed_fields(value))
    return f"{type(value).__name__}({given})"


def settings(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """The same fields one by one, by their path, as ``decoder.attention.n_heads``."""
    if not is_dataclass(value):
        yield path, value
        return
    for name, own in changed_fields(value):
        yield from settings(own, f"{path}.{name}" if path else name)
