"""Every block of code in README and docs runs, and prints what its page has."""

import re
from pathlib import Path

import pytest
import yaml

import analyses
import interp
from benchmarks.site.pages import FENCE, PageError, agrees, blocks_of, check, main
from benchmarks.site.roles import without_roles

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in [ROOT / "README.md", *DOCS.rglob("*.md")])
SLOW = {"reference/analyses.md"}
"""Pages that take more than a few seconds."""
SHOWN_ONLY = {"", "text", "toml", "json", "jsonl", "yaml", "csv"}
"""Languages that nothing can run."""


def name_of(path):
    return path.relative_to(DOCS if DOCS in path.parents else ROOT).as_posix()


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=name_of(path), marks=[pytest.mark.slow] * (name_of(path) in SLOW))
        for path in PAGES
        if blocks_of(path.read_text(encoding="utf-8"))
    ],
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_has(path, tmp_path):
    check(path, tmp_path)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_no_block_of_a_page_escapes_being_run(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(FENCE.findall(text)), "a fence is indented or open"
    for block in blocks_of(text):
        runs = block.language in {"python", "bash", "console"}
        assert runs or block.language in SHOWN_ONLY, f"{path}:{block.line}: {block.language}"


def page(tmp_path, text):
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    (tmp_path / "folder").mkdir(exist_ok=True)
    return path, tmp_path / "folder"


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1 / 0\n```\n",
        "```python\nprint(2)\n```\n\n```text\n3\n```\n",
        "```bash\nrm -r folder\n```\n",
        "```bash\nmake nothing-of-the-kind\n```\n",
        "```bash\npython -m benchmarks.nothing\n```\n",
        "```bash\ninterp ablate --model no-such-model\n```\n",
        "```console\n$ interp --version\ninterp 0.0.0\n```\n",
        "| there | here |\n| --- | --- |\n| `f()` | `1` |\n| `g()` | so: `1 / 0` |\n",
        '```python title=""\n1 / 0\n```\n',
        '```python title="Not run in the tests: "\n1 / 0\n```\n',
    ],
)
def test_a_page_that_is_wrong_is_refused(text, tmp_path):
    with pytest.raises((PageError, ZeroDivisionError)):
        check(*page(tmp_path, text))


def test_blocks_share_names_and_a_folder(tmp_path):
    text = (
        '```python\nfrom pathlib import Path\n\nPath("a").write_text("1")\n```\n'
        'then\n```python\nprint(Path("a").read_text())\n```\n\n```text\n1\n```\n'
        '```python title="Not run in the tests: it divides by zero"\n1 / 0\n```\n'
    )
    path, folder = page(tmp_path, text)
    check(path, folder)
    assert (folder / "a").exists()


def test_what_a_page_prints_is_written_by_a_command(tmp_path):
    text = "```python\nprint(2)\n```\n\n```text\n3\n```\n\n```console\n$ interp --version\nx\n```\n"
    path, folder = page(tmp_path, text)
    assert main([str(path)]) == 0
    assert "```text\n2\n```" in path.read_text(encoding="utf-8")
    check(path, folder)


@pytest.mark.parametrize(
    ("expected", "same"),
    [
        ("a\nb\nc", True),
        ("a\n…\nc", True),
        ("a\n…", True),
        ("…\nc", True),
        ("…\nb\n…", True),
        ("a\nc", False),
        ("a\n…\nd", False),
        ("a", False),
        ("…\nb", False),
    ],
)
def test_an_ellipsis_stands_for_lines(expected, same):
    assert agrees("a\nb\nc\n", expected) == same


def entries(nav):
    for entry in nav if isinstance(nav, list) else nav.values():
        yield from [entry] if isinstance(entry, str) else entries(entry)


def test_a_menu_leads_to_every_page():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert sorted(entries(nav)) == sorted(name_of(p) for p in PAGES if DOCS in p.parents)


def test_the_reference_has_every_public_name():
    """What a package exports stands on a page of the reference: by name, or with its package."""
    pages = "\n".join(p.read_text(encoding="utf-8") for p in (DOCS / "reference/api").iterdir())
    targets = set(re.findall(r"^::: (\S+)", pages, re.MULTILINE))
    named = {target.rpartition(".")[2] for target in targets if target.startswith("interp.")}
    assert set(interp.__all__) <= named
    assert analyses.__name__ in targets


def test_roles_of_sphinx_become_code():
    text = "See :func:`~interp.sweeps.sweep.sweep`, :class:`Cache` and `x`."
    assert without_roles(text) == "See `sweep`, `Cache` and `x`."
