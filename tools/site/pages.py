"""The code blocks of Markdown pages: they are run unchanged, and their outputs are compared.

    python -m tools.site.pages docs/how-to/*.md     # run the pages, rewrite outputs and figures

All Python blocks of a page share one namespace and one empty folder, in which its commands run,
too. A text block that follows a Python block has its output. An SVG image that follows it is the
figure that the last line of the block evaluates to. In a ``console`` block, lines that
begin with ``$`` are commands, and the other lines are their outputs. A line ``…`` matches any
lines. In tables whose last column is headed ``here``, which compare calls with those of another
library, the code of that column is run, too. A block that can't be run gives the reason in its
title, which readers see::

    ```bash title="Not run in the tests: needs a GPU"
"""

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from apps.cli import app
from tools.figure_svg import figure_svg

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)([^\n`]*)\n(.*?)^```[ ]*$", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r'title="Not run in the tests: ([^"]+)"')
FIGURE = re.compile(r"\s*!\[[^\]]*\]\(([^)]+\.svg)\)")
CALLS = re.compile(r"^\|[^\n]*\| here \|\n\|[-| ]+\|\n((?:\|.*\|\n)+)", re.MULTILINE)
NUMBER = re.compile(r"((?<![\w.])[+−-]?\d+(?:\.\d+)?(?:e[+−-]?\d+)?)(?!\.?\w)")
ROUNDING_ERROR = Decimal("1e-9")
"""Numbers below this are rounding errors of float64."""
REST = "…"
"""Matches any lines of an output."""


class PageError(AssertionError):
    """A block fails, or its output differs from that on the page."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: the language of the opening fence.
        text: the lines of the block.
        line: number of its first line on the page, from 1.
        not_run: why it is not run; empty if it is run.
        start: offset of its text in the page.
        printed: the text block with its output, if the page has one.
        figure: the SVG file that follows it, relative to the page; empty if there is none.
    """

    language: str
    text: str
    line: int
    not_run: str
    start: int
    printed: "Block | None" = None
    figure: str = ""


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page in order; the output of a Python block is part of that block."""
    blocks: list[Block] = []
    end = 0
    for match in FENCE.finditer(page):
        reason = TITLE.search(match[2])
        line = page.count("\n", 0, match.start()) + 1
        block = Block(match[1], match[3], line, reason[1] if reason else "", match.start(3))
        follows = (
            bool(blocks) and blocks[-1].printed is None and not page[end : match.start()].strip()
        )
        if block.language == "text" and follows and blocks[-1].language == "python":
            blocks[-1] = replace(blocks[-1], printed=block)
        else:
            blocks.append(block)
        end = match.end()
        if blocks[-1].language == "python" and (figure := FIGURE.match(page, end)):
            blocks[-1] = replace(blocks[-1], figure=figure[1])
    return sorted([*blocks, *_calls(page)], key=lambda block: block.start)


def _calls(page: str) -> Iterator[Block]:
    """The code in the last column of tables that compare calls, one block per row."""
    for table in CALLS.finditer(page):
        start = table.start(1)
        for row in table[1].splitlines(keepends=True):
            last = row.rstrip("|\n ").rpartition(" | ")[2]
            code = "\n".join(re.findall(r"`([^`]+)`", last))
            if code:
                yield Block("python", code, page.count("\n", 0, start) + 1, "", start)
            start += len(row)


def agrees(printed: str, expected: str) -> bool:
    """Whether an output agrees with that on a page; a line ``…`` matches any lines.

    Numbers with decimals may differ by one unit of their last digit, since sums are rounded in
    another order on other processors; everything else is compared exactly.
    """
    lines = _lines(printed)
    parts: list[list[str]] = [[]]
    for line in _lines(expected):
        if line.strip() == REST:
            parts.append([])
        else:
            parts[-1].append(line)
    first, *later = parts
    if not later:
        return _same(lines, first)
    if not _same(lines[: len(first)], first):
        return False
    start, last = len(first), later.pop()
    for part in later:
        places = range(start, len(lines) - len(part) + 1)
        place = next((n for n in places if _same(lines[n : n + len(part)], part)), None)
        if place is None:
            return False
        start = place + len(part)
    end = len(lines) - len(last)
    return end >= start and _same(lines[end:], last)


def _same(lines: list[str], expected: list[str]) -> bool:
    """Whether all lines are the same but for the rounding of their numbers."""
    return len(lines) == len(expected) and all(
        line == other or _same_line(line, other)
        for line, other in zip(lines, expected, strict=True)
    )


def _same_line(line: str, other: str) -> bool:
    # Every second part is a number. A sign before it is part of it, so that -0.000 is 0.000; since
    # numbers stand in columns, one that has a sign takes a space more.
    parts, others = (NUMBER.split(" ".join(text.split())) for text in (line, other))
    return parts[::2] == others[::2] and all(map(_same_number, parts[1::2], others[1::2]))


def _same_number(number: str, other: str) -> bool:
    """Whether two numbers differ by one unit of the last digit of the more precise one at most.

    So do any two rounding errors of float64.
    """
    if number.isdecimal() and other.isdecimal():
        return number == other
    first, second = (Decimal(text.replace("−", "-")) for text in (number, other))
    if max(abs(first), abs(second)) < ROUNDING_ERROR:
        return True
    last_digit = min(int(value.as_tuple().exponent) for value in (first, second))
    return abs(first - second) <= Decimal(1).scaleb(last_digit)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


@dataclass(eq=False)
class PageRun:
    """The run of one page: its namespace and folder.

    Attributes:
        name: name of the page, for tracebacks.
        folder: the working directory of the run, which is empty at first.
        names: the names that its code has defined.
        figures: the figures of its code, by their files.
    """

    name: str
    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    figures: dict[str, str] = field(default_factory=dict[str, str])

    def outputs(self, page: str) -> Iterator[tuple[Block, str]]:
        """Run the blocks in order, and yield each with its output.

        The output of a ``console`` block is the whole block, commands included.

        Raises:
            PageError: a command fails, or is not one that a page may have.
        """
        for block in blocks_of(page):
            if block.not_run:
                continue
            with contextlib.chdir(self.folder):
                if block.language == "python":
                    yield block, self._python(block)
                elif block.language == "console":
                    yield block, self._console(block)
                elif block.language == "bash":
                    for command in commands_of(block.text):
                        self._command(command, block)
                    yield block, block.text

    def _python(self, block: Block) -> str:
        code = "\n" * block.line + block.text  # line numbers are those of the page
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, self.name, "exec"), self.names)
        if block.figure:
            self.figures[block.figure] = figure_svg(eval(_lines(block.text)[-1], self.names))
        return printed.getvalue()

    def _console(self, block: Block) -> str:
        lines: list[str] = []
        for line in block.text.splitlines():
            if line.startswith("$ "):
                lines += [line, *_lines(self._command(line[2:], block))]
        return "\n".join(lines) + "\n"

    def _command(self, command: str, block: Block) -> str:
        """Run a command of interp; for other commands, only check that they exist."""
        first, *rest = shlex.split(command, comments=True)
        if first == "interp":
            return self._interp(rest, block)
        checks = {
            "make": lambda: re.search(rf"^{rest[0]}:", _makefile(), re.MULTILINE),
            "python": lambda: rest[0] == "-m" and find_spec(rest[1]),
            "pip": lambda: rest[0] == "install",
        }
        if first not in checks or not checks[first]():
            raise PageError(f"{self.name}:{block.line}: there is no command {command!r}")
        return ""

    def _interp(self, arguments: Sequence[str], block: Block) -> str:
        # The server would run until it is stopped.
        command = [*arguments, "--help"] if arguments[0] == "explore" else list(arguments)
        done = CliRunner().invoke(app, command)
        if done.exit_code:
            raise PageError(f"{self.name}:{block.line}: interp {arguments} failed: {done.output}")
        return done.output


def commands_of(text: str) -> list[str]:
    """The commands of a bash block, without comments; a backslash joins lines."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if shlex.split(line, comments=True)]


def _makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def check(path: Path, folder: Path) -> None:
    """Run a page, and compare its outputs, but not its figures, with those on the page.

    Raises:
        PageError: outputs differ, a block fails, or the file of a figure is missing.
    """
    text = path.read_text(encoding="utf-8")
    for block, printed in PageRun(path.name, folder).outputs(text):
        if block.figure and not (path.parent / block.figure).is_file():
            raise PageError(
                f"{path.name}:{block.line}: there is no {block.figure}; "
                f"python -m tools.site.pages {path} draws it"
            )
        expected = block.text if block.language == "console" else None
        if block.printed is not None and not block.printed.not_run:
            expected = block.printed.text
        if expected is not None and not agrees(printed, expected):
            raise PageError(
                f"{path.name}:{block.line}: the page has\n{expected}\nbut this was printed:\n"
                f"{printed}\nIf that is right: python -m tools.site.pages {path}"
            )


def rewritten(path: Path, folder: Path) -> str:
    """The page with the new outputs of its blocks; outputs that still agree are not changed.

    Its figures are written to their files.
    """
    text = path.read_text(encoding="utf-8")
    run = PageRun(path.name, folder)
    ran = list(run.outputs(text))
    for file, svg in run.figures.items():
        (path.parent / file).parent.mkdir(exist_ok=True)
        (path.parent / file).write_text(svg, encoding="utf-8")
    for block, printed in reversed(ran):
        target = block if block.language == "console" else block.printed
        if target is not None and not agrees(printed, target.text):
            lines = "\n".join(_lines(printed)) + "\n"
            text = text[: target.start] + lines + text[target.start + len(target.text) :]
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run pages and rewrite their outputs and figures."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name in sys.argv[1:] if arguments is None else arguments:
        with tempfile.TemporaryDirectory() as folder:
            Path(name).write_text(rewritten(Path(name), Path(folder)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
