"""Reads saved reports: their views, tables, conclusions and provenance."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd

from apps.frame_table import table_of_frame
from apps.widget.pictures import View, table_view
from interp.errors import InvalidInput

PAGE = "report.html"
MAX_ROWS = 1000
"""Largest number of rows of a table that are shown."""


@dataclass(frozen=True)
class Written:
    """A saved report.

    Attributes:
        name: the name of its folder, or of its file without the extension.
        model: the name of the model.
        conclusion: the conclusions of its analyses.
        facts: its provenance, by name.
        views: the views of the page, then the tables of the folder.
    """

    name: str
    model: str
    conclusion: str
    facts: dict[str, str]
    views: list[View]


def read_written(path: Path) -> list[Written]:
    """Read the reports at a path: a page, the output folder of an analysis, or a folder of those.

    Raises:
        InvalidInput: there is no report, or one can't be read.
    """
    pages = [path] if path.is_file() else sorted([*path.glob(PAGE), *path.glob(f"*/{PAGE}")])
    if not pages:
        raise InvalidInput(
            f"No report in {path}: expected an HTML page, a folder with {PAGE}, or a folder of "
            "such folders; `interp ablate --out FOLDER` writes one."
        )
    return [_read(page) for page in pages]


def _read(page: Path) -> Written:
    parser = _Page()
    try:
        parser.feed(page.read_text(encoding="utf-8"))
        views = [
            {**view, "id": f"{name}_{view['id']}"}
            for name, text in parser.mounts.items()
            for view in json.loads(text)["views"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{page} can't be read as a report: {error}") from error
    if not parser.mounts or "model" not in parser.facts:
        raise InvalidInput(
            f"{page} is not a report of interp: it contains no views, or does not name its model."
        )
    in_folder = page.name == PAGE
    return Written(
        name=page.resolve().parent.name if in_folder else page.stem,
        model=parser.facts["model"],
        conclusion=" ".join(parser.conclusions),
        facts=parser.facts,
        views=[*views, *(_tables(sorted(page.parent.glob("*.csv"))) if in_folder else [])],
    )


def _tables(files: Sequence[Path]) -> list[View]:
    """The tables beside a report."""
    views: list[View] = []
    for file in files:
        try:
            frame = pd.read_csv(file)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{file} can't be read as a table: {error}") from error
        note = f"The first {MAX_ROWS} of {len(frame)} rows." if len(frame) > MAX_ROWS else ""
        table = table_of_frame(frame, MAX_ROWS)
        views.append(table_view(f"table_{file.stem}", file.name, table, note))
    return views


class _Page(HTMLParser):
    """Parser of the parts of a report page that are read.

    Attributes:
        mounts: the JSON of each mount of the widget, by name.
        conclusions: the conclusions of its analyses.
        facts: the provenance.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mounts: dict[str, str] = {}
        self.conclusions: list[str] = []
        self.facts: dict[str, str] = {}
        self._into: list[str] | None = None
        self._term = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin to collect the text of an element that is read."""
        given = dict(attrs)
        is_data = tag == "script" and given.get("type") == "application/json"
        if is_data:
            self._term = (given.get("id") or "").removeprefix("views-")
        if is_data or tag in ("dt", "dd") or given.get("class") == "conclusion":
            self._into = []

    def handle_data(self, data: str) -> None:
        """Collect a part of the text."""
        if self._into is not None:
            self._into.append(data)

    def handle_endtag(self, tag: str) -> None:
        """Store the text that was collected."""
        if self._into is None or tag not in ("script", "dt", "dd", "p"):
            return
        text, self._into = "".join(self._into), None
        if tag == "script":
            self.mounts[self._term] = text
        elif tag == "dt":
            self._term = text
        elif tag == "dd":
            self.facts[self._term] = text
        else:
            self.conclusions.append(" ".join(text.split()))
