"""The widget's functions, run by the Node that Playwright brings; its source and its bundle."""

import json
import re
import subprocess
from pathlib import Path

import playwright
import pytest

from analyses.results.number_text import number
from apps.widget import FILES, HERE, bundle, style

NODE = Path(playwright.__file__).parent / "driver" / "node"
TESTS = Path(__file__).parent / "widget"


def run_node(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([NODE, *words], capture_output=True, text=True, check=False, timeout=60)


def passed(file: Path) -> int:
    """How many tests of a file of JavaScript pass, which all must."""
    done = run_node("--test", file)
    assert done.returncode == 0, done.stdout
    match = re.search(r"pass (\d+)\n", done.stdout)
    assert match, done.stdout
    return int(match[1])


def test_its_functions(tmp_path):
    file = tmp_path / "functions.test.cjs"
    file.write_text(f"{bundle()}\n{(TESTS / 'functions.js').read_text()}")
    assert passed(file) >= 10


def test_numbers_are_written_as_in_summaries(tmp_path):
    """By the one function of the widget and the one of analyses, for 21 numbers of any size."""
    sizes = [(-1) ** n * 1.2345678 * 10.0 ** (n - 8) for n in range(17)]
    values = [0.0, 0.5, -1234.5, 999999.5, *sizes]
    script = tmp_path / "numbers.cjs"
    script.write_text(
        f"{bundle()}\nconst values = {json.dumps(values)};\n"
        "const texts = (x) => [readable(x), readable(x, true), readable(x, false, 3)];\n"
        "console.log(JSON.stringify(values.map(texts)));"
    )
    done = run_node(script)
    expected = [[number(x), number(x, sign=True), number(x, 3)] for x in values]
    assert json.loads(done.stdout) == expected, done.stderr


def test_its_mounts(tmp_path):
    for name in ("mount_streamlit", "mount_parts"):
        (tmp_path / f"{name}.mjs").write_text((HERE / f"{name}.js").read_text())
    file = tmp_path / "mounts.test.mjs"
    file.write_text((TESTS / "mounts.mjs").read_text())
    assert passed(file) == 3


@pytest.mark.parametrize(("host", "ending"), [("streamlit", "mjs"), ("report", "cjs")])
def test_a_bundle_is_one_script(tmp_path, host, ending):
    """As Node reads it: a module that exports the mount, and a script without exports."""
    file = tmp_path / f"bundle.{ending}"
    file.write_text(bundle(host))
    done = run_node("--check", file)
    assert done.returncode == 0, done.stderr
    assert bundle(host).startswith(bundle())
    assert ("export default function" in bundle(host)) == (host == "streamlit")


def test_every_file_is_in_the_bundle():
    mounts = {"mount_parts.js", "mount_report.js", "mount_streamlit.js"}
    assert {path.name for path in HERE.glob("*.js")} == {*FILES} | mounts


def test_texts_are_never_set_as_html():
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "DOMParser",
        "eval(",
    ):
        assert way not in bundle("streamlit") + bundle("report")
    assert "http" not in re.sub(r"https?://www\.w3\.org", "", bundle("report") + style())


def test_files_are_short():
    for path in HERE.glob("*.js"):
        assert len(path.read_text().splitlines()) <= 350, path.name
