"""What does a person see on the terminal? Tables on stdout; progress and errors on stderr."""

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

QUIET_SECONDS = 10.0
"""Where there is no terminal, progress is a line now and then."""


class Tick(Protocol):
    """Says how far a computation is."""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """``done`` of ``total``, and a word on how it goes."""


def out() -> Console:
    """Where results go. Text is shown as it is: no markup, no emoji codes."""
    return Console(markup=False, emoji=False, highlight=False)


def err() -> Console:
    """Where progress and errors go."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False)


def say(text: str) -> None:
    """Lines on stdout, wrapped at words."""
    out().print(Text(plain(text)))


def tell(text: str) -> None:
    """Lines on stderr, as they are."""
    err().print(Text(text), soft_wrap=True)


def error_line(message: str) -> None:
    """One line on stderr."""
    line = Text.assemble(("error: ", "bold red"), plain(" ".join(message.split("\n"))))
    err().print(line, soft_wrap=True)


def plain(text: str) -> str:
    """The text with what a terminal would obey (escape codes, carriage returns) spelt out."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout.

    Args:
        columns: what each is called, and ``left`` or ``right``. Only the last may be wrapped.
        rows: cells as text.
    """
    shown = Table(header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, (name, side) in enumerate(columns):
        last = index == len(columns) - 1
        shown.add_column(name, justify="right" if side == "right" else "left", no_wrap=not last)
    for row in rows:
        shown.add_row(*(Text(plain(cell)) for cell in row))
    out().print(shown)


@contextmanager
def progress(label: str) -> Generator[Tick]:
    """A bar with the time left on stderr; where that is no terminal, a line now and then."""
    console = err()
    if not console.is_terminal:
        yield _Lines(label)
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


class _Lines:
    """Progress for a log file."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._start = self._last = time.monotonic()
        self._before: int | None = None

    def __call__(self, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        if self._before is None:  # What goes on from the middle has not done all that just now.
            self._before, self._start = done, now
        if now - self._last < QUIET_SECONDS:
            return
        self._last = now
        said = [f"{self._label}: {done} of {total}"]
        if done > self._before:
            left = (now - self._start) * (total - done) / (done - self._before)
            said.append(f"about {left:.0f} s left")
        tell(", ".join([*said, note] if note else said))
