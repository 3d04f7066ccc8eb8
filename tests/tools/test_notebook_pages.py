"""Notebooks are stored without outputs and assert what they claim; their pages are up to date."""

import copy
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from analyses.results import Curve, curves
from tools import notebook_pages
from tools.notebook_pages import (
    FIGURES,
    NOTEBOOKS,
    as_text,
    index,
    notebooks_in,
    page,
    read_notebook,
    stripped,
    title_of,
    write_pages,
)

PAGES = NOTEBOOKS.parent / "docs" / "notebooks"
MOST_BYTES = 2**20
PATHS = notebooks_in(NOTEBOOKS)
OF_EACH = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def name_of(path: Path) -> str:
    return path.relative_to(NOTEBOOKS).with_suffix("").as_posix()


def cells(path: Path, kind: str) -> list[str]:
    return [
        "".join(cell["source"])
        for cell in read_notebook(path)["cells"]
        if cell["cell_type"] == kind
    ]


def a_notebook(*outputs: dict) -> dict:
    code = {"cell_type": "code", "source": ["x = 1\n", "x"], "execution_count": 3, "metadata": {}}
    prose = {"cell_type": "markdown", "source": ["# A question?\n", "\n", "Text."], "metadata": {}}
    return {"cells": [prose, code | {"outputs": list(outputs)}], "metadata": {"widgets": {}}}


def printed(text: str, name: str = "stdout") -> dict:
    return {"output_type": "stream", "name": name, "text": [text]}


def shown(**data: object) -> dict:
    return {"output_type": "display_data", "data": {"text/plain": ["plain"], **data}}


# ---- what is stored ------------------------------------------------------------------------------


def test_there_are_nine_and_two_of_a_pretrained_model_and_five_with_calls_of_another_library():
    assert [path.stem[0] for path in PATHS] == list("1234567891212345")
    assert [path.parent.name for path in PATHS[9:]] == ["real"] * 2 + ["compat"] * 5
    assert sorted(PATHS) == sorted(NOTEBOOKS.rglob("*.ipynb"))


def test_notebooks_for_another_library_use_its_calls_alone():
    for path in (path for path in PATHS if path.parent.name == "compat"):
        code = "\n".join(cells(path, "code"))
        assert "interp.compat" in code
        assert not re.search(
            r"^(import|from) interp(?!\.compat)|\binterp\.(?!compat)", code, re.MULTILINE
        )


@OF_EACH
def test_no_output_is_stored(path):
    """The file is what `make strip-notebooks` writes."""
    assert path.read_text(encoding="utf-8") == as_text(stripped(read_notebook(path)))


def test_an_output_and_a_count_are_stripped():
    notebook = a_notebook(printed("1"))
    bare = stripped(notebook)
    assert as_text(bare) != as_text(notebook)
    assert bare["cells"][1]["outputs"] == []
    assert bare["cells"][1]["execution_count"] is None
    assert bare["cells"][1]["source"] == notebook["cells"][1]["source"]
    assert bare["metadata"]["kernelspec"]["name"] == "python3"
    assert stripped(bare) == bare


def test_the_command_strips_files(tmp_path):
    path = tmp_path / "one.ipynb"
    path.write_text(as_text(a_notebook(printed("1"))), encoding="utf-8")
    assert notebook_pages.main(["--notebooks", str(tmp_path), "--strip"]) == 0
    assert read_notebook(path) == stripped(a_notebook(printed("1")))


# ---- what a notebook has -------------------------------------------------------------------------


@OF_EACH
def test_it_opens_with_a_question(path):
    assert title_of(read_notebook(path)).endswith("?")


@OF_EACH
def test_it_ends_with_what_would_falsify_the_answer(path):
    """And asserts it: with the last section left out, assertions are lost."""
    headings = re.findall(r"^## (.*)$", "\n".join(cells(path, "markdown")), re.MULTILINE)
    assert headings[-1] == "What would falsify this"
    code = cells(path, "code")
    assert "\nassert " in code[-1] or "\n    assert " in code[-1]
    assert sum(text.count("assert ") for text in code) >= 5


# ---- pages ---------------------------------------------------------------------------------------


@OF_EACH
def test_its_page_has_its_cells(path):
    text = (PAGES / f"{name_of(path)}.md").read_text(encoding="utf-8")
    for cell in cells(path, "markdown"):
        assert cell in text, "run `make notebook-pages`"
    for cell in cells(path, "code"):
        assert f"```python\n{cell}\n```" in text, "run `make notebook-pages`"


def test_pages_are_of_notebooks_that_exist_and_are_small():
    pages = {path.relative_to(PAGES).with_suffix("").as_posix() for path in PAGES.rglob("*.md")}
    assert pages == {"index", *map(name_of, PATHS)}
    files = [path for path in PAGES.rglob("*") if path.is_file()]
    named = "".join(path.read_text(encoding="utf-8") for path in PAGES.rglob("*.md"))
    assert all(path.name in named for path in PAGES.rglob("*.svg"))
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES


def test_the_index_has_every_question():
    text = (PAGES / "index.md").read_text(encoding="utf-8")
    for path in PATHS:
        assert f"- [{title_of(read_notebook(path))}]({name_of(path)}.md)\n" in text


def test_what_is_printed_is_one_block_without_warnings(tmp_path):
    outputs = [printed("one\n"), printed("a warning of /home/me\n", "stderr"), printed("two\n")]
    text = page(a_notebook(*outputs), "name", tmp_path)
    assert "# A question?\n\nText.\n\n```python\nx = 1\nx\n```\n\n```text\none\ntwo\n```\n" in text
    assert "warning" not in text


def test_a_table_is_a_table(tmp_path):
    html = "<style>td {}</style><table><tr><th></th><th>a|b</th></tr><tr><th>0</th><td>1</td></tr>"
    text = page(a_notebook(shown(**{"text/html": [html]})), "name", tmp_path)
    assert "|  | a\\|b |\n| --- | --- |\n| 0 | 1 |\n" in text
    assert "plain" not in text


def test_other_html_is_shown_as_text(tmp_path):
    text = page(a_notebook(shown(**{"text/html": ["<pre>one</pre>"]})), "name", tmp_path)
    assert "```text\nplain\n```\n" in text
    assert "<pre>" not in text


def test_a_figure_is_an_svg_file(tmp_path):
    figure = curves({"y": [Curve("one", [0, 1], [0.0, 1.0])]}, title="[t]", axis="x", units=[""])
    data = {notebook_pages.PLOTLY: figure.to_plotly_json()}
    text = page(a_notebook(shown(**data), shown(**data)), "name", tmp_path)
    for number in (1, 2):
        assert f"![(t)]({FIGURES}/name-{number}.svg)" in text
        ElementTree.fromstring((tmp_path / FIGURES / f"name-{number}.svg").read_text())


def test_pages_of_a_folder_are_in_a_folder_with_their_figures(tmp_path):
    figure = curves({"y": [Curve("one", [0, 1], [0.0, 1.0])]}, title="t", axis="x", units=[""])
    drawn = shown(**{notebook_pages.PLOTLY: figure.to_plotly_json()})
    notebooks = {"one": a_notebook(), "compat/one": a_notebook(drawn)}
    write_pages(notebooks, tmp_path)
    text = (tmp_path / "compat/one.md").read_text(encoding="utf-8")
    assert f"({FIGURES}/one-1.svg)" in text
    assert (tmp_path / "compat" / FIGURES / "one-1.svg").exists()
    listed = index(notebooks)
    order = [listed.index(text) for text in ("(one.md)", "TransformerLens", "(compat/one.md)")]
    assert order == sorted(order)


def test_pages_of_one_folder_are_written_and_all_are_listed(tmp_path, monkeypatch):
    """Without executing the others, which may need what is not installed."""
    for name in ("one", "real/one"):
        path = tmp_path / f"{name}.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_text(as_text(a_notebook()), encoding="utf-8")
    pages = tmp_path / "pages"
    (pages / FIGURES).mkdir(parents=True)
    (pages / FIGURES / "one-1.svg").touch()
    monkeypatch.setattr(notebook_pages, "executed", read_notebook)
    command = ["--notebooks", str(tmp_path), "--docs", str(pages), "--only"]
    assert notebook_pages.main([*command, "real"]) == 0
    assert {path.name for path in pages.rglob("*.*")} == {"index.md", "one.md", "one-1.svg"}
    assert "(one.md)" in (pages / "index.md").read_text(encoding="utf-8")
    assert not (pages / "one.md").exists()
    with pytest.raises(SystemExit):
        notebook_pages.main([*command, "nothing"])


def test_figures_of_an_earlier_run_are_removed(tmp_path):
    (tmp_path / FIGURES).mkdir()
    (tmp_path / FIGURES / "gone-1.svg").touch()
    write_pages({"one": copy.deepcopy(a_notebook())}, tmp_path)
    assert [path.name for path in tmp_path.glob("*.md")]
    assert not list((tmp_path / FIGURES).iterdir())


def test_a_command_without_work_is_refused(capsys):
    with pytest.raises(SystemExit):
        notebook_pages.main([])
    assert "--docs" in capsys.readouterr().err
