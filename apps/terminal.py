"""Terminal output: results on stdout, progress and errors on stderr."""

import json
import sys
import time
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Protocol

from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

GAP = 2
"""Spaces between the columns of a table."""
LOG_INTERVAL = 60.0
"""Seconds between progress lines where stderr is not a terminal."""


class Tick(Protocol):
    """Progress callback."""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Report ``done`` of ``total``, with an optional note."""


def escape_unencodable() -> None:
    """Print characters that the encoding of stdout or stderr lacks as Python escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_warnings_as_lines() -> None:
    """Print each warning once, as one line on stderr, without the line of code that caused it."""
    printed: set[str] = set()

    def show(message: Warning | str, *_: object) -> None:
        if str(message) not in printed:
            printed.add(str(message))
            print_stderr(f"warning: {message}")

    warnings.showwarning = show


def stdout() -> Console:
    """A console for results. Text is printed literally: no markup, no emoji codes."""
    return Console(markup=False, emoji=False, highlight=False)


def stderr() -> Console:
    """A console for progress and errors."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False)


def print_stdout(text: str) -> None:
    """Print lines on stdout, wrapped at words."""
    stdout().print(Text(escape_controls(text)))


def print_json(value: object) -> None:
    """Print JSON on stdout, without wrapping."""
    print(json.dumps(value, indent=2))  # noqa: T201 - no wrapping, no escapes


def print_stderr(text: str) -> None:
    """Print lines on stderr, not wrapped."""
    stderr().print(Text(escape_controls(text)), soft_wrap=True)


def print_error(message: str) -> None:
    """Print an error as one line on stderr."""
    one_line = " ".join(message.split("\n"))
    line = Text.assemble(("error: ", "bold red"), escape_controls(one_line))
    stderr().print(line, soft_wrap=True)


def escape_controls(text: str) -> str:
    """The text with control characters (escape codes, carriage returns) as Python escapes."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def print_table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout.

    No cell is shortened: a terminal narrower than the table wraps its lines.

    Args:
        columns: title and alignment (``left`` or ``right``) of each column; only the last wraps.
        rows: the cells of each row.
    """
    lines = [
        [name for name, _ in columns],
        *([escape_controls(cell) for cell in row] for row in rows),
    ]
    *widths, _ = (max(map(cell_len, column)) for column in zip(*lines, strict=True))
    last_word = max(cell_len(word) for line in lines for word in line[-1].split() or [""])
    table = Table(header_style="bold", box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for (name, side), width in zip(columns, [*widths, None], strict=True):
        justify = "right" if side == "right" else "left"
        table.add_column(name, justify=justify, min_width=width, no_wrap=width is not None)
    for line in lines[1:]:
        table.add_row(*map(Text, line))
    console = stdout()
    console.width = max(console.width, sum(widths) + GAP * len(widths) + last_word)
    console.print(table)


@contextmanager
def progress(label: str) -> Generator[Tick]:
    """A progress bar with the time left on stderr; without a terminal, occasional lines."""
    console = stderr()
    if not console.is_terminal:
        yield _LogProgress(label)
        return
    text = TextColumn("{task.description}", markup=False)
    note_column = TextColumn("{task.fields[note]}", markup=False)
    times = TimeElapsedColumn(), TimeRemainingColumn()
    columns = text, BarColumn(), MofNCompleteColumn(), note_column, *times
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=None, note="")

        def tick(done: int, total: int, note: str = "") -> None:
            bar.update(task, completed=done, total=total, note=note)

        yield tick


class _LogProgress:
    """Progress as lines in a log file."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._start = self._last = time.monotonic()
        self._first_done: int | None = None

    def __call__(self, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        if self._first_done is None:  # Steps done before a resume do not count for the rate.
            self._first_done, self._start = done, now
        if now - self._last < LOG_INTERVAL:
            return
        self._last = now
        parts = [f"{self._label}: {done} of {total}"]
        if done > self._first_done:
            left = (now - self._start) * (total - done) / (done - self._first_done)
            parts.append(f"about {left:.0f} s left")
        print_stderr(", ".join([*parts, note] if note else parts))
