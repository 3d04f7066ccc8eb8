"""Wheel and sdist hold what they should, and the wheel works where there is nothing else.

Run by ``make package``.
"""

import json
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clean_environment import CleanEnvironment
from packaging.metadata import Metadata
from tables import each

from interp.loading import bundled

ROOT = Path(__file__).parents[2]
PACKAGES = ("interp", "analyses", "apps")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
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


USE_THE_CORE = """
import interp
from interp import edits, metrics
model = interp.load("induction-by-hand")
tokens = model.to_tokens(["abcab"])
head = edits.zero("z", layer=1, head=0)
run = interp.run(model, tokens, record="all", edits=[head])
table = interp.sweep(model, tokens, [head], metric=metrics.loss())
run.cache.save("cache")
again = interp.load_cache("cache", model)
from interp.compat import HookedTransformer
print(tuple(run.cache["pattern", 0].shape), tuple(table.values.shape), len(again.keys()) > 0)
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
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    return CleanEnvironment.of_wheel(wheel, tmp_path_factory.mktemp("clean"), ["apps"])


@pytest.fixture(scope="module")
def core(wheel, tmp_path_factory):
    """An environment without any extra."""
    return CleanEnvironment.of_wheel(wheel, tmp_path_factory.mktemp("core"))


COMMANDS = {
    "explorer": ("python", "-c", RUN_THE_EXPLORER),
    "imports": ("python", "-c", IMPORT_EVERYTHING),
    "models": ("interp", "models"),
    "ablate": ("interp", "ablate", "--model", "rasp-duplicates", "--out", "out"),
    "doctor": ("interp", "doctor", "--json"),
    "version": ("interp", "--version"),
}


@pytest.fixture(scope="module")
def ran(environment):
    """What each command left, two at a time: they take seconds to import."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        running = {name: pool.submit(environment.run, *words) for name, words in COMMANDS.items()}
        done = {name: future.result() for name, future in running.items()}
    for name, process in done.items():
        assert process.returncode == 0, f"{name}: {process.stdout}{process.stderr}"
    return done


def checksums(wheel):
    with zipfile.ZipFile(wheel) as file:
        return {entry.filename: entry.CRC for entry in file.infolist()}


def repository():
    """The files of the repository, and those that would be added to it."""
    words = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(wheel):
    expected = {
        name for name in repository() if name.split("/")[0] in (*PACKAGES, "interp_command.py")
    }
    inside = {name for name in checksums(wheel) if ".dist-info/" not in name}
    assert inside == expected
    endings = {Path(name).suffix for name in inside}
    assert {".py", ".typed", ".safetensors", ".json", ".jsonl", ".js", ".css", ".html"} <= endings


def test_the_sdist_holds_every_file_but_those_of_the_repository_itself(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        names = [member.name.partition("/")[2] for member in file if member.isfile()]
    expected = {name for name in repository() if not name.startswith(".")}
    assert set(names) - {"PKG-INFO", ".gitignore"} == expected
    assert {"CITATION.cff", "LICENSE", "pyproject.toml"} <= expected


def test_the_sdist_builds_the_wheel_that_the_repository_builds(wheel, tmp_path):
    build("--wheel", "--outdir", str(tmp_path))
    assert checksums(tmp_path / wheel.name) == checksums(wheel)


def test_the_metadata_are_valid(wheel):
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Metadata.from_email(file.read(name), validate=True)
    assert (metadata.name, metadata.license_expression) == ("interp", "MIT")
    assert set(metadata.provides_extra or []) >= EXTRAS
    assert metadata.description == (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_module_can_be_imported_without_the_repository_or_an_extra(environment, ran):
    imports = json.loads(ran["imports"].stdout)
    outside = [
        file
        for file in imports["files"].values()
        if environment.site_packages not in Path(file).parents
    ]
    assert not outside
    assert str(ROOT) not in imports["path"]
    expected = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    assert set(imports["names"]) == {*expected, "interp_command"}


def test_models_runs_caches_and_sweeps_need_no_extra(core):
    done = core.run("python", "-c", USE_THE_CORE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(1, 4, 6, 6) (1, 1) True"


@each(
    ("words", "message"),
    [
        (("python", "-c", "import analyses"), "pip install 'interp[analyses]'"),
        (("interp", "explore"), "pip install 'interp[apps]'"),
    ],
)
def test_without_an_extra_the_line_to_type_is_printed(core, words, message):
    done = core.run(*words)
    assert done.returncode != 0
    assert message in done.stderr.splitlines()[-1]


@each("extra", ["pytest", "beartype", "transformers", "playwright"])
def test_the_packages_of_extras_are_not_there(environment, extra):
    """Otherwise the other tests would not notice what needs them."""
    done = environment.run("python", "-c", f"import {extra}")
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr


def test_the_version_is_printed(ran):
    assert (ran["version"].stdout, ran["version"].stderr) == (f"interp {VERSION}\n", "")


def test_every_bundled_model_can_be_loaded(ran):
    assert ran["models"].stderr == ""
    first = {line.split()[0] for line in ran["models"].stdout.splitlines() if line}
    assert first >= set(bundled())


def test_an_analysis_writes_its_report(environment, ran):
    assert "Report: out/report.html" in ran["ablate"].stdout
    written = {path.name for path in (environment.work / "out").iterdir()}
    tables = ("heads.csv", "heads.parquet", "heads_by_prompt.csv", "heads_by_prompt.parquet")
    assert written == {*tables, "manifest.json", "report.html", "run.json"}
    described = json.loads((environment.work / "out" / "run.json").read_text())
    assert described["provenance"]["versions"]["interp"] == VERSION


def test_the_doctor_finds_the_installation_usable(environment, ran):
    checks = {check["check"]: check for check in json.loads(ran["doctor"].stdout)["checks"]}
    for name in ("interp", "torch", "streamlit", "other packages", "bundled models", "import path"):
        assert checks[name]["mark"] == "ok", checks[name]
    assert str(environment.site_packages) in checks["interp"]["found"]


def test_the_explorer_draws_its_first_page(environment, ran):
    script = environment.site_packages / "apps" / "explorer_script.py"
    assert ran["explorer"].stdout.strip() == f"[] [] {script}"
