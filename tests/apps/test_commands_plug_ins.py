"""Analyses of other distributions are found by their entry points, and have commands."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest

import analyses
from apps.commands import commands
from tools.site.pages import blocks_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/write-an-analysis.md"


def install(folder, name, entries, summary=""):
    """What an installer leaves of a distribution: its metadata and its entry points."""
    metadata = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    metadata.mkdir()
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\nSummary: {summary}\n"
    (metadata / "METADATA").write_text(about)
    lines = [f"{entry} = {value}" for entry, value in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[interp.analyses]", *lines]))


CALLS = """
import sys
from apps.cli import main

def run(*words):
    try:
        main(words)
    except SystemExit as error:
        assert not error.code, (words, error.code)

run("--help")
assert not {"torch", "head_damping"} & {*sys.modules}
model = ["--model", "induction-by-hand"]
run("head-damping", "--help")
run("head-damping", *model, "--factor", "0.25", "--out", "out", "--top", "1")
run("repeat", "out")
run("report", *model, "--section", "head-damping", "--out", "page")
"""


@pytest.mark.slow
def test_the_package_of_the_how_to_has_a_command_a_section_and_repeats(tmp_path):
    blocks = blocks_of(PAGE.read_text(encoding="utf-8"))
    module = next(block.text for block in blocks if block.language == "python")
    project = tomllib.loads(next(block.text for block in blocks if block.language == "toml"))
    about = project["project"]
    (tmp_path / "head_damping.py").write_text(module)
    entries = about["entry-points"]["interp.analyses"]
    install(tmp_path, about["name"], entries, about["description"])
    done = subprocess.run(
        [sys.executable, "-c", CALLS],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stdout.split())
    assert "Others head-damping From head-damping: Which heads matter" in printed
    assert "--factor <float>" in printed
    assert "What z is multiplied by; 0 ablates the head. [default: 0.5]" in printed
    assert "L0H0 has the largest effect" in printed
    assert "head-damping: the same numbers, bit for bit" in printed
    described = json.loads((tmp_path / "out" / "run.json").read_text())
    assert described["settings"]["factor"] == 0.25
    assert len(pd.read_csv(tmp_path / "out" / "head-damping.csv")) == 8
    for page in ("out", "page"):
        text = (tmp_path / page / "report.html").read_text()
        assert "Which heads matter if they write less?" in text


MODULE = """
from analyses import HeadRoles
from analyses.results import Result

class Bare(Result):
    drawing = headline = to_frame = None

def roles_again(model) -> HeadRoles: ...

def nothing(model): ...

def bare(model):
    return Bare()
"""


@pytest.fixture
def others(tmp_path, monkeypatch):
    """A distribution with an analysis, and others whose entry points can't be used."""
    (tmp_path / "some_roles.py").write_text(MODULE)
    entries = {
        "roles_again": "some_roles:roles_again",
        "nothing": "some_roles:nothing",
        "missing": "no_such_package:function",
        "ablate": "some_roles:roles_again",
        "roles-again": "some_roles:roles_again",
        "bare": "some_roles:bare",
    }
    for number, (name, value) in enumerate(entries.items()):
        install(tmp_path, f"others-{number}", {name: value})
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("some_roles", None)


def test_an_analysis_that_can_not_be_used_is_left_out_with_a_warning(others):
    with pytest.warns(UserWarning, match="of another distribution is left out") as warned:
        functions = analyses.available()
    assert functions["roles_again"].__module__ == "some_roles"
    assert functions["ablate"] is analyses.ablate
    assert not {"nothing", "missing"} & {*functions}
    warnings = " ".join(str(warning.message) for warning in warned)
    assert "ablate = some_roles:roles_again" in warnings
    assert "ModuleNotFoundError: No module named 'no_such_package'" in warnings
    assert "return annotation is a Result" in warnings


@pytest.mark.filterwarnings("ignore:The analysis .* has no command")
def test_a_command_that_is_taken_and_one_that_can_not_be_used_are_refused(command, others):
    with pytest.warns(UserWarning, match="the name .* is taken") as warned:
        entries = commands()
    assert len(warned) == 2
    assert entries["ablate"].entry.value == "apps.commands.ablate:ablate"
    assert "some_roles" not in sys.modules
    done = command("missing", "--help")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "error: missing: the analysis no_such_package:function of others-2" in done.stderr
    assert done.stderr.count("\n") == 1
    for name, message in (
        ("nothing", "should return an analyses.results.Result, got a NoneType"),
        ("bare", "the Bare of some_roles:bare needs a field provenance"),
    ):
        done = command(name, "--model", "induction-by-hand")
        assert done.exit_code == 2
        assert message in done.stderr
