"""Every command and every piece of code in the README and in CONTRIBUTING runs."""

import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from apps.cli import app
from apps.commands.report import SECTIONS
from interp.zoo.training import python_text
from interp.zoo.training.corpus import read_corpus

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(text):
    lines = "\n".join(blocks(text, "bash")).splitlines()
    return [line.split("#")[0].strip() for line in lines if line.strip()]


COMMANDS = commands(README)
INTERP = [command for command in COMMANDS if command.startswith("interp ")]


def run(command, folder):
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=500, check=False
    )


def interp(*arguments):
    return [sys.executable, "-c", "from apps.cli import main; main()", *arguments]


@pytest.mark.parametrize("code", blocks(README, "python"), ids=range(len(blocks(README, "python"))))
def test_the_python_of_the_readme_runs(code, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


@pytest.fixture
def small_corpus(monkeypatch):
    """Trainings read a part of the corpus."""

    def read_small_corpus():
        corpus = read_corpus()
        return replace(corpus, train=corpus.train[:50], held_out=corpus.held_out[:5])

    monkeypatch.setattr(python_text, "read_corpus", read_small_corpus)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=pytest.mark.slow if " train " in command else [])
        for command in INTERP
        if "explore" not in command
    ],
)
def test_an_interp_command_of_the_readme_runs(command, small_corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(url, process, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2) as page:
                return page.status == 200
        except OSError:
            time.sleep(0.2)
    return False


@pytest.mark.slow
def test_interp_explore_serves_a_page(tmp_path):
    assert "interp explore" in INTERP
    port = free_port()
    with subprocess.Popen(
        interp("explore", "--headless", "--port", str(port)),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            assert answers(f"http://127.0.0.1:{port}/_stcore/health", process)
        finally:
            process.terminate()
            process.wait(timeout=20)


MADE = {command.split()[1] for command in COMMANDS + commands(CONTRIBUTING) if "make " in command}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_make_target_that_is_told_of_is_one():
    assert {"report", "test"} <= MADE
    for target in MADE | {"explore"}:
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


in_the_environment_of_make = pytest.mark.skipif(
    subprocess.run(
        ["make", "--question", ".venv/.installed-dev"], cwd=ROOT, check=False
    ).returncode,
    reason="these tests were not started by make, which would install everything anew",
)


@pytest.mark.slow
@in_the_environment_of_make
def test_make_report_writes_the_report(tmp_path):
    command = re.search(r"^REPORT \?= (.*) --out \S+$", MAKEFILE, re.MULTILINE)
    done = run(["make", "report", f"REPORT={command[1]} --out {tmp_path / 'report'}"], ROOT)
    assert done.returncode == 0, done.stderr
    written = {path.name for path in (tmp_path / "report").iterdir()}
    assert written == {"report.html", "manifest.json", *SECTIONS}


@pytest.mark.slow
@in_the_environment_of_make
def test_make_test_runs_tests():
    chosen = "PYTEST=tests/text/test_prompts.py -q -n 0 -p no:cacheprovider"
    done = run(["make", "test", chosen], ROOT)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


def test_what_pip_is_asked_to_install_is_this_project():
    assert "pip install -e ." in COMMANDS
    assert (ROOT / "pyproject.toml").exists()


def test_every_command_of_the_readme_is_one_that_these_tests_run():
    known = [
        c for c in COMMANDS if c in INTERP or c.split()[0] == "make" or c == "pip install -e ."
    ]
    assert known == COMMANDS
