"""The table of features: its column of this project equals the outcomes of the trials today."""

import json
from pathlib import Path

import pytest

from tools.features import __main__ as command
from tools.features.ours import Ours
from tools.features.speeds import WORKS
from tools.features.trials import FEATURES, Lacks, Library, tried

PAGE = (Path(__file__).parents[2] / "docs" / "index.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def ours():
    library = Ours()
    return {feature: tried(library, feature) for feature in FEATURES}


def table(markers=command.MARKERS):
    opening, closing = markers
    lines = PAGE[PAGE.index(opening) : PAGE.index(closing)].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.slow
def test_our_column_of_the_page_has_the_outcomes_of_the_trials(ours):
    head, _, *rows = table()
    column = next(i for i, name in enumerate(head) if name.startswith("interp "))
    assert {row[0]: row[column] for row in rows} == {
        title: ours[feature] for feature, title in FEATURES.items()
    }


@pytest.mark.parametrize("markers", [command.MARKERS, command.SPEED_MARKERS])
def test_the_page_has_every_library(markers):
    names = {name.split()[0] for name in table(markers)[0][1:]}
    assert names == set(command.PACKAGES)


def test_the_page_has_every_work():
    rows = [line for line in table(command.SPEED_MARKERS) if len(line) > 1]
    assert [row[0] for row in rows[2:]] == list(WORKS.values())


def test_times_are_printed_with_the_machine(tmp_path, capsys):
    saved = tmp_path / "a.json"
    outcomes = {"interp 1": {"zero": "1.1", "machine": "a fast one"}, "nnsight 1": {"zero": "no"}}
    saved.write_text(json.dumps(outcomes), encoding="utf-8")
    assert command.main(["--from", str(saved), "--speeds"]) == 0
    printed = capsys.readouterr().out
    assert "| one head of layer 5 zeroed | 1.1 | no |" in printed
    assert "Measured with a fast one." in printed


class Odd(Library):
    package = "odd"

    def pattern(self):
        return False

    def zero(self):
        raise Lacks("it has no heads")

    def edge(self):
        return 1 / 0


@pytest.mark.parametrize(
    ("feature", "outcome"),
    [
        ("pattern", "no"),
        ("zero", "no: it has no heads"),
        ("edge", "no: raises ZeroDivisionError"),
        ("many", "not tried"),
    ],
)
def test_an_outcome_is_no_more_than_was_found(feature, outcome):
    assert tried(Odd(), feature) == outcome


def test_what_was_found_elsewhere_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "LIBRARIES", ())
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text('{"nnsight 0.8": {"zero": "yes"}}', encoding="utf-8")
    second.write_text('{"interp 1": {"zero": "no"}}', encoding="utf-8")
    assert command.main(["--from", str(first), "--from", str(second)]) == 0
    printed = capsys.readouterr().out
    assert "| tried | interp 1 | nnsight 0.8 |" in printed
    assert "| one head set to zero | no | yes |" in printed


def test_a_page_without_marks_is_refused(tmp_path):
    saved, page = tmp_path / "a.json", tmp_path / "page.md"
    saved.write_text("{}", encoding="utf-8")
    page.write_text("nothing", encoding="utf-8")
    with pytest.raises(SystemExit):
        command.main(["--from", str(saved), "--docs", str(page)])
