"""Every block of code in README and docs runs, and prints what its page has."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

import analyses
import interp
from tools.site import diagrams
from tools.site.pages import FENCE, PageError, agrees, blocks_of, check, main
from tools.site.roles import without_roles

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in [ROOT / "README.md", *DOCS.rglob("*.md")])
SLOW = {
    "how-to/add-a-family.md",
    "how-to/dictionaries.md",
    "how-to/fill-a-gpu.md",
    "how-to/from-transformerlens.md",
    "how-to/grade-a-method.md",
    "how-to/path-patch.md",
    "how-to/prompts.md",
    "how-to/repeat.md",
    "how-to/report.md",
    "how-to/scale.md",
    "how-to/steering-vector.md",
    "how-to/write-an-analysis.md",
    "reference/commands.md",
}
"""Pages that take more than a second."""
OWN_TESTS = ("reference/analyses/", "notebooks/")
"""Pages whose blocks other tests run: test_analyses_pages.py, and the notebooks themselves."""
SHOWN_ONLY = {"", "text", "toml", "json", "jsonl", "yaml", "csv"}
"""Languages that nothing can run."""


def name_of(path):
    return path.relative_to(DOCS if DOCS in path.parents else ROOT).as_posix()


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=name_of(path), marks=[pytest.mark.slow] * (name_of(path) in SLOW))
        for path in PAGES
        if blocks_of(path.read_text(encoding="utf-8")) and not name_of(path).startswith(OWN_TESTS)
    ],
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_has(path, tmp_path):
    check(path, tmp_path)


@pytest.mark.real
@pytest.mark.parametrize(
    "path",
    [
        path
        for path in PAGES
        if any(block.packaged for block in blocks_of(path.read_text(encoding="utf-8")))
    ],
    ids=name_of,
)
def test_a_page_also_runs_on_its_pretrained_model(path, tmp_path):
    check(path, tmp_path, packaged=True)


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
        '```python title="On no-such-model"\nprint(1)\n```\n',
        "```python\nx = 1\n```\n\n![x](figures/page-1.svg)\n",
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


def test_a_block_on_a_pretrained_model_runs_on_request(tmp_path):
    path, folder = page(tmp_path, '```python title="On smollm2-135m"\n1 / 0\n```\n')
    check(path, folder)
    with pytest.raises(ZeroDivisionError):
        check(path, folder, packaged=True)


def test_the_figure_of_a_block_is_written_and_compared(tmp_path):
    text = (
        "```python\nimport plotly.graph_objects as go\n\nnumber = 3\n"
        'print("drawn")\nfigure = go.Figure(go.Scatter(x=[1, 2], y=[1, 2], name="a"))\n'
        'figure.update_layout(title=f"{number} lines")\n```\n\n```text\ndrawn\n```\n\n'
        "![A line](figures/page-1.svg)\n"
    )
    path, folder = page(tmp_path, text)
    with pytest.raises(PageError, match="is not what its page draws"):
        check(path, folder)
    assert main([str(path)]) == 0
    assert path.read_text(encoding="utf-8") == text
    check(path, folder)
    path.write_text(text.replace("number = 3", "number = 2"), encoding="utf-8")
    with pytest.raises(PageError, match="is not what its page draws"):
        check(path, folder)


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


@pytest.mark.parametrize(
    ("expected", "same"),
    [
        ("12 prompts: −0.000 at 0.9143, 6.7e-15 [−1.5, +2]", True),
        ("12 prompts: 0.001 at 0.9142, 6.6e-15 [-1.4, +2]", True),
        ("12 prompts: 0.000 at   0.9144, 6.7e-15 [-1.5, +2]", True),
        ("12 prompts: 0.000 at 0.91425, 6.7e-15 [-1.5, +2]", False),
        ("12 prompts: 0.000 at 0.9145, 6.7e-15 [-1.5, +2]", False),
        ("12 prompts: 0.000 at 0.9143, 1.2e-14 [-1.5, +2]", True),
        ("12 prompts: 0.000 at 0.9143, 6.7e-06 [-1.5, +2]", False),
        ("12 prompts: 0.000 at 0.9143, 6.7e-15 [1.5, +2]", False),
        ("13 prompts: 0.000 at 0.9143, 6.7e-15 [-1.5, +2]", False),
        ("12 prompts: 0.000 on 0.9143, 6.7e-15 [-1.5, +2]", False),
    ],
)
def test_numbers_may_differ_by_one_unit_of_their_last_digit(expected, same):
    """Except integers: processors round sums in another order, but count alike."""
    printed = "12 prompts: -0.000 at 0.9143, 6.7e-15 [-1.5, +2]"
    assert agrees(f"{printed}\n", expected) == same
    assert agrees(f"first\n{printed}\nlast\n", f"first\n…\n{expected}\nlast\n") == same


@pytest.mark.parametrize(("error", "same"), [("0", True), ("7.2e-07", True), ("1.1e-06", False)])
def test_a_rounding_error_of_float32_is_of_any_size_below_a_millionth(error, same):
    """One of float64 is below a thousandth of that."""
    assert agrees(f"within {error} logits", "within 4.8e-07 logits") == same
    assert agrees(f"within {error} logits", "within 6.7e-15 logits") == (error == "0")


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
    text = "See :func:`~interp.sweeps.sweep`, :class:`Cache` and `x`."
    assert without_roles(text) == "See `sweep`, `Cache` and `x`."


NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_a_test_that_a_page_names_exists(path):
    for file, test in NAMED.findall(path.read_text(encoding="utf-8")):
        assert (ROOT / file).exists(), file
        assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_promises_name_laws():
    named = NAMED.findall((DOCS / "explanation/promises.md").read_text(encoding="utf-8"))
    assert {"tests/laws/test_circuits.py", "tests/agreement/test_families.py"} <= {
        f for f, _ in named
    }


LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def test_the_links_of_the_readme_lead_to_files():
    """Those of ``docs`` are checked when the site is built."""
    links = LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert "docs/speed.md" in links
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_site_asks_nothing_of_other_hosts():
    """No fonts, scripts or styles of another host: neither by the settings nor in a page."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert settings["theme"]["font"] is False
    assert settings["extra"]["polyfills"] == ["iframe-worker.js"]
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"!\[[^]]*\]\(https?:|<(?:script|img|link|iframe)\b", text), path
    for path in [*DOCS.glob("*.js"), *DOCS.glob("*.css")]:
        assert not re.search(r"https?:|url\(", path.read_text(encoding="utf-8")), path


def test_diagrams_are_those_that_the_command_draws(tmp_path):
    assert diagrams.main([str(tmp_path)]) == 0
    for path in tmp_path.iterdir():
        drawn = (DOCS / "explanation/figures" / path.name).read_text(encoding="utf-8")
        assert path.read_text(encoding="utf-8") == drawn, "python -m tools.site.diagrams"
        ElementTree.fromstring(drawn)


def test_the_calls_of_another_library_are_listed_by_use():
    page = (DOCS / "how-to/from-transformerlens.md").read_text(encoding="utf-8")
    for table in re.findall(r"\| here \|\n\| [-| ]+\n((?:\|.*\n)+)", page):
        uses = [int(n) for n in re.findall(r"^\|[^|]+\| (\d+)", table, re.MULTILINE)]
        assert uses
        assert uses == sorted(uses, reverse=True)
