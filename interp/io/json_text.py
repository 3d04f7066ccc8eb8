"""Parses untrusted JSON within limits: depth, digits, duplicate names.

A ``ValueError`` is raised for input that :func:`json.loads` accepts: duplicate names, NaN and
infinities, numbers with thousands of digits, very deep nesting, lone surrogates.
"""

import json
import re
from math import isinf
from pathlib import Path
from typing import Any

from interp.errors import shorten
from interp.io.files import read_bounded

MAX_DEPTH = 64
"""Maximum nesting depth of lists and objects."""
MAX_DIGITS = 4000
"""Maximum number of characters of a number."""
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(path: Path, most: int) -> Any:  # noqa: ANN401 - JSON
    """The value of a JSON file of at most ``most`` bytes.

    Raises:
        OSError: there is no such file, or no permission.
        ValueError: it is larger, not a regular file or not UTF-8; see also :func:`parse_json`.
    """
    return parse_json(read_bounded(path, most).decode())


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, a name occurs twice in an object, or it is nested deeper than
            :data:`MAX_DEPTH`; a number is infinite, NaN or longer than :data:`MAX_DIGITS`; a text
            has no UTF-8 form.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=unique,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_refuse_constant,
        )
    except RecursionError as error:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels") from error
    _check_depth(value)
    if _HALF_PAIR.search(text):
        json.dumps(value, ensure_ascii=False).encode()  # raises UnicodeEncodeError, a ValueError
    return value


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; duplicate names raise a ``ValueError``."""
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"{shorten(name)} occurs twice")
            seen.add(name)
    return values


def _check_depth(value: object) -> None:
    """Check the nesting depth level by level, without recursion."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


def _integer(digits: str) -> int:
    return int(_bounded(digits))


def _float(digits: str) -> float:
    number = float(_bounded(digits))
    if isinf(number):
        raise ValueError(f"{shorten(digits)} is beyond the range of numbers")
    return number


def _bounded(digits: str) -> str:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"it has a number of {len(digits)} digits; at most {MAX_DIGITS} are read")
    return digits


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
