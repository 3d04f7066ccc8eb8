"""Builds dataclasses from parsed JSON and checks every value; errors name a field by its path.

The type hints of a dataclass are its schema: scalars, optional values, alternatives of scalars,
``Literal``, lists, tuples, dictionaries, and other dataclasses. Nothing is converted, except
integers to floats, lists to tuples, and keys of dictionaries to integers.
"""

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from interp.errors import InvalidConfig, first_line, shorten

_Part = TypeVar("_Part")
VERSION = "version"
"""The field of a file with the version of its format."""
_INTEGER = re.compile(r"[0-9]{1,15}")


def build(kind: type[_Part], values: object, path: str) -> _Part:
    """An instance of the dataclass ``kind`` from nested dictionaries.

    Args:
        kind: the dataclass; its type hints determine how each value is read.
        values: a dictionary of its fields.
        path: the name of ``values`` in error messages.

    Raises:
        InvalidConfig: a field is unknown, missing or of the wrong type; the message has its path.
    """
    entries = as_object(values, path)
    hints = _hints(kind)
    names = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType] - a dataclass
    unknown = sorted(str(name) for name in set(entries) - set(names))
    if unknown:
        listed = ", ".join(names)
        raise InvalidConfig(f"{path} has no field {shorten(unknown[0])}; its fields: {listed}.")
    read = {name: value_of(hints[name], value, f"{path}.{name}") for name, value in entries.items()}
    try:
        return kind(**read)
    except (TypeError, ArithmeticError) as error:
        raise InvalidConfig(f"{path}: {first_line(error)}.") from error


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def as_object(values: object, path: str) -> dict[Any, Any]:
    """``values``, if they are a dictionary.

    Raises:
        InvalidConfig: they are not.
    """
    if not isinstance(values, dict):
        raise InvalidConfig(f"{path} should be an object with fields, got {shorten(values)}.")
    return values


def without_version(values: object, newest: int, path: str) -> dict[Any, Any]:
    """The fields of a file without its version, which may be missing or older than ``newest``.

    Raises:
        InvalidConfig: the version is newer or invalid, or ``values`` is not a dictionary.
    """
    rest = dict(as_object(values, path))
    version = rest.pop(VERSION, newest)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InvalidConfig(f"{path}.version should be an integer, got {shorten(version)}.")
    if version > newest:
        raise InvalidConfig(
            f"{path} has version {shorten(version)} of its format; this version of interp reads "
            f"versions up to {newest}. Update interp: pip install --upgrade interp."
        )
    return rest


def value_of(hint: Any, value: object, path: str) -> Any:  # noqa: ANN401 - a type hint
    """A value, read as the type of a hint.

    Raises:
        InvalidConfig: the value has another type.
    """
    if hint is Any:
        return value
    if is_dataclass(hint):
        return build(hint, value, path)  # pyright: ignore[reportArgumentType] - a class
    read = _READERS.get(get_origin(hint) or hint, _scalar)
    return read(hint, value, path)


def _alternatives(hint: Any, value: object, path: str) -> object:  # noqa: ANN401 - a type hint
    """A value of one of several types: ``None``, one other type, or several scalars."""
    options = get_args(hint)
    if value is None and NoneType in options:
        return None
    others = [option for option in options if option is not NoneType]
    if len(others) == 1:
        return value_of(others[0], value, path)
    if any(_is_exactly(option, value) for option in others):
        return value
    expected = " or ".join(option.__name__ for option in others)
    raise InvalidConfig(f"{path} should be of type {expected}, got {shorten(value)}.")


def _choice(hint: Any, value: object, path: str) -> object:  # noqa: ANN401 - a type hint
    choices = get_args(hint)
    if value not in choices:
        name = path.rpartition(".")[-1]
        raise InvalidConfig(f"{name}={shorten(value)} must be one of {', '.join(choices)}.")
    return value


def _list(hint: Any, value: object, path: str) -> list[Any]:  # noqa: ANN401 - a type hint
    (inner,) = get_args(hint)
    return [
        value_of(inner, item, f"{path}[{index}]") for index, item in enumerate(_items(value, path))
    ]


def _tuple(hint: Any, value: object, path: str) -> tuple[Any, ...]:  # noqa: ANN401 - a type hint
    """A tuple of one type (``tuple[str, ...]``), or with one value for each type."""
    items, types = _items(value, path), get_args(hint)
    if types[-1] is ...:
        types = types[:1] * len(items)
    if len(items) != len(types):
        raise InvalidConfig(f"{path} should have {len(types)} values, got {shorten(value)}.")
    numbered = enumerate(zip(types, items, strict=True))
    return tuple(value_of(inner, item, f"{path}[{index}]") for index, (inner, item) in numbered)


def _items(value: object, path: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidConfig(f"{path} should be a list, got {shorten(value)}.")
    return value


def _mapping(hint: Any, value: object, path: str) -> dict[Any, Any]:  # noqa: ANN401 - a type hint
    """A dictionary; integer keys are strings in JSON."""
    keys, inner = get_args(hint)
    read: dict[Any, Any] = {}
    for key, item in as_object(value, path).items():
        place = f"{path}[{shorten(key)}]"
        if keys is int and not _INTEGER.fullmatch(str(key)):
            raise InvalidConfig(f"{place}: the name should be an integer.")
        read[keys(key)] = value_of(inner, item, place)
    return read


def _scalar(hint: Any, value: object, path: str) -> object:  # noqa: ANN401 - a type hint
    if _is_exactly(hint, value):
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise InvalidConfig(f"{path} is too large a number.") from error
    raise InvalidConfig(f"{path} should be of type {hint.__name__}, got {shorten(value)}.")


def _is_exactly(kind: type, value: object) -> bool:
    """Whether a value has a type; a bool is not an int."""
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


_READERS: dict[Any, Callable[[Any, object, str], Any]] = {
    Union: _alternatives,
    UnionType: _alternatives,
    Literal: _choice,
    list: _list,
    tuple: _tuple,
    dict: _mapping,
}
"""The function that reads values of each kind of hint; any other hint is a scalar."""
