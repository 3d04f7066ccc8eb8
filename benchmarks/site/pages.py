"""The code of the pages: blocks of Markdown, run as they stand, and what they print.

    python -m benchmarks.site.pages docs/how-to/*.md     # run the pages, rewrite what they print

Of a page, all blocks of Python share one namespace and one empty folder, where its commands run as
well. A block of text that follows a block of Python is what that prints. In a ``console`` block,
lines that begin with ``$`` are commands, and the others are what they print. A line ``…`` stands
for any lines. In a table whose last column is headed ``here``, the code of that column is run, too:
pages that compare calls have such. A block that can't be run says why in its title, which readers
see::

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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from apps.cli import app

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)([^\n`]*)\n(.*?)^```[ ]*$", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r'title="Not run in the tests: ([^"]+)"')
CALLS = re.compile(r"^\|[^\n]*\| here \|\n\|[-| ]+\|\n((?:\|.*\|\n)+)", re.MULTILINE)
REST = "…"
"""Stands for any lines of an output."""


class PageError(AssertionError):
    """A block that fails, or prints something else than its page has."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: after the opening fence.
        text: its lines.
        line: of the page where it begins, from 1.
        not_run: why it is not run; empty if it is.
        start: where its text begins in the page.
        printed: the block of text that holds what it prints, if the page has one.
    """

    language: str
    text: str
    line: int
    not_run: str
    start: int
    printed: "Block | None" = None


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page in order; what a block of Python prints is a part of it."""
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(page):
        reason = TITLE.search(match[2])
        line = page.count("\n", 0, match.start()) + 1
        block = Block(match[1], match[3], line, reason[1] if reason else "", match.start(3))
        follows = (
            bool(found) and found[-1].printed is None and not page[end : match.start()].strip()
        )
        if block.language == "text" and follows and found[-1].language == "python":
            found[-1] = replace(found[-1], printed=block)
        else:
            found.append(block)
        end = match.end()
    return sorted([*found, *_calls(page)], key=lambda block: block.start)


def _calls(page: str) -> Iterator[Block]:
    """The code in the last column of tables that compare calls, a block a row."""
    for table in CALLS.finditer(page):
        start = table.start(1)
        for row in table[1].splitlines(keepends=True):
            last = row.rstrip("|\n ").rpartition(" | ")[2]
            code = "\n".join(re.findall(r"`([^`]+)`", last))
            if code:
                yield Block("python", code, page.count("\n", 0, start) + 1, "", start)
            start += len(row)


def agrees(printed: str, expected: str) -> bool:
    """Whether an output is what a page has; ``…`` alone on a line stands for any lines."""
    parts = [[]]
    for line in _lines(expected):
        if line.strip() == REST:
            parts.append([])
        else:
            parts[-1].append(re.escape(line))
    pattern = r"(?:\n.*)*\n".join("\n".join(part) for part in parts if part)
    opening = r"(?:.*\n)*" if not parts[0] else ""
    closing = r"(?:\n.*)*" if len(parts) > 1 and not parts[-1] else ""
    return re.fullmatch(opening + pattern + closing, "\n".join(_lines(printed))) is not None


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


@dataclass(eq=False)
class PageRun:
    """The run of one page: its namespace and folder.

    Attributes:
        name: of the page, for tracebacks.
        names: what its code has defined.
        folder: where it runs; empty at first.
    """

    name: str
    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})

    def outputs(self, page: str) -> Iterator[tuple[Block, str]]:
        """Run the blocks in order; each with what it printed (console: the whole block anew).

        Raises:
            PageError: a command failed, or is none that a page may have.
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
        code = "\n" * block.line + block.text  # lines are counted as in the page
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, self.name, "exec"), self.names)
        return printed.getvalue()

    def _console(self, block: Block) -> str:
        anew: list[str] = []
        for line in block.text.splitlines():
            if line.startswith("$ "):
                anew += [line, *_lines(self._command(line[2:], block))]
        return "\n".join(anew) + "\n"

    def _command(self, command: str, block: Block) -> str:
        """Run a command of interp; of other commands, check that there is one."""
        first, *rest = shlex.split(command, comments=True)
        if first == "interp":
            return self._interp(rest, block)
        known = {
            "make": lambda: re.search(rf"^{rest[0]}:", _makefile(), re.MULTILINE),
            "python": lambda: rest[0] == "-m" and find_spec(rest[1]),
            "pip": lambda: rest[0] == "install",
        }
        if first not in known or not known[first]():
            raise PageError(f"{self.name}:{block.line}: there is no command {command!r}")
        return ""

    def _interp(self, arguments: Sequence[str], block: Block) -> str:
        # A server would run until it is stopped.
        shown = [*arguments, "--help"] if arguments[0] == "explore" else list(arguments)
        done = CliRunner().invoke(app, shown)
        if done.exit_code:
            raise PageError(f"{self.name}:{block.line}: interp {arguments} failed: {done.output}")
        return done.output


def commands_of(text: str) -> list[str]:
    """The commands of a block of bash, without comments; a backslash joins lines."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if shlex.split(line, comments=True)]


def _makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def check(path: Path, folder: Path) -> None:
    """Run a page, and compare what it prints with what it has.

    Raises:
        PageError: they differ, or a block failed.
    """
    text = path.read_text(encoding="utf-8")
    for block, printed in PageRun(path.name, folder).outputs(text):
        expected = block.text if block.language == "console" else None
        if block.printed is not None and not block.printed.not_run:
            expected = block.printed.text
        if expected is not None and not agrees(printed, expected):
            raise PageError(
                f"{path.name}:{block.line}: the page has\n{expected}\nbut this was printed:\n"
                f"{printed}\nIf that is right: python -m benchmarks.site.pages {path}"
            )


def rewritten(path: Path, folder: Path) -> str:
    """The page with what its blocks print now; outputs that still agree are left as they are."""
    text = path.read_text(encoding="utf-8")
    ran = list(PageRun(path.name, folder).outputs(text))
    for block, printed in reversed(ran):
        target = block if block.language == "console" else block.printed
        if target is not None and not agrees(printed, target.text):
            lines = "\n".join(_lines(printed)) + "\n"
            text = text[: target.start] + lines + text[target.start + len(target.text) :]
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run pages and rewrite what they print."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name in sys.argv[1:] if arguments is None else arguments:
        with tempfile.TemporaryDirectory() as folder:
            Path(name).write_text(rewritten(Path(name), Path(folder)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
