"""A site: an index, a page an analysis, what is known of each head, and a summary in Markdown."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analyses.result import Result
from apps.frame_table import table_of_frame
from apps.method_text import Paragraph, method_text, paragraphs, question
from apps.report.page import page, provenance_facts

PAGE_FACTS, RUN = "page.json", "run.json"
TOP = 10
"""Rows of a page's table in the summary."""
ROWS_OF_HEAD = 5
"""Rows that name a head, of one table."""
ASIDE = ("metric", "unit", "method")
"""Columns that are the same in all rows of a table, and stand in words above it."""
HEAD = re.compile(r"(?:\w+\.)?L\d+H\d+")
PER_RESULT = (
    "tokens SHA-256",
    "lens SHA-256",
    "metric",
    "method",
    "seed",
    "model",
    "weights SHA-256",
)

DEPENDS = (
    *("page", "model", "weights", "tokens", "dtype and device", "processor", "threads", "seed"),
    "code",
)
"""Columns of the summary's provenance."""


@dataclass(frozen=True)
class PageFacts:
    """What an index says of a page.

    Attributes:
        question: that it answers.
        conclusion: what was found.
        method: how it is computed.
        columns: of its table: title and alignment.
        rows: the first of them.
        facts: its provenance.
        run: the contents of its ``run.json``.
    """

    question: str
    conclusion: str
    method: list[dict[str, Any]]
    columns: list[list[str]]
    rows: list[list[str]]
    facts: dict[str, str]
    run: dict[str, Any]

    @classmethod
    def of(
        cls,
        result: Result,
        columns: Sequence[tuple[str, str]],
        rows: Sequence[tuple[str, ...]],
        found: str,
    ) -> "PageFacts":
        """Of a result, with its table and what was found."""
        text = method_text(result)
        return cls(
            question(text),
            found,
            [asdict(one) for one in paragraphs(text)],
            [[*one] for one in columns],
            [[*one] for one in rows[:TOP]],
            provenance_facts(result),
            {},
        )

    def plain(self) -> dict[str, Any]:
        """As JSON has it, without ``run``, which has a file of its own."""
        values = asdict(self)
        del values["run"]
        return values

    @classmethod
    def read(cls, folder: Path) -> "PageFacts":
        """Of a page's folder."""
        own = json.loads((folder / PAGE_FACTS).read_text(encoding="utf-8"))
        run = json.loads((folder / RUN).read_text(encoding="utf-8"))
        del own["key"]
        return cls(**own, run=run)

    @property
    def model(self) -> str:
        """That was asked."""
        return self.facts["model"]

    @property
    def paragraphs(self) -> list[Paragraph]:
        """How it is computed."""
        return [Paragraph(**one) for one in self.method]

    @property
    def asked_on(self) -> str:
        """The prompts, in words."""
        prompts = self.run.get("prompts")
        if prompts is None:
            return ""
        return f"{prompts['n']} prompts of {Path(prompts['file']).stem}"


def write_site(
    title: str, pages: Mapping[str, PageFacts], left_out: Mapping[str, str], folder: Path
) -> None:
    """Write ``index.html``, ``heads.html`` and ``summary.md`` beside the folders of the pages."""
    heads = heads_of(pages, folder)
    shared = {"model": title, "title": title, "prompts": (), "left_out": left_out}
    models = {one.model: one.facts["weights SHA-256"] for one in pages.values()}
    first = next(iter(pages.values()))
    facts = {name: value for name, value in first.facts.items() if name not in PER_RESULT}
    facts |= {f"{name}, weights SHA-256": digest for name, digest in models.items()}
    files = {
        "index.html": page(
            "index.html", {}, **shared, pages=pages, facts=facts, has_heads=bool(heads)
        ),
        "heads.html": page("head_search.html", {}, **shared, pages=pages, heads=heads, facts={}),
        "summary.md": summary(title, pages, left_out),
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")


def heads_of(
    pages: Mapping[str, PageFacts], folder: Path
) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """What each page says of each head: by model and head, then by page: its columns and rows.

    A page whose settings name a head (``--ov L1H0``) is of that head as a whole: it has no rows.
    """
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for name, own in pages.items():
        for value in own.run["settings"].values():
            if isinstance(value, str) and HEAD.fullmatch(value):
                found.setdefault((own.model, value), {})[name] = {"rows": []}
        for file in sorted((folder / name).glob("*.parquet")):
            if not file.stem.endswith("_by_prompt"):
                frame = pd.read_parquet(file)
                for head, rows in _rows_of_heads(frame).items():
                    kept = rows.drop(columns=[name for name in ASIDE if name in frame])
                    columns, cells = table_of_frame(kept, ROWS_OF_HEAD)
                    entry = {
                        "columns": columns,
                        "rows": cells,
                        "left_out": len(rows) - len(cells),
                        "measured": _measured(frame),
                    }
                    found.setdefault((own.model, head), {}).setdefault(name, entry)
    return dict(sorted(found.items(), key=lambda item: (item[0][0], _order(item[0][1]))))


def _measured(frame: pd.DataFrame) -> str:
    """What the effects of a table are of, which is the same in all rows."""
    return ", ".join(str(frame[name].iloc[0]) for name in ASIDE if name in frame and len(frame))


def _rows_of_heads(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of a table that name a head, by head."""
    columns = [name for name in ("name", "writer", "reader") if name in frame]
    heads: dict[str, list[int]] = {}
    for number, cells in enumerate(frame[columns].astype(str).itertuples(index=False)):
        for head in dict.fromkeys(head for cell in cells for head in HEAD.findall(cell)):
            heads.setdefault(head, []).append(number)
    return {head: frame.iloc[rows] for head, rows in heads.items()}


def _order(head: str) -> tuple[object, ...]:
    """Heads in the order of layers, then of their indices."""
    return head.rpartition(".")[0], *map(int, re.findall(r"\d+", head.rpartition(".")[2]))


# ---- Markdown ----------------------------------------------------------------------------------


def summary(title: str, pages: Mapping[str, PageFacts], left_out: Mapping[str, str]) -> str:
    """The site as one Markdown document, for the appendix of a paper."""
    lines = [f"# {_plain(title)}", ""]
    for name, own in pages.items():
        lines += [f"## {_plain(own.question)} {_plain(own.model)}", "", _plain(own.conclusion), ""]
        lines += [*_table(own.columns, own.rows), ""]
        asked = f" on {own.asked_on}" if own.asked_on else ""
        lines += [f"`{own.run['command']}`{asked}; tables and figures in `{name}/`.", ""]
    lines += ["## Methods", ""]
    for question_, method in {one.question: one.paragraphs for one in pages.values()}.items():
        lines += [f"### {_plain(question_)}", ""]
        for paragraph in method:
            fence = (
                ["```text", paragraph.text, "```"] if paragraph.is_equation else [paragraph.text]
            )
            lines += [*fence, ""]
    if left_out:
        lines += ["## Left out", ""]
        lines += [f"- {name}: {_plain(why)}" for name, why in left_out.items()]
        lines += [""]
    lines += ["## Provenance", "", *_provenance(pages), ""]
    return "\n".join(lines)


def _provenance(pages: Mapping[str, PageFacts]) -> list[str]:
    rows = [
        [
            name,
            own.model,
            own.facts["weights SHA-256"][:12],
            own.facts["tokens SHA-256"][:12],
            own.facts["dtype, device"],
            own.run["device"],
            str(own.run["threads"]),
            str(own.facts["seed"]),
            str(own.run["code"]["commit"] or own.run["code"]["version"])[:12],
        ]
        for name, own in pages.items()
    ]
    return _table([[title, "left"] for title in DEPENDS], rows)


def _table(columns: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> list[str]:
    heads = [_cell(title) for title, _ in columns]
    sides = ["---:" if side == "right" else "---" for _, side in columns]
    return [_row(heads), _row(sides), *(_row([_cell(cell) for cell in row]) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    """A text on one line in which nothing is HTML."""
    return " ".join(text.split()).replace("<", "&lt;").replace("`", "'")
