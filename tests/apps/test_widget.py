"""The widget's functions, run by the Node that Playwright brings; its source and its bundle."""

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import playwright
import pytest

from analyses.results.number_text import number
from apps.widget import DOCUMENTATION, HERE, IMPORT, bundle, style

NODE = Path(playwright.__file__).parent / "driver" / "node"
TESTS = Path(__file__).parent / "widget"
HOSTS = ("streamlit", "code", "parts", "story", "health", "report", "site")


def run_node(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([NODE, *words], capture_output=True, text=True, check=False, timeout=60)


def passed(file: Path) -> int:
    """How many tests of a file of JavaScript pass, which all must."""
    done = run_node("--test", file)
    assert done.returncode == 0, done.stdout
    match = re.search(r"pass (\d+)\n", done.stdout)
    assert match, done.stdout
    return int(match[1])


def test_its_functions():
    assert passed(TESTS / "functions.js") >= 10


def test_differences_of_views():
    assert passed(TESTS / "differences.js") >= 8


def test_saved_pictures(tmp_path):
    """The SVG file is XML whatever the texts are, and the archive is one that Python reads."""
    done = run_node("--test", TESTS / "pictures.js")
    assert done.returncode == 0, done.stdout
    done = run_node(TESTS / "pictures.js", tmp_path)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "figures.zip") as archive:
        assert archive.testzip() is None
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert list(texts) == ["1-hostile.svg", "2-leer-ü.svg"]
    assert texts["2-leer-ü.svg"] == ""
    root = ElementTree.fromstring(texts["1-hostile.svg"])
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert not {"script", "img", "foreignObject", "a"} & {*tags}
    assert all(not name.startswith("on") for element in root.iter() for name in element.attrib)
    title, drawn = (
        next(element for element in root.iter() if element.tag.endswith(name)).text
        for name in ("title", "text")
    )
    hostile = '</script><img src=x onerror=alert(1)> & "q" שלום\u200b\u202e\ufffd\ufffd'
    assert title == drawn == hostile


def test_numbers_are_written_as_in_summaries(tmp_path):
    """By the one function of the widget and the one of analyses, for 21 numbers of any size."""
    sizes = [(-1) ** n * 1.2345678 * 10.0 ** (n - 8) for n in range(17)]
    values = [0.0, 0.5, -1234.5, 999999.5, *sizes]
    script = tmp_path / "numbers.mjs"
    script.write_text(
        f"import {{ readable }} from {json.dumps((HERE / 'data.js').as_uri())};\n"
        f"const values = {json.dumps(values)};\n"
        "const texts = (x) => [readable(x), readable(x, true), readable(x, false, 3)];\n"
        "console.log(JSON.stringify(values.map(texts)));"
    )
    done = run_node(script)
    expected = [[number(x), number(x, sign=True), number(x, 3)] for x in values]
    assert json.loads(done.stdout) == expected, done.stderr


def test_its_mounts(tmp_path):
    """Beside a module that records what is mounted, in place of the one that draws it."""
    for name in ("calls.js", "mount_streamlit.js", "mount_code.js", "mount_parts.js"):
        shutil.copy(HERE / name, tmp_path)
    shutil.copy(TESTS / "mounts.js", tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    for module, name in (("mount", "mountViews"), ("elements", "element")):
        (tmp_path / f"{module}.js").write_text(f"export const {{ {name} }} = globalThis;")
    assert passed(tmp_path / "mounts.js") == 6


@pytest.mark.parametrize("host", HOSTS)
def test_a_bundle_is_one_script(tmp_path, host):
    """Of every module that it imports, once; a second function of one name would be an error."""
    script = bundle(host)
    file = tmp_path / "bundle.mjs"
    file.write_text(script)
    done = run_node("--check", file)
    assert done.returncode == 0, done.stderr
    statements = re.findall(r"^(?:import|export)\b.*", script, re.MULTILINE)
    is_page = host in ("report", "site")
    assert statements == ([] if is_page else ["export default function (component) {"])
    functions = re.findall(r"^(?:async )?function (\w+)", script, re.MULTILINE)
    assert len(functions) == len(set(functions))
    assert ("mountViews" in functions) == (is_page or host == "code")
    assert len(script) < 4000 or host not in ("streamlit", "parts"), "sent at every click"
    assert "@param" not in script
    assert "@import" not in script
    assert bundle.__wrapped__(host) == script


def test_modules_import_names_of_other_modules_as_they_are():
    """What :func:`bundle` needs to put one after the other; and each is in a bundle."""
    bundled = "\n".join(bundle(host) for host in HOSTS)
    for path in HERE.glob("*.js"):
        text = path.read_text()
        for imported in re.findall(r"^import\b[^;]*;", text, re.MULTILINE):
            assert IMPORT.fullmatch(f"{imported}\n"), f"{path.name}: {imported}"
            assert " as " not in imported, f"{path.name}: {imported}"
        assert not re.search(r"\bimport\(", text), path.name
        for exported in re.findall(r"^export .*", text, re.MULTILINE):
            assert re.match(
                r"export (default function \(|(async )?function \w|const \w)", exported
            ), f"{path.name}: {exported}"
        for line in DOCUMENTATION.sub("", text).splitlines():
            if line.startswith(("export const", "export function")):
                assert line.removeprefix("export ") in bundled, f"{path.name}: {line}"


def test_texts_are_never_set_as_html():
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "DOMParser",
        "eval(",
    ):
        assert all(way not in bundle(host) for host in HOSTS)
    assert "http" not in re.sub(r"https?://www\.w3\.org", "", bundle("report") + style())


def test_files_are_short():
    for path in HERE.glob("*.js"):
        assert len(path.read_text().splitlines()) <= 350, path.name
