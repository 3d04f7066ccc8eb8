"""Damage to a file: to its bytes, to its JSON, or to its path."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from interp.io import CHECKSUM, METADATA

Mutate = Callable[[Random, bytes], bytes]
LITERAL = "literal-json:"
"""Prefix of a text that is replaced by the JSON after it, which ``json.dumps`` can't write."""
INSERTED = (b"\xff", b"\xed\xa0\x80", b"\0", b"\n", b'"', b"{", b"[")
DEEPER = 0.8
"""Probability of going one level deeper into JSON."""
FEW = 1000
LITERALS = (
    "NaN",
    "-Infinity",
    "1e999",
    "9" * 5000,
    "0." + "1" * 5000,
    '"\\ud800"',
    "[" * 100 + "]" * 100,
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 2000 + "1" + "}" * 2000,
    '{"a": 1, "a": 2}',
    "{" + ",".join(f'"{n}": 0' for n in range(3000)) + ', "0": 1}',
    "'",
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 0.5, -0.0, 1e308, 1e-320),
    *(2**31, 2**32, 2**53, 2**63, 2**64, -(2**63), 10**30, 10**400),
    *("", "\0", "/etc/passwd", "../x", "\ufeff", "é" * 1000, "x" * 100_000, "nan"),
    *([], {}, [[]], [None], {"": {}}, list(range(1000)), [[0] * 10] * 10),
)


def damaged_bytes(random: Random, content: bytes) -> bytes:
    """Flip, cut, repeat, insert or overwrite bytes."""
    start = random.randrange(len(content) + 1)
    stop = min(len(content), start + random.choice((1, 1, 2, 8, 100, 10_000)))
    before, part, after = content[:start], content[start:stop], content[stop:]
    damages: tuple[Callable[[], bytes], ...] = (
        lambda: before + bytes(byte ^ (1 << random.randrange(8)) for byte in part) + after,
        lambda: before + random.randbytes(len(part)) + after,
        lambda: before,
        lambda: before + after,
        lambda: before + part * random.choice((2, 3, 50)) + after,
        lambda: before + bytes(len(part)) + after,
        lambda: before + random.choice(INSERTED) + after,
        lambda: random.choice((b"", b"\0", b"{}", b"[]", b"null", b"\n", b"1", b'"a"')),
        lambda: random.choice((b"\xef\xbb\xbf", b"\xff\xfe")) + content,
        lambda: content + random.choice((b"\0", content[:100], b"}", random.randbytes(50))),
    )
    return random.choice(damages)()


def damaged_json(random: Random, content: bytes) -> bytes:
    """Replace, drop, add, repeat or swap one or two values of a JSON text."""
    holder: list[Any] = [json.loads(content)]
    for _ in range(random.choice((1, 1, 1, 2))):
        _change(random, holder)
    return _written(holder[0])


def damaged_lines(random: Random, content: bytes) -> bytes:
    """Damage one line of a JSON Lines file."""
    lines = content.splitlines()
    index = random.randrange(len(lines))
    lines[index] = damaged_json(random, lines[index])
    return b"\n".join(lines)


def damaged_toml(random: Random, content: bytes) -> bytes:
    """Add a line, or replace the value of one."""
    lines = content.decode().splitlines()
    index = random.randrange(len(lines))
    value = random.choice((*LITERALS, ".".join("a" * 3000), "{a = " * 100, '"x', "[{}, [1], 2.5]"))
    name, is_value, _ = lines[index].partition("=")
    damages: tuple[str, ...] = (
        *(f"{name} = {value}" if is_value else f"[[{value}]]", f"{value} = 1", f"a = {value}"),
        *(f"{lines[index]}\n" * random.choice((2, 5000)), ""),
    )
    lines[index] = random.choice(damages)
    return "\n".join(lines).encode()


def damaged_header(random: Random, content: bytes) -> bytes:
    """Damage the header of a safetensors file, and usually remove its checksum."""
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    texts: dict[str, str] = header[METADATA]
    if random.random() < 0.9:  # noqa: PLR2004 - otherwise, only the checksum would be tested
        texts.pop(CHECKSUM, None)
    inner = [name for name, text in texts.items() if text.startswith("{")]
    if inner and random.random() < 0.7:  # noqa: PLR2004
        name = random.choice(inner)
        texts[name] = damaged_json(random, texts[name].encode()).decode(errors="replace")
        text = json.dumps(header).encode()
    else:
        text = damaged_json(random, json.dumps(header).encode())
    length = random.choice((len(text),) * 20 + (0, 2**63, len(text) - 1, len(text) + 8))
    return length.to_bytes(8, "little") + text + data


def replaced_path(random: Random, path: Path) -> None:
    """Replace a file by nothing, or by something other than a regular file."""
    content = path.read_bytes()
    path.unlink()
    other = path.with_name("elsewhere")
    places: tuple[Callable[[], object], ...] = (
        lambda: None,
        path.mkdir,
        lambda: os.mkfifo(path),
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.symlink_to("/dev/null"),
        lambda: path.symlink_to(path.name),
        lambda: path.symlink_to("nowhere"),
        lambda: (other.write_bytes(content), path.symlink_to(other)),
    )
    random.choice(places)()


def _change(random: Random, holder: list[Any]) -> None:
    """Change one value somewhere in ``holder[0]``."""
    inside: Any = holder
    key: Any = 0
    while isinstance(inside[key], dict | list) and inside[key] and random.random() < DEEPER:
        inside = inside[key]
        key = random.choice(_keys(inside))
    random.choice((_replace, _replace, _replace, _drop, _add, _swap, _grow, _nudge))(
        random, inside, key
    )


def _keys(inside: Any) -> list[Any]:  # noqa: ANN401 - JSON
    return list(inside) if isinstance(inside, dict) else list(range(len(inside)))


def _replace(random: Random, inside: Any, key: Any) -> None:  # noqa: ANN401 - JSON
    literal = LITERAL + random.choice(LITERALS)
    inside[key] = random.choice((random.choice(VALUES), literal))


def _drop(random: Random, inside: Any, key: Any) -> None:  # noqa: ANN401, ARG001 - JSON
    inside[key] = None
    if isinstance(inside, dict):
        del inside[key]


def _add(random: Random, inside: Any, key: Any) -> None:  # noqa: ANN401 - JSON
    value = inside[key]
    if isinstance(value, dict):
        value[random.choice(("", "x", "\0", "version", "é" * 200))] = random.choice(VALUES)
    elif isinstance(value, list):
        value.append(random.choice(VALUES))


def _swap(random: Random, inside: Any, key: Any) -> None:  # noqa: ANN401 - JSON
    other = random.choice(_keys(inside))
    inside[key], inside[other] = inside[other], inside[key]


def _grow(random: Random, inside: Any, key: Any) -> None:  # noqa: ANN401 - JSON
    value = inside[key]
    few = len(value) < FEW if isinstance(value, str | list) else False
    inside[key] = value * random.choice((2, 1000)) if few else [value] * 3


def _nudge(random: Random, inside: Any, key: Any) -> None:  # noqa: ANN401 - JSON
    value = inside[key]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    inside[key] = value + random.choice((-1, 1, 0.5, 2**20)) if is_number else [value]


def _written(value: object) -> bytes:
    """The value as JSON, with literals in place of the texts that name them."""
    text = json.dumps(value)
    for literal in LITERALS:
        text = text.replace(json.dumps(LITERAL + literal), literal)
    return text.encode()
