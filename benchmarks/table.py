"""Tables of comparisons, one row each, with marks; written as text, JSON or Markdown."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing import Absent

MARKERS = ("<!-- figures of make bench -->", "<!-- end of figures -->")
"""The comments around the figures in documents."""


@dataclass(frozen=True)
class Mark:
    """A bound on ours / theirs.

    Attributes:
        bound: the bound.
        times_less: whether theirs must be at least ``bound`` times ours; otherwise ours must be at
            most ``bound`` times theirs.
    """

    bound: float
    times_less: bool = False

    def format(self, ratio: float) -> str:
        """A ratio (ours / theirs) as text, in the direction of the mark."""
        return f"{1 / ratio:.2f} × less" if self.times_less else f"{ratio:.2f}"

    def holds(self, ratio: float) -> bool:
        """Whether a ratio (ours / theirs) is within the bound."""
        return 1 / ratio >= self.bound if self.times_less else ratio <= self.bound

    def __str__(self) -> str:
        """``≤ 1.05`` or ``≥ 4 × less``."""
        return f"≥ {self.bound:.4g} × less" if self.times_less else f"≤ {self.bound:.4g}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison.

    Attributes:
        section: section of the benchmarks.
        work: name of the work that is measured.
        kernel: our kernel.
        against: name of the work that it is compared with; empty if there is none.
        ours: our amount.
        theirs: the amount of the other work.
        unit: unit of both amounts.
        ratio: ours / theirs; the median over rounds if both were timed in turn.
        mark: bound on the ratio, if there is one.
        unjudged: why the mark does not apply here.
        rounds: number of times that each was timed; 0 for counts.
        multiply_adds: number of multiply-adds of our work.
        of_limit: our seconds divided by those of the multiply-adds alone.
        why: why it was not measured.
        note: a remark.
    """

    section: str
    work: str
    kernel: str
    against: str = ""
    ours: float | None = None
    theirs: float | None = None
    unit: str = "s"
    ratio: float | None = None
    mark: Mark | None = None
    unjudged: str = ""
    rounds: int = 0
    multiply_adds: float | None = None
    of_limit: float | None = None
    why: str = ""
    note: str = ""

    @property
    def verdict(self) -> str:
        """``holds``, ``misses``, or the reason why neither applies."""
        if self.why:
            return f"not measured: {self.why}"
        if self.mark is None or self.ratio is None:
            return ""
        if self.unjudged:
            return f"not judged: {self.unjudged}"
        return "holds" if self.mark.holds(self.ratio) else "misses"

    def cells(self) -> list[str]:
        """One text for each column of :data:`COLUMNS`."""
        ratio = "" if self.ratio is None else (self.mark or Mark(0)).format(self.ratio)
        return [
            self.work,
            self.kernel,
            self.against,
            amount(self.ours, self.unit),
            amount(self.theirs, self.unit),
            ratio,
            "" if self.mark is None else str(self.mark),
            str(self.rounds or ""),
            "; ".join(filter(None, (self.verdict, self.note))),
            "" if self.multiply_adds is None else f"{self.multiply_adds / 1e9:.3g}",
            "" if self.of_limit is None else f"{self.of_limit:.2f}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the verdict."""
        return {**asdict(self), "verdict": self.verdict}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Row":
        """The inverse of :meth:`to_dict`."""
        rest = {name: value for name, value in data.items() if name not in ("verdict", "mark")}
        mark = data.get("mark")
        return cls(**rest, mark=None if mark is None else Mark(**mark))


COLUMNS = (
    "work",
    "kernel",
    "against",
    "ours",
    "theirs",
    "ratio",
    "mark",
    "rounds",
    "",
    "G mul-adds",
    "of limit",
)
_VERDICT = COLUMNS.index("")
GROUPED_FROM = 1e4
"""Smallest amount that is written with thousands separators."""


def amount(value: float | None, unit: str) -> str:
    """A number with its unit; empty for ``None``."""
    if value is None:
        return ""
    if unit == "s" and value < 1:
        return f"{value * 1000:.3g} ms"
    digits = f"{value:.4g}" if value < GROUPED_FROM else f"{value:,.0f}"
    return f"{digits} {unit}".rstrip()


def to_text(rows: Sequence[Row], machine: dict[str, Any]) -> str:
    """The table for a terminal, section by section, and a last line that counts the marks."""
    lines = [f"{name:<14} {value}" for name, value in machine.items()]
    cells = [row.cells() for row in rows]
    free = [index for index in range(len(COLUMNS)) if index != _VERDICT]
    width = {i: max(len(COLUMNS[i]), *(len(c[i]) for c in cells)) for i in free}
    order = [*free, _VERDICT]

    def line(texts: Sequence[str]) -> str:
        padded = [texts[i].ljust(width.get(i, 0)) for i in order]
        return "  ".join(padded).rstrip()

    section = ""
    for row, texts in zip(rows, cells, strict=True):
        if row.section != section:
            section = row.section
            lines += ["", f"== {section}", line(COLUMNS)]
        lines.append(line(texts))
    return "\n".join([*lines, "", tally(rows)])


def tally(rows: Sequence[Row]) -> str:
    """How many marks hold, are missed, or were not judged."""
    marked = [row.verdict for row in rows if row.mark is not None]
    holding, missed = marked.count("holds"), marked.count("misses")
    return (
        f"{len(marked)} marks: {holding} hold, {missed} missed, "
        f"{len(marked) - holding - missed} not measured or not judged"
    )


def to_markdown(rows: Sequence[Row], machine: dict[str, Any]) -> str:
    """The rows as a table for docs/speed.md."""
    described = ", ".join(f"{name} {value}" for name, value in machine.items())
    head = COLUMNS[: _VERDICT + 1]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    lines += [
        f"| {' | '.join(cell.replace('|', '∣') for cell in row.cells()[: len(head)])} |"
        for row in rows
    ]
    return "\n".join([*lines, "", f"Measured with {described}."])


LIBRARIES = ("transformers", "TransformerLens", "nnsight")
"""In rows of the short table, ``against`` begins with one of these."""
SHORT_COLUMNS = ("work", "against", "theirs", "ours", "ours, packed kernel")
_SHORT_MACHINE = ("processor", "threads", "dtype", "torch", "transformers", "transformer-lens")


def to_short_markdown(rows: Sequence[Row], machine: dict[str, Any]) -> str:
    """The comparisons with other libraries, for the README and the first page.

    The table has the last work of each section, which is the largest, with the kernels in adjacent
    columns. Numbers in parentheses say how many times less ours is.
    """
    last = {row.section: row.work for row in rows if _is_short(row)}
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        if _is_short(row) and last[row.section] == row.work:
            cells = lines.setdefault((row.work, row.against), {"": amount(row.theirs, row.unit)})
            times = f" ({1 / row.ratio:.1f} ×)" if row.ratio else ""
            cells["packed" if row.kernel == "packed" else "default"] = (
                f"{amount(row.ours, row.unit)}{times}"
            )
    table = [f"| {' | '.join(SHORT_COLUMNS)} |", f"|{' --- |' * len(SHORT_COLUMNS)}"]
    for names, cells in lines.items():
        texts = (*names, *(cells.get(kernel, "") for kernel in ("", "default", "packed")))
        table.append(f"| {' | '.join(texts)} |")
    described = ", ".join(f"{name} {machine[name]}" for name in _SHORT_MACHINE if name in machine)
    return "\n".join([*table, "", f"`make bench`: {described}; times less in parentheses."])


def _is_short(row: Row) -> bool:
    """Whether a row compares with a library and has a mark (or compares with nnsight)."""
    judged = row.mark is not None or row.against.startswith("nnsight")
    return judged and row.theirs is not None and row.against.startswith(LIBRARIES)


def write_between(path: Path, figures: str, markers: tuple[str, str]) -> None:
    """Replace the text between two markers of a file.

    Raises:
        Absent: the file has no such markers.
    """
    opening, closing = markers
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(opening)
    _, end, after = rest.partition(closing)
    if not begin or not end:
        raise Absent(f"{path} has no {opening} … {closing} to write between")
    path.write_text(f"{before}{begin}\n{figures}\n{end}{after}", encoding="utf-8")


def to_json(rows: Sequence[Row], machine: dict[str, Any]) -> str:
    """All rows and the machine as JSON; the inverse is :func:`from_json`."""
    data = {"machine": machine, "rows": [row.to_dict() for row in rows]}
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> tuple[list[Row], dict[str, Any]]:
    """Rows and machine from a text written by :func:`to_json`.

    Raises:
        Absent: the text was not written by it.
    """
    try:
        data = json.loads(text)
        return [Row.from_dict(row) for row in data["rows"]], dict(data["machine"])
    except (ValueError, TypeError, KeyError) as error:
        raise Absent(f"this is not a file written by --out: {error!r}") from error
