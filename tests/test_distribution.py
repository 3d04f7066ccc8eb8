"""What the distribution declares, and what happens if its packages are hidden.

Building and installing it is tested in tests/package.
"""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def declared() -> dict[str, Requirement]:
    """What an installation with all commands requires."""
    extras = PROJECT["optional-dependencies"]
    texts = [*PROJECT["dependencies"], *extras["analyses"], *extras["apps"]]
    return {
        requirement.name: requirement
        for requirement in map(Requirement, texts)
        if requirement.name != "interp"
    }


def pinned(file: str) -> list[Requirement]:
    lines = (ROOT / file).read_text().splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


def test_the_tested_versions_are_allowed():
    """Of what is required, and of the extras."""
    tested = {
        canonicalize_name(requirement.name): specifier.version
        for requirement in pinned("constraints.txt")
        for specifier in requirement.specifier
    }
    extras = PROJECT["optional-dependencies"]
    required = [PROJECT["dependencies"], *extras.values()]
    for requirement in (Requirement(text) for texts in required for text in texts):
        if requirement.name != "interp":
            assert tested[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_the_citation_is_of_this_version():
    """Format: https://github.com/citation-file-format/citation-file-format, version 1.2.0."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title"} <= set(citation)
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert citation["authors"] == PROJECT["authors"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert citation["version"] == version("interp")


def test_the_lowest_versions_are_the_lower_bounds():
    lowest = pinned("constraints-lowest.txt")
    assert {requirement.name for requirement in lowest} == set(declared())
    for requirement in lowest:
        (tested,) = (Version(specifier.version) for specifier in requirement.specifier)
        bounds = declared()[requirement.name].specifier
        (lowest_allowed,) = (Version(s.version) for s in bounds if s.operator == ">=")
        assert tested == lowest_allowed, requirement


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
