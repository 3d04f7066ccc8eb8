"""The page of analyses: each has a section, whose code runs, and the page is up to date."""

import shlex
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from architectures import covering
from typer.testing import CliRunner

import analyses
from analyses.results.result import Result
from apps.cli import app
from apps.method_text import paragraphs, question
from tools import analyses_page
from tools.analyses_page import (
    EXAMPLES,
    FIGURES,
    described,
    fenced,
    printed,
)
from tools.figure_svg import figure_svg
from tools.site.pages import agrees

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "analyses.md"
PAGE = DOCUMENT.read_text(encoding="utf-8")


def test_every_analysis_has_a_section():
    assert set(EXAMPLES) == set(analyses.available())


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_section_stands_on_the_page_as_the_docstring_has_it(name):
    text = (sys.modules[getattr(analyses, name).__module__].__doc__ or "").strip()
    assert any(paragraph.is_equation for paragraph in paragraphs(text))
    assert len(question(text)) < 100
    for part in (*described(name, text), fenced(EXAMPLES[name].code, "python")):
        assert part in PAGE, "run `make analyses`"
    assert f"({FIGURES}/{name}.svg)" in PAGE


def section_of(page, name):
    return page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    "name", covering(EXAMPLES, ["attention_pattern", "logit_lens", "patch_activations"])
)
def test_the_code_of_a_section_runs(name):
    example = EXAMPLES[name]
    result = example.run()
    assert isinstance(result, Result)
    assert f"analyses.{name}(" in example.call
    output = section_of(PAGE, name).rpartition("```text\n")[2].partition("```")[0]
    assert agrees(printed(result), output), "run `make analyses`"
    ElementTree.fromstring(figure_svg(getattr(result, example.figure)()))


@pytest.mark.parametrize(
    "command",
    covering(
        (example.command for example in EXAMPLES.values() if example.command), ["interp ablate"]
    ),
)
def test_the_command_of_a_section_runs(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "reports").iterdir()
    assert {"report.html", "run.json"} <= {path.name for path in folder.iterdir()}


def test_no_section_is_left_of_an_analysis_that_is_gone():
    assert PAGE.count("\n## ") == len(EXAMPLES)
    drawn = {path.stem for path in (DOCUMENT.parent / FIGURES).iterdir()}
    assert drawn == set(EXAMPLES)


def test_the_command_writes_the_page_and_its_figures(tmp_path, monkeypatch):
    few = {name: EXAMPLES[name] for name in ("attention_pattern", "training_history")}
    monkeypatch.setattr(analyses_page, "EXAMPLES", few)
    page = tmp_path / "page.md"
    assert analyses_page.main(["--docs", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        f"## {name}" for name in few
    ]
    assert {path.stem for path in (tmp_path / FIGURES).iterdir()} == set(few)
    assert max(map(len, text.splitlines())) <= 130
