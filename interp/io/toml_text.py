"""Parses untrusted TOML within limits: parts of a key, depth of arrays, characters of a number.

:mod:`tomllib` takes memory for the square of the number of parts of a key (``a.a.a = 1``), recurses
into arrays, and makes an integer of any number of digits. All three are bounded by a scan of the
text before it is parsed.
"""

import re
import tomllib
from typing import Any

MAX_DEPTH = 32
"""Maximum nesting depth of arrays and inline tables."""
MAX_PARTS = 16
"""Maximum number of parts of a dotted key."""
MAX_BARE = 1000
"""Maximum number of characters of a number, or of a part of a key without quotes."""
MAX_TABLES = 20_000
"""Maximum number of table headers and inline tables."""
WITHIN_KEY = ("text", "bare", "space", "dot")
"""The tokens of a dotted key; any other token ends it."""
# Strings may lack their end, so that each character is read once, also in a text that is not TOML.
_TOKEN = re.compile(
    r"""
    (?P<text> \"{3} (?: [^\\] | \\. )*? (?: \"{3,5} | \Z )
            | '{3} .*? (?: '{3,5} | \Z )
            | \" (?: [^\\\"\n] | \\. )*+ \"?
            | '  [^'\n]*+ '? )
    | (?P<comment> \#[^\n]* )
    | (?P<bare> [\w+-]+ )
    | (?P<space> [\ \t]+ )
    | (?P<dot> \. )
    | (?P<opening> [\[{] ) | (?P<closing> [\]}] )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        ValueError: it is not TOML, or beyond one of the limits of this module. The message ends
            with the position, ``(at line 3, column 5)``, unless it is not known.
    """
    _check_limits(text)
    return tomllib.loads(text)


def _check_limits(text: str) -> None:
    depth = parts = tables = 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        parts = parts + (kind == "dot") if kind in WITHIN_KEY else 0
        depth = max(0, depth + (kind == "opening") - (kind == "closing"))
        tables += kind == "opening" and (token[0] == "{" or depth == 1)
        if parts >= MAX_PARTS:
            raise _error(text, token, f"a key has more than {MAX_PARTS} parts")
        if depth > MAX_DEPTH:
            raise _error(text, token, f"it is nested deeper than {MAX_DEPTH} levels")
        if kind == "bare" and len(token[0]) > MAX_BARE:
            raise _error(text, token, f"a number or a name has more than {MAX_BARE} characters")
        if tables > MAX_TABLES:
            raise _error(text, token, f"it has more than {MAX_TABLES} tables and lists")


def _error(text: str, token: re.Match[str], why: str) -> ValueError:
    start = token.start()
    line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    return ValueError(f"{why} (at line {line}, column {column})")
