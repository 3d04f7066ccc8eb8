"""Template files: TOML, e.g.

    text = "When {a} and {b} went to the {place}, {a} gave a drink to"
    corrupt = "When {a} and {b} went to the {place}, {c} gave a drink to"
    target = " {b}"
    distractor = " {a}"
    n = 24
    seed = 0

    [lists]
    name = ["Mary", "John", "Anna", "Paul"]
    place = ["store", "park"]

    [slots]        # different entries of one list
    a = "name"
    b = "name"
    c = "name"

See :class:`interp.text.Template` for the keys.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from io import BytesIO
from typing import Any

from interp.errors import InvalidInput, first_line, nearest, reason, shorten
from interp.io import UNREADABLE, parse_toml, read_file_or_pipe
from interp.prompts.bundled import path_of_prompts
from interp.prompts.lines import lines_of
from interp.prompts.template import Template
from interp.prompts.template_parts import Where, check_values

MAX_BYTES = 2**22
KEYS = tuple(field.name for field in fields(Template) if field.name not in ("source", "lines"))
_AT = re.compile(r" \(at line (\d+), column \d+\)$")
_KEY = re.compile(r"""\s*(["']?)([\w-]+)\1\s*=""")
_TABLE = re.compile(r"\s*\[+\s*([\w.-]+)\s*\]+")


def read_template(path: object) -> Template:
    """The template of a TOML file, or of a bundled set such as ``"ioi"``.

    Raises:
        InvalidInput: the file can't be read; see also :func:`parse_template`.

    Examples:
        >>> from pathlib import Path
        >>> text = '''
        ... text = "{name} says"
        ... lists = { name = ["Ann", "Bob"] }
        ... '''
        >>> _ = Path("names.toml").write_text(text)
        >>> [prompt.text for prompt in interp.read_template("names.toml").fill()]
        ['Bob says', 'Ann says']
    """
    file = path_of_prompts(path)
    try:
        data = read_file_or_pipe(file, MAX_BYTES)
    except UNREADABLE as error:
        raise InvalidInput(f"{file} can't be read: {reason(error)}.") from error
    return parse_template(data, str(file))


def parse_template(data: bytes, name: str) -> Template:
    """The template of a TOML file.

    Args:
        data: content of the file.
        name: name of the file, for messages.

    Raises:
        InvalidInput: it is larger than ``MAX_BYTES``, not UTF-8 or not TOML, or a key is unknown or
            of the wrong type; see also :class:`Template`. The message has file and line.
    """
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"{name} is larger than {MAX_BYTES} bytes; a template is a short file.")
    text = "".join(line.text for line in lines_of(BytesIO(data), name))
    try:
        values = parse_toml(text)
    except ValueError as error:
        position = _AT.search(str(error))
        source = f"{name}:{position[1]}" if position else name
        why = _AT.sub("", first_line(error)).rstrip(".")
        raise InvalidInput(f"{source}: not TOML: {why}. A template is a TOML file.") from error
    lines = _lines_of_keys(text)

    def place(key: str) -> str:
        return f"{name}:{lines[key]}" if key in lines else name

    _check_keys(values, place)
    for key in ("text", "lists"):
        if key not in values:
            raise InvalidInput(f"{name} has no {key!r}; a template needs a text, and lists.")
    check_values(values, place)
    return Template(**values, source=name, lines=lines)


def _lines_of_keys(text: str) -> dict[str, int]:
    """The first line of each key, which is preceded by its table: ``lists.name``."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        if header := _TABLE.match(line):
            table = f"{header[1]}."
            lines.setdefault(header[1], number)
        elif key := _KEY.match(line):
            lines.setdefault(f"{table}{key[2]}", number)
    return lines


def _check_keys(values: Mapping[str, Any], place: Where) -> None:
    """Refuse unknown keys, and keys that are in the table of lists by mistake."""
    for key in values:
        if key not in KEYS:
            raise InvalidInput(
                f"{place(key)}: unknown key {shorten(key)}.{nearest(key, KEYS)} "
                f"Known: {', '.join(KEYS)}."
            )
    lists = values.get("lists")
    for key, value in lists.items() if isinstance(lists, dict) else ():
        if key in KEYS and not isinstance(value, list):
            raise InvalidInput(
                f"{place(f'lists.{key}')}: {key} is in the table lists; write it above "
                "[lists], because a table holds all keys up to the next one."
            )
