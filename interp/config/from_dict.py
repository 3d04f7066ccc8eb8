"""Dataclasses from nested dictionaries; errors name a field by its path, as ``config.decoder``."""

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from interp.errors import InvalidConfig

_Part = TypeVar("_Part")


def build(kind: type[_Part], values: object, path: str) -> _Part:
    """An instance of the dataclass ``kind`` from nested dictionaries.

    Args:
        kind: the dataclass; its type hints say how each value is read.
        values: a dictionary with its fields.
        path: the name of ``values`` in error messages.

    Raises:
        InvalidConfig: a field is unknown, missing or of the wrong type; the message has its path.
    """
    if not isinstance(values, dict):
        raise InvalidConfig(f"{path} should be an object with fields, got {values!r}.")
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType] - a dataclass
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise InvalidConfig(f"{path} has no field {unknown[0]!r}; its fields: {', '.join(names)}.")
    read = {name: _value(hints[name], value, f"{path}.{name}") for name, value in values.items()}
    try:
        return kind(**read)
    except TypeError as error:
        raise InvalidConfig(f"{path}: {error}.") from error


def _value(hint: Any, value: object, path: str) -> object:  # noqa: ANN401 - a type hint
    """A value converted to a type hint: a dataclass, tuple, dict, Literal or scalar, or None."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    (option,) = [option for option in options if option is not type(None)]
    if is_dataclass(option):
        return build(option, value, path)  # pyright: ignore[reportArgumentType] - a class
    if get_origin(option) in (tuple, dict):
        read = _tuple if get_origin(option) is tuple else _dict
        return read(get_args(option), value, path)
    if get_origin(option) is Literal:
        return value  # checked by the dataclass itself, which knows the name of the field
    exact = isinstance(value, option) and isinstance(value, bool) == (option is bool)
    if exact:
        return value
    if option is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    raise InvalidConfig(f"{path} should be of type {option.__name__}, got {value!r}.")


def _dict(hints: Any, value: object, path: str) -> dict[str, object]:  # noqa: ANN401 - type hints
    if not isinstance(value, dict):
        raise InvalidConfig(f"{path} should be an object, got {value!r}.")
    return {str(name): _value(hints[1], item, f"{path}[{name!r}]") for name, item in value.items()}


def _tuple(hints: Any, value: object, path: str) -> tuple[object, ...]:  # noqa: ANN401 - type hints
    if not isinstance(value, list | tuple):
        raise InvalidConfig(f"{path} should be a list, got {value!r}.")
    return tuple(_value(hints[0], item, f"{path}[{index}]") for index, item in enumerate(value))
