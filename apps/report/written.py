"""Reads saved reports: their views, tables, conclusions and provenance."""

import csv
from dataclasses import dataclass
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from apps.frame_table import table_of_frame
from apps.widget.pictures import View, table_view
from interp.errors import InterpError, InvalidInput, reason, shorten
from interp.io import UNREADABLE, as_object, is_file, parse_json, read_bounded, value_of

PAGE = "report.html"
MAX_ROWS = 1000
"""Largest number of rows of a table that are shown."""
MAX_BYTES, MAX_COLUMNS = 2**26, 1000
"""Maximum size of a page or a table, and number of columns of a table."""
MAX_REPORTS, MAX_TABLES = 1000, 100
"""Maximum number of reports in a folder, and of tables beside a report."""


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
    is_page = is_file(path)
    pages = [path.resolve()] if is_page else sorted([*path.glob(PAGE), *path.glob(f"*/{PAGE}")])
    if not pages:
        raise InvalidInput(
            f"No report in {path}: expected an HTML page, a folder with {PAGE}, or a folder of "
            "such folders; `interp ablate --out FOLDER` writes one."
        )
    if len(pages) > MAX_REPORTS:
        raise InvalidInput(f"{path} has more than {MAX_REPORTS} reports; give some of its folders.")
    return [_read(page, page.parent if is_page else path) for page in pages]


def _read(page: Path, folder: Path) -> Written:
    """Read a page below a folder, out of which its links must not lead."""
    parser = _Page()
    try:
        parser.feed(read_inside(folder, page, MAX_BYTES).decode())
        views = [
            _view(view, name)
            for name, text in parser.mounts.items()
            for view in value_of(list[Any], as_object(parse_json(text), name).get("views"), name)
        ]
    except (*UNREADABLE, InterpError, AssertionError) as error:
        raise InvalidInput(f"{page} can't be read as a report: {reason(error)}.") from error
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
        views=[*views, *(_tables(page.parent, folder) if in_folder else [])],
    )


def _view(values: object, mount: str) -> View:
    """A view, with the fields that every kind of view has.

    Raises:
        InvalidInput: one is missing, or is not a text.
    """
    view = as_object(values, f"a view of {shorten(mount)}")
    for name in ("kind", "id", "title"):
        value_of(str, view.get(name), f"{name} of a view of {shorten(mount)}")
    return {**view, "id": f"{mount}_{view['id']}"}


def _tables(place: Path, folder: Path) -> list[View]:
    """The tables beside a report."""
    files = sorted(place.glob("*.csv"))
    if len(files) > MAX_TABLES:
        raise InvalidInput(f"{place} has more than {MAX_TABLES} tables beside its report.")
    views: list[View] = []
    for file in files:
        try:
            frame, n_rows = _frame(read_inside(folder, file, MAX_BYTES).decode())
            table = table_of_frame(frame)
        except (*UNREADABLE, csv.Error, LookupError, TypeError, ArithmeticError) as error:
            raise InvalidInput(f"{file} can't be read as a table: {reason(error)}.") from error
        note = f"The first {MAX_ROWS} of {n_rows} rows." if n_rows > MAX_ROWS else ""
        views.append(table_view(f"table_{file.stem}", file.name, table, note))
    return views


def _frame(text: str) -> tuple[pd.DataFrame, int]:
    """The first rows of a CSV file, and the number of all.

    Raises:
        ValueError: it has very many columns, or is not CSV.
        csv.Error: it is not CSV.
    """
    rows = (row for row in csv.reader(StringIO(text)) if row)
    n_columns = len(next(rows, []))
    if n_columns > MAX_COLUMNS:
        raise ValueError(f"it has {n_columns} columns; at most {MAX_COLUMNS} are read")
    n_rows = sum(1 for _ in rows)
    return pd.read_csv(StringIO(text), nrows=MAX_ROWS), n_rows


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
        attributes = dict(attrs)
        is_data = tag == "script" and attributes.get("type") == "application/json"
        if is_data:
            self._term = (attributes.get("id") or "").removeprefix("views-")
        if is_data or tag in ("dt", "dd") or attributes.get("class") == "conclusion":
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


def read_inside(folder: Path, path: Path, most: int) -> bytes:
    """The bytes of a regular file below a folder whose content is not trusted.

    Args:
        folder: the folder.
        path: a path below it, in which links may lead to other files below it only.
        most: maximum number of bytes.

    Raises:
        OSError: there is no such file, or no permission.
        ValueError: a link leads out of the folder, or to itself; see also
            :func:`interp.io.read_bounded`.
    """
    try:
        is_inside = path.resolve(strict=True).is_relative_to(folder.resolve())
    except RuntimeError as error:  # of Python before 3.13
        raise ValueError("it is a link that leads to itself") from error
    if not is_inside:
        raise ValueError(f"it is a link that leads out of {folder}")
    return read_bounded(path, most)
