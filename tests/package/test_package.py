"""Wheel and sdist hold what they should, and the wheel works where there is nothing else.

Run by ``make package``.
"""

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from clean_environment import CleanEnvironment
from packaging.metadata import Metadata
from tables import each

from interp.loading import bundled

ROOT = Path(__file__).parents[2]
PACKAGES = ("interp", "analyses", "apps")
EXTRAS = {"bench", "dev"}
pytestmark = pytest.mark.package

IMPORT_EVERYTHING = """
import json, pkgutil, sys
from importlib import import_module
names = ["interp_command"]
for package in ("interp", "analyses", "apps"):
    path = import_module(package).__path__
    names += [package, *(one.name for one in pkgutil.walk_packages(path, f"{package}."))]
scripts = {"apps.explorer_script"}
for name in names:
    if name not in scripts:
        import_module(name)
files = {name: sys.modules[name].__file__ for name in names if name not in scripts}
print(json.dumps({"names": names, "files": files, "path": sys.path}))
"""
RUN_THE_EXPLORER = """
from apps.serve import APP
from streamlit.testing.v1 import AppTest
app = AppTest.from_file(str(APP), default_timeout=120).run()
print([one.value for one in app.exception], [one.value for one in app.error], APP)
"""


def build(*words: str) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", *words, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    build("--outdir", str(folder))
    return folder


@pytest.fixture(scope="module")
def wheel(dist):
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    return CleanEnvironment.of_wheel(wheel, tmp_path_factory.mktemp("clean"))


def checksums(wheel):
    with zipfile.ZipFile(wheel) as file:
        return {one.filename: one.CRC for one in file.infolist()}


def repository():
    """The files of the repository, and those that would be added to it."""
    words = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(wheel):
    own = {name for name in repository() if name.split("/")[0] in (*PACKAGES, "interp_command.py")}
    inside = {name for name in checksums(wheel) if ".dist-info/" not in name}
    assert inside == own
    endings = {Path(name).suffix for name in inside}
    assert {".py", ".typed", ".safetensors", ".json", ".jsonl", ".js", ".css", ".html"} <= endings


def test_the_sdist_holds_every_file_but_those_of_the_repository_itself(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        names = [one.name.partition("/")[2] for one in file if one.isfile()]
    expected = {name for name in repository() if not name.startswith(".")}
    assert set(names) - {"PKG-INFO", ".gitignore"} == expected
    assert {"CITATION.cff", "LICENSE", "pyproject.toml"} <= expected


def test_the_sdist_builds_the_wheel_that_the_repository_builds(wheel, tmp_path):
    build("--wheel", "--outdir", str(tmp_path))
    assert checksums(tmp_path / wheel.name) == checksums(wheel)


def test_the_metadata_are_valid(wheel):
    with zipfile.ZipFile(wheel) as file:
        (name,) = (one for one in file.namelist() if one.endswith(".dist-info/METADATA"))
        metadata = Metadata.from_email(file.read(name), validate=True)
    assert (metadata.name, metadata.license_expression) == ("interp", "MIT")
    assert set(metadata.provides_extra or []) >= EXTRAS
    assert metadata.description == (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_module_can_be_imported_without_the_repository_or_an_extra(environment):
    done = environment.run("python", "-c", IMPORT_EVERYTHING)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    inside = environment.site_packages
    assert {
        Path(file) for file in found["files"].values() if inside not in Path(file).parents
    } == set()
    assert str(ROOT) not in found["path"]
    expected = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    assert set(found["names"]) == {*expected, "interp_command"}


@each("extra", ["pytest", "beartype", "transformers", "playwright"])
def test_the_packages_of_extras_are_not_there(environment, extra):
    """Otherwise the other tests would not notice what needs them."""
    done = environment.run("python", "-c", f"import {extra}")
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr


def test_the_version_is_printed(environment):
    done = environment.run("interp", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["interp", distribution_version(environment)]


def distribution_version(environment):
    (folder,) = environment.site_packages.glob("interp-*.dist-info")
    return folder.name.removeprefix("interp-").removesuffix(".dist-info")


def test_every_bundled_model_can_be_loaded(environment):
    done = environment.run("interp", "models")
    assert (done.returncode, done.stderr) == (0, "")
    assert {line.split()[0] for line in done.stdout.splitlines() if line} >= set(bundled())


def test_an_analysis_writes_its_report(environment):
    out = environment.work / "out"
    done = environment.run("interp", "ablate", "--model", "rasp-duplicates", "--out", out)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in out.iterdir()) == [
        *("heads.csv", "heads.parquet", "manifest.json", "report.html", "run.json")
    ]
    versions = json.loads((out / "run.json").read_text())["provenance"]["versions"]
    assert versions["interp"] == distribution_version(environment)


def test_the_doctor_finds_the_installation_usable(environment):
    done = environment.run("interp", "doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {one["check"]: one for one in json.loads(done.stdout)["checks"]}
    for name in ("interp", "torch", "streamlit", "other packages", "bundled models", "import path"):
        assert found[name]["mark"] == "ok", found[name]
    assert str(environment.site_packages) in found["interp"]["found"]


def test_the_explorer_draws_its_first_page(environment):
    done = environment.run("python", "-c", RUN_THE_EXPLORER)
    assert done.returncode == 0, done.stderr
    script = environment.site_packages / "apps" / "explorer_script.py"
    assert done.stdout.strip() == f"[] [] {script}"
