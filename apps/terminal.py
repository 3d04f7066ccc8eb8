"""Terminal output: results on stdout, progress and errors on stderr."""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Protocol

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

LOG_INTERVAL = 10.0
"""Seconds between progress lines where stderr is not a terminal."""


class Tick(Protocol):
    """Progress callback."""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Report ``done`` of ``total``, with an optional note."""


def stdout() -> Console:
    """A console for results. Text is printed literally: no markup, no emoji codes."""
    return Console(markup=False, emoji=False, highlight=False)


def stderr() -> Console:
    """A console for progress and errors."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False)


def print_stdout(text: str) -> None:
    """Print lines on stdout, wrapped at words."""
    stdout().print(Text(escape_controls(text)))


def print_stderr(text: str) -> None:
    """Print lines on stderr, not wrapped."""
    stderr().print(Text(text), soft_wrap=True)


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

    Args:
        columns: title and alignment (``left`` or ``right``) of each. Only the last one wraps.
        rows: cells as text.
    """
    table = Table(header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, (name, side) in enumerate(columns):
        last = index == len(columns) - 1
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=not last)
    for row in rows:
        table.add_row(*(Text(escape_controls(cell)) for cell in row))
    stdout().print(table)


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
        if self._first_done is None:  # What was done before a resume does not count for the rate.
            self._first_done, self._start = done, now
        if now - self._last < LOG_INTERVAL:
            return
        self._last = now
        parts = [f"{self._label}: {done} of {total}"]
        if done > self._first_done:
            left = (now - self._start) * (total - done) / (done - self._first_done)
            parts.append(f"about {left:.0f} s left")
        print_stderr(", ".join([*parts, note] if note else parts))
