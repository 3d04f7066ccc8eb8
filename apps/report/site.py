"""A site of reports: an index, a page per analysis, the results by head, a Markdown summary."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analyses.results import Result
from apps.frame_table import table_of_frame
from apps.method_text import Paragraph, method_text, paragraphs, question
from apps.report.page import page, provenance_facts
from interp.errors import InterpError, InvalidInput, reason
from interp.io import UNREADABLE, as_object, build, read_json, value_of

PAGE_FACTS, RUN = "page.json", "run.json"
MAX_BYTES = 2**26
"""Maximum size of each of the two files."""
TOP = 10
"""Number of rows of each table in the summary."""
ROWS_OF_HEAD = 5
"""Number of rows of each table that are listed for a head."""
CONSTANT_COLUMNS = ("metric", "unit", "method")
"""Columns with the same value in all rows of a table, which is given above the table instead."""
HEAD = re.compile(r"(?:\w+\.)?L\d+H\d+")
FACTS_READ = dict.fromkeys(("model", "weights SHA-256", "tokens SHA-256", "dtype, device"), str)
"""Facts of a page that a site reads."""
RUN_READ: dict[str, Any] = {
    **{"command": str, "settings": dict[str, Any], "device": str, "threads": int},
    **{"code": dict[str, Any], "prompts": dict[str, Any] | None},
}
"""Entries of ``run.json`` that a site reads."""
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
    """The facts about a page that the index, the results by head and the summary list.

    Attributes:
        question: the question that the analysis answers.
        conclusion: what was found.
        method: the paragraphs on how it is computed.
        columns: title and alignment of each column of its table.
        rows: the first rows of its table.
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
        conclusion: str,
    ) -> "PageFacts":
        """The facts about the page of a result, from its table and conclusion."""
        text = method_text(result)
        return cls(
            question(text),
            conclusion,
            [asdict(paragraph) for paragraph in paragraphs(text)],
            [[*column] for column in columns],
            [[*row] for row in rows[:TOP]],
            provenance_facts(result),
            {},
        )

    def plain(self) -> dict[str, Any]:
        """The facts as plain data, without ``run``, which has a file of its own."""
        values = asdict(self)
        del values["run"]
        return values

    @classmethod
    def read(cls, folder: Path) -> "PageFacts":
        """Read the facts from the folder of a page.

        Raises:
            InvalidInput: they can't be read, or lack a field.
        """
        file = folder / PAGE_FACTS
        try:
            content = as_object(read_json(file, MAX_BYTES), "it")
            run = as_object(read_json(folder / RUN, MAX_BYTES), RUN)
            content.pop("key", None)
            facts = build(cls, {**content, "run": run}, "it")
            for paragraph in facts.method:
                build(Paragraph, paragraph, "method")
            for name, kind in FACTS_READ.items():
                value_of(kind, facts.facts.get(name), f"facts.{name}")
            for name, kind in RUN_READ.items():
                value_of(kind, run.get(name), f"{RUN}.{name}")
        except (*UNREADABLE, InterpError) as error:
            raise InvalidInput(f"{file} can't be read: {reason(error).rstrip('.')}.") from error
        return facts

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.facts["model"]

    @property
    def paragraphs(self) -> list[Paragraph]:
        """The paragraphs on how it is computed."""
        return [Paragraph(**paragraph) for paragraph in self.method]

    @property
    def asked_on(self) -> str:
        """The number and name of the prompts; ``""`` if the analysis reads none."""
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
    models = {
        page_facts.model: page_facts.facts["weights SHA-256"] for page_facts in pages.values()
    }
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
    """The results on each head: by model and head, then by page, the columns and rows.

    A page whose settings name a head (``--ov L1H0``) is about that head as a whole and has no rows.
    """
    by_head: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for name, facts in pages.items():
        for value in facts.run["settings"].values():
            if isinstance(value, str) and HEAD.fullmatch(value):
                by_head.setdefault((facts.model, value), {})[name] = {"rows": []}
        for file in sorted((folder / name).glob("*.parquet")):
            if not file.stem.endswith("_by_prompt"):
                frame = pd.read_parquet(file)
                for head, rows in _rows_of_heads(frame).items():
                    constant = [name for name in CONSTANT_COLUMNS if name in frame]
                    columns, cells = table_of_frame(rows.drop(columns=constant), ROWS_OF_HEAD)
                    entry = {
                        "columns": columns,
                        "rows": cells,
                        "left_out": len(rows) - len(cells),
                        "measured": _measured(frame),
                    }
                    by_head.setdefault((facts.model, head), {}).setdefault(name, entry)
    return dict(sorted(by_head.items(), key=lambda item: (item[0][0], _order(item[0][1]))))


def _measured(frame: pd.DataFrame) -> str:
    """The metric, unit and method of a table."""
    names = [name for name in CONSTANT_COLUMNS if name in frame and len(frame)]
    return ", ".join(str(frame[name].iloc[0]) for name in names)


def _rows_of_heads(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of a table that mention a head, by head."""
    columns = [name for name in ("name", "writer", "reader") if name in frame]
    heads: dict[str, list[int]] = {}
    for number, cells in enumerate(frame[columns].astype(str).itertuples(index=False)):
        for head in dict.fromkeys(head for cell in cells for head in HEAD.findall(cell)):
            heads.setdefault(head, []).append(number)
    return {head: frame.iloc[rows] for head, rows in heads.items()}


def _order(head: str) -> tuple[object, ...]:
    """The key that sorts heads by layer, then by index."""
    return head.rpartition(".")[0], *map(int, re.findall(r"\d+", head.rpartition(".")[2]))


# ---- Markdown ----------------------------------------------------------------------------------


def summary(title: str, pages: Mapping[str, PageFacts], left_out: Mapping[str, str]) -> str:
    """The site as one Markdown document, for the appendix of a paper."""
    lines = [f"# {_plain(title)}", ""]
    for name, facts in pages.items():
        lines += [
            f"## {_plain(facts.question)} {_plain(facts.model)}",
            "",
            _plain(facts.conclusion),
            "",
        ]
        lines += [*_table(facts.columns, facts.rows), ""]
        asked = f" on {facts.asked_on}" if facts.asked_on else ""
        lines += [f"`{_code(facts.run['command'])}`{asked}; tables and figures in `{name}/`.", ""]
    lines += ["## Methods", ""]
    for question_, method in {facts.question: facts.paragraphs for facts in pages.values()}.items():
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
            page_facts.model,
            page_facts.facts["weights SHA-256"][:12],
            page_facts.facts["tokens SHA-256"][:12],
            page_facts.facts["dtype, device"],
            page_facts.run["device"],
            str(page_facts.run["threads"]),
            str(page_facts.facts["seed"]),
            str(page_facts.run["code"]["commit"] or page_facts.run["code"]["version"])[:12],
        ]
        for name, page_facts in pages.items()
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
    """A text on one line, without HTML, code marks, links or images."""
    without_links = re.sub(r"([\\\[\]])", r"\\\1", _code(text))
    return without_links.replace("<", "&lt;")


def _code(text: str) -> str:
    """A text on one line that does not end a code span."""
    return " ".join(text.split()).replace("`", "'")
