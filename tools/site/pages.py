"""The code blocks of Markdown pages: they are run unchanged, and their outputs are compared.

    python -m tools.site.pages docs/how-to/*.md     # run the pages, rewrite outputs and figures

All Python blocks of a page share one namespace and one empty folder, in which its commands run,
too. A text block that follows a Python block has its output. In a ``console`` block, lines that
begin with ``$`` are commands, and the other lines are their outputs. A line ``…`` matches any
lines. In tables whose last column is headed ``here``, which compare calls with those of another
library, the code of that column is run, too. A block that can't be run gives the reason in its
title, which readers see::

    ```bash title="Not run in the tests: needs a GPU"

A block that needs a pretrained model of another package names it in its title, as in ``title="On
smollm2-135m"``. It runs only where such models are asked for (``--packaged``); later blocks without
a title can't use what it defines.

A picture in ``figures/`` that follows a Python block, or its output, is that block's figure: the
value of its last line, drawn as SVG.
"""

import argparse
import ast
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
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from apps.cli import app
from interp.loading import PACKAGED
from tools.figure_svg import figure_svg

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)([^\n`]*)\n(.*?)^```[ ]*$", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r'title="Not run in the tests: ([^"]+)"')
ON_MODEL = re.compile(r'title="On ([^"]+)"')
FIGURE = re.compile(r"\s*!\[[^]]+\]\((figures/[^)]+\.svg)\)")
SVG_TEXT = re.compile(r"<text[^>]*>([^<]*)</text>")
CALLS = re.compile(r"^\|[^\n]*\| here \|\n\|[-| ]+\|\n((?:\|.*\|\n)+)", re.MULTILINE)
NUMBER = re.compile(r"((?<![\w.])[+−-]?\d+(?:\.\d+)?(?:e[+−-]?\d+)?)(?!\.?\w)")
ROUNDING_ERRORS = Decimal("1e-9"), Decimal("1e-6")
"""Numbers below these are rounding errors, in float64 and in float32."""
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
        packaged: the model of another package that it needs; empty if it needs none.
        printed: the text block with its output, if the page has one.
        figure: the file of its figure, from the folder of the page; empty if it draws none.
    """

    language: str
    text: str
    line: int
    not_run: str
    start: int
    packaged: str = ""
    printed: "Block | None" = None
    figure: str = ""


@dataclass(frozen=True)
class Output:
    """What a block gave.

    Attributes:
        block: the block.
        printed: what it printed; for a ``console`` block the whole block, commands included.
        figure: its figure, as SVG; empty if it draws none.
    """

    block: Block
    printed: str
    figure: str = ""


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page in order; the output of a Python block is part of that block."""
    blocks: list[Block] = []
    end = 0
    for match in FENCE.finditer(page):
        reason, model = TITLE.search(match[2]), ON_MODEL.search(match[2])
        line = page.count("\n", 0, match.start()) + 1
        block = Block(
            match[1],
            match[3],
            line,
            reason[1] if reason else "",
            match.start(3),
            model[1] if model else "",
        )
        follows = (
            bool(blocks) and blocks[-1].printed is None and not page[end : match.start()].strip()
        )
        if block.language == "text" and follows and blocks[-1].language == "python":
            blocks[-1] = replace(blocks[-1], printed=block)
        else:
            blocks.append(block)
        end = match.end()
        if blocks[-1].language == "python" and (picture := FIGURE.match(page, end)):
            blocks[-1] = replace(blocks[-1], figure=picture[1])
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

    Or whether ``other``, that of the page, is a rounding error, and so is ``number``.
    """
    if number.isdecimal() and other.isdecimal():
        return number == other
    first, second = (Decimal(text.replace("−", "-")) for text in (number, other))
    error = next((error for error in ROUNDING_ERRORS if abs(second) < error), Decimal(0))
    if abs(first) < error:
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
        packaged: whether blocks that need a model of another package run as well.
        names: the names that its code has defined.
    """

    name: str
    folder: Path
    packaged: bool = False
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})

    def outputs(self, page: str) -> Iterator[Output]:
        """Run the blocks in order, and yield the output of each.

        Raises:
            PageError: a command fails, or is not one that a page may have.
        """
        for block in blocks_of(page):
            if block.packaged and block.packaged not in PACKAGED:
                raise PageError(f"{self.name}:{block.line}: there is no model {block.packaged}")
            if block.not_run or (block.packaged and not self.packaged):
                continue
            with contextlib.chdir(self.folder):
                if block.language == "python":
                    yield self._python(block)
                elif block.language == "console":
                    yield Output(block, self._console(block))
                elif block.language == "bash":
                    for command in commands_of(block.text):
                        self._command(command, block)
                    yield Output(block, block.text)

    def _python(self, block: Block) -> Output:
        # Line numbers are those of the page.
        tree = ast.parse("\n" * block.line + block.text, self.name)
        last = tree.body.pop() if block.figure else None
        figure = ""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(tree, self.name, "exec"), self.names)
            if last is not None:
                if not isinstance(last, ast.Expr):
                    raise PageError(f"{self.name}:{block.line}: its last line is no figure")
                code = compile(ast.Expression(last.value), self.name, "eval")
                figure = figure_svg(eval(code, self.names))
        return Output(block, printed.getvalue(), figure)

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


def check(path: Path, folder: Path, *, packaged: bool = False) -> None:
    """Run a page, and compare its outputs with those on the page.

    Args:
        path: the page.
        folder: an empty folder, in which it runs.
        packaged: whether blocks that need a model of another package run as well.

    Raises:
        PageError: outputs differ, or a block fails.
    """
    text = path.read_text(encoding="utf-8")
    for output in PageRun(path.name, folder, packaged).outputs(text):
        block = output.block
        expected = block.text if block.language == "console" else None
        if block.printed is not None and not block.printed.not_run:
            expected = block.printed.text
        if expected is not None and not agrees(output.printed, expected):
            raise PageError(
                f"{path.name}:{block.line}: the page has\n{expected}\nbut this was printed:\n"
                f"{output.printed}\nIf that is right: python -m tools.site.pages {path}"
            )
        if output.figure:
            _check_figure(path.parent / block.figure, output.figure)


def _check_figure(path: Path, drawn: str) -> None:
    """Compare the texts of a figure, which its numbers are among, with those of the page's file."""
    texts = [
        "\n".join(unescape(text) for text in SVG_TEXT.findall(svg))
        for svg in (drawn, path.read_text(encoding="utf-8") if path.is_file() else "")
    ]
    if not agrees(*texts):
        raise PageError(f"{path} is not what its page draws; python -m tools.site.pages PAGE")


def rewritten(path: Path, folder: Path, *, packaged: bool = False) -> str:
    """The page with the new outputs of its blocks; outputs that still agree are not changed.

    The figures of the blocks are written beside the page.
    """
    text = path.read_text(encoding="utf-8")
    ran = list(PageRun(path.name, folder, packaged).outputs(text))
    for output in reversed(ran):
        block, printed = output.block, output.printed
        target = block if block.language == "console" else block.printed
        if target is not None and not agrees(printed, target.text):
            lines = "\n".join(_lines(printed)) + "\n"
            text = text[: target.start] + lines + text[target.start + len(target.text) :]
        if output.figure:
            file = path.parent / block.figure
            file.parent.mkdir(exist_ok=True)
            file.write_text(output.figure, encoding="utf-8")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run pages, and rewrite their outputs and figures."""
    parser = argparse.ArgumentParser(prog="python -m tools.site.pages")
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument(
        "--packaged", action="store_true", help="also run what needs models of other packages"
    )
    options = parser.parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"
    for path in options.pages:
        with tempfile.TemporaryDirectory() as folder:
            text = rewritten(path, Path(folder), packaged=options.packaged)
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
