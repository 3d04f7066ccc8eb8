"""The lower bounds that the distribution declares, and what happens if its packages are hidden."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]


def declared() -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {one.name: one for one in map(Requirement, project["dependencies"])}


def test_the_lowest_versions_are_the_lower_bounds():
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    lowest = [Requirement(line) for line in lines if not line.startswith("#")]
    assert {one.name for one in lowest} == set(declared())
    for one in lowest:
        (tested,) = (Version(specifier.version) for specifier in one.specifier)
        bounds = declared()[one.name].specifier
        (lowest_allowed,) = (Version(s.version) for s in bounds if s.operator == ">=")
        assert tested == lowest_allowed, one


def start(code: str, first: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(first), str(ROOT)])}
    command = [sys.executable, "-c", code, "--help"]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=first, env=environment
    )


@pytest.mark.parametrize("name", ["apps", "analyses"])
@pytest.mark.parametrize("file", ["{}/__init__.py", "{}.py"])
def test_a_package_that_hides_one_is_named(tmp_path, name, file):
    other = tmp_path / file.format(name)
    other.parent.mkdir(exist_ok=True)
    other.touch()
    done = start("from interp_command import main; main()", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: interp needs its own package '{name}'")
    assert str(other) in done.stderr
    assert done.stderr.count("\n") == 1


def test_analyses_that_are_hidden_are_named_when_apps_is_imported(tmp_path):
    (tmp_path / "analyses.py").touch()
    done = start("import apps", tmp_path)
    assert "ImportError: interp needs its own package 'analyses'" in done.stderr


def test_the_command_starts_where_nothing_is_hidden(tmp_path):
    (tmp_path / "apps").mkdir()  # without __init__.py, Python looks further
    done = start("from interp_command import main; main()", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Usage: interp" in done.stdout
