"""Small tables for reprs: aligned text in a terminal, escaped HTML in a notebook."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

MAX_CHARACTERS = 120
"""Maximum number of characters of a cell; longer ones are truncated."""


@dataclass(frozen=True)
class Table:
    """A table with a title.

    Attributes:
        title: a single line.
        columns: the heading of each column; empty for pairs of a name and a value.
        rows: the cells of each row.
        most: maximum number of rows to print; for the others, only their number is printed.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    most: int = 24

    def to_text(self) -> str:
        """The title and one line per row, in aligned columns."""
        lines = [list(self.columns)] if self.columns else []
        lines += [[_cell(value) for value in row] for row in self.rows[: self.most]]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        printed = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            for line in lines
        ]
        return "\n".join(
            [_cell(self.title), *(f"  {line}".rstrip() for line in printed), *self._rest()]
        )

    def to_html(self) -> str:
        """The table as HTML, in which all text is escaped."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        rows = [
            "".join(f"<td>{escape(_cell(value))}</td>" for value in row)
            for row in self.rows[: self.most]
        ]
        lines = [f"<tr>{line}</tr>" for line in ([head] if head else []) + rows]
        rest = "".join(f"<p>{escape(line.strip())}</p>" for line in self._rest())
        return f"<p>{escape(_cell(self.title))}</p><table>{''.join(lines)}</table>{rest}"

    def _rest(self) -> list[str]:
        left = len(self.rows) - self.most
        return [f"  … {left} more"] if left > 0 else []


def _cell(value: object) -> str:
    """A value as text: floats with four digits, and without line breaks."""
    if value is None:
        return "–"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    text = "".join(char if char.isprintable() else "␣" for char in text)
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
