"""The short form of a configuration: only the fields that differ from their defaults."""

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any


def changed_fields(part: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401 - a dataclass
    """Name and value of each field that has no default, or whose value differs from it."""
    for field in fields(part):
        value = getattr(part, field.name)
        if field.default is MISSING or value != field.default:
            yield field.name, value


def short_repr(value: object) -> str:
    """The constructor call of a configuration, without fields that have their default values."""
    if isinstance(value, tuple):
        return f"({', '.join(map(short_repr, value))}{',' * (len(value) == 1)})"
    if not is_dataclass(value):
        return repr(value)
    changed = ", ".join(f"{name}={short_repr(part)}" for name, part in changed_fields(value))
    return f"{type(value).__name__}({changed})"


def settings(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Path and value of each field that differs from its default, e.g. ``decoder.norm.kind``."""
    if not is_dataclass(value):
        yield path, value
        return
    for name, part in changed_fields(value):
        yield from settings(part, f"{path}.{name}" if path else name)
