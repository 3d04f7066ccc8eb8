"""``interp report --config``: a site of several analyses; only what changed is run again."""

import json
import re
from pathlib import Path
from shutil import copytree

import pytest
from tables import each

import interp
from apps.commands import report_pages
from apps.commands.report_config import read_config
from apps.report.site import HEAD, heads_of, summary
from interp.errors import InvalidInput

CONFIG = """
title = "Letters <&> heads"
models = ["rasp-duplicates"]
seed = 3

[[analyses]]
command = "ablate"

[[analyses]]
command = "roles"

[[analyses]]
command = "circuits"
heads = ["L0H0", "L0H1"]
ov = "{head}"

[[analyses]]
command = "lens"
prompts = "mine.jsonl"
at = ["resid_pre", "attn_out"]
"""
PAGES = [
    "rasp-duplicates-logit-diff-mean",
    "rasp-duplicates-circuits-L0H0",
    "rasp-duplicates-circuits-L0H1",
    "rasp-duplicates-lens-mine",
]


@pytest.fixture(scope="module")
def site(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "mine.jsonl").write_text('{"text": "abcab"}\n{"text": "ebd"}\n')
    (folder / "heads.toml").write_text(CONFIG)
    done = command("report", "--config", folder / "heads.toml", "--out", folder / "out")
    assert done.exit_code == 0, done.output
    return done, folder


def test_each_analysis_has_a_page_with_its_tables(site):
    done, folder = site
    out = folder / "out"
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == sorted(PAGES)
    for name in PAGES:
        files = {path.name for path in (out / name).iterdir()}
        assert {"report.html", "run.json", "page.json"} <= files
        assert any(file.endswith(".parquet") for file in files)
        assert '<a href="../index.html">' in (out / name / "report.html").read_text()
    assert "4 pages run, 0 unchanged." in done.stdout
    assert "rasp-duplicates-roles: left out." in done.stdout
    settings = json.loads((out / PAGES[3] / "run.json").read_text())["settings"]
    assert (settings["seed"], settings["at"]) == (3, ["resid_pre", "attn_out"])
    assert not (folder / ".out.interp-kept").exists()


def test_every_link_of_the_site_leads_to_a_file_of_it(site):
    _, folder = site
    out = folder / "out"
    for file in [*out.glob("*.html"), *out.glob("*/report.html")]:
        targets = re.findall(r'href="([^#"][^"]*)"', file.read_text())
        assert targets
        for target in targets:
            assert (file.parent / target).resolve().is_file(), (file.name, target)
    linked = set(re.findall(r'href="([\w.-]+)/report.html"', (out / "index.html").read_text()))
    assert linked == set(PAGES)


def test_what_is_known_of_a_head_is_in_one_place(site):
    _, folder = site
    page = (folder / "out" / "heads.html").read_text()
    of_head = r'<section id="rasp-duplicates-(\w+)"(.*?)</section>'
    sections = dict(re.findall(of_head, page, re.DOTALL))
    assert [*sections] == ["L0H0", "L0H1", "L0H2", "L0H3"]
    for head, section in sections.items():
        named = {name for name in PAGES if f'href="{name}/' in section}
        assert PAGES[0] in named
        assert {name for name in PAGES if name.endswith(head)} <= named
        assert f"<td>{head}</td>" in section
        others = {other for other in sections if other != head}
        assert not any(f"<td>{other}</td>" in section for other in others)


def test_the_summary_has_every_table_and_no_html(site):
    _, folder = site
    text = (folder / "out" / "summary.md").read_text()
    assert text.startswith("# Letters &lt;&> heads\n")
    assert "| L0H0 | −21.0 |" in text
    for name in PAGES:
        assert f"`{name}/`" in text
    rows = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    assert rows
    assert "rasp-duplicates-roles" in text.split("## Left out")[1]


def test_only_what_changed_is_run_again(site, command, monkeypatch, tmp_path):
    _, folder = site
    ran = []
    run = report_pages.run_analysis

    def counted(settings, *rest, **more):
        ran.append(settings.spec.name)
        return run(settings, *rest, **more)

    monkeypatch.setattr(report_pages, "run_analysis", counted)
    report_pages._hash.cache_clear()
    words = ["report", "--config", folder / "heads.toml", "--out", folder / "out"]
    before = (folder / "out" / PAGES[3] / "lens.csv").read_bytes()
    index = (folder / "out" / "index.html").read_bytes()
    assert command(*words).exit_code == 0
    assert ran == ["roles"]
    assert (folder / "out" / "index.html").read_bytes() == index
    (folder / "mine.jsonl").write_text('{"text": "abcab"}\n{"text": "bbd"}\n')
    report_pages._hash.cache_clear()
    ran.clear()
    assert command(*words).exit_code == 0
    assert ran == ["roles", "lens"]
    assert (folder / "out" / PAGES[3] / "lens.csv").read_bytes() != before
    (folder / "heads.toml").write_text(CONFIG.replace("seed = 3", "seed = 4"))
    ran.clear()
    assert command(*words).exit_code == 0
    assert ran == ["ablate", "roles", "circuits", "circuits", "lens"]


def test_a_hub_model_is_run_again_when_its_commit_changes(command, tmp_path, monkeypatch):
    (tmp_path / "own.toml").write_text(
        'models = "hub:org/letters"\n[[analyses]]\ncommand = "circuits"\nov = "L0H0"\n'
    )
    folder, fetched = interp.loading.MODEL_FOLDER / "rasp-duplicates", {"commit": "a1"}
    name = lambda: f"org/letters@{fetched['commit']}"  # noqa: E731
    monkeypatch.setattr(interp.loading.hub, "fetch", lambda _, **_options: (folder, name()))
    words = ["report", "--config", tmp_path / "own.toml", "--out", tmp_path / "out"]
    outputs = [command(*words).output for _ in range(2)]
    fetched["commit"] = "b2"
    outputs.append(command(*words).output)
    assert [re.findall(r"(\d) pages? run, (\d)", text)[0] for text in outputs] == [
        ("1", "0"),
        ("0", "1"),
        ("1", "0"),
    ]


def test_pages_that_were_done_are_there_after_an_interruption(command, tmp_path, monkeypatch):
    text = '[[analyses]]\ncommand = "ablate"\n[[analyses]]\ncommand = "circuits"\n'
    (tmp_path / "own.toml").write_text(f'models = "rasp-duplicates"\n{text}')
    words = ["report", "--config", tmp_path / "own.toml", "--out", tmp_path / "out"]
    run, ran = report_pages.run_analysis, []

    def interrupted(settings, *rest, **more):
        if settings.spec.name == "circuits":
            raise KeyboardInterrupt
        return run(settings, *rest, **more)

    def counted(settings, *rest, **more):
        ran.append(settings.spec.name)
        return run(settings, *rest, **more)

    monkeypatch.setattr(report_pages, "run_analysis", interrupted)
    stopped = command(*words)
    assert stopped.exit_code == 130
    assert "1 of 2 pages are finished and kept in" in stopped.stderr
    assert "The same command uses them" in stopped.stderr
    assert "nothing was written" not in stopped.stderr
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(report_pages, "run_analysis", counted)
    assert command(*words).exit_code == 0
    assert ran == ["circuits"]
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"out"}


def test_a_summary_has_no_links_images_html_or_ends_of_code():
    lines = summary(r"![x](http://a/b) [y](z) <b> `c` \[d](e)", {}, {}).splitlines()
    assert lines[0] == r"# !\[x\](http://a/b) \[y\](z) &lt;b> 'c' \\\[d\](e)"


def test_a_page_that_is_a_link_or_damaged_is_not_copied(site, tmp_path):
    page = site[1] / "out" / PAGES[0]
    copy = tmp_path / "page"
    copytree(page, copy)
    assert report_pages._key_in(copy) == report_pages._key_in(page) is not None
    (tmp_path / "link").symlink_to(page)
    assert report_pages._key_in(tmp_path / "link") is None
    for name, text in (("page.json", "["), ("run.json", "{}"), ("page.json", '{"key": "a"}')):
        (copy / name).write_text(text)
        assert report_pages._key_in(copy) is None
        (copy / name).write_bytes((page / name).read_bytes())
    assert report_pages._key_in(copy) is not None
    (copy / "a.csv").symlink_to("/etc/passwd")
    assert report_pages._key_in(copy) is None


@each(
    ("text", "message"),
    [
        ("models = [", "is not valid TOML"),
        ('model = "python-2l"', ":1: model is not a key here; did you mean models?"),
        ("top = 3", ":1: top is not a key here: --top belongs on the command line"),
        ('models = ["python-2l"]', "has no analyses"),
        ('[[analyses]]\ncommand = "ablate"', ":1: models is missing"),
        (
            'models = "python-2l"\n[[analyses]]\ncommand = "abalte"',
            ":3: command 'abalte' is not a command",
        ),
        (
            'models = "python-2l"\n[[analyses]]\ncommand = "lens"\n\n'
            '[[analyses]]\ncommand = "ablate"\nmethd = "zero"',
            ":7: methd is not a key here; did you mean method?",
        ),
        (
            'models = "python-2l"\n[[analyses]]\ncommand = "ablate"\nmethod = "none"',
            ":3, ablate: Invalid value for '--method'",
        ),
        (
            'prompts = "none.jsonl"\nmodels = "python-2l"\n[[analyses]]\ncommand = "lens"',
            ":1: prompts none.jsonl is neither a file",
        ),
        ('models = "python-2l"\n[[analyses]]\ncommand = "lens"\nmodels = "x"', ":4: 'x' is not a"),
        ("title = 3", ":1: title should be a string, got 3"),
        ("analyses = 3", "has no analyses"),
        ('models = [1]\n[[analyses]]\ncommand = "lens"', "should be a list of strings"),
        (
            'models = "python-2l"\n[[analyses]]\ncommand = "lens"\nat = {a = 1}',
            ":4: at should be a string or a number",
        ),
        (".".join(["a"] * 20_000) + " = 1", "a key has more than 16 parts"),
        ("a = " + "[" * 50_000, "nested deeper than 32 levels"),
        ("seed = " + "9" * 5000, "more than 1000 characters"),
        ("[[analyses]]\n" * 15_000, "more than 1000 pages"),
        (
            'models = "python-2l"\n'
            f"[[analyses]]\ncommand = 'circuits'\nheads = {['L0H0'] * 1001}\nov = '{{head}}'",
            "more than 1000 pages",
        ),
        (
            'models = "python-2l"\n'
            f"[[analyses]]\ncommand = 'ablate'\nheads = {['L0H0'] * 9}\nmethod = {['zero'] * 9000}",
            "more than 100000 options",
        ),
    ],
)
def test_a_file_that_can_not_be_used_is_refused_with_the_line(tmp_path, text, message):
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_config(file)
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_missing_file_and_options_beside_a_file_are_refused(command, tmp_path):
    done = command("report", "--config", tmp_path / "none.toml")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "can't be read" in done.stderr
    done = command("report", "--config", tmp_path / "none.toml", "--model", "python-4l")
    assert done.exit_code == 2
    assert "settings are in the file" in " ".join(done.stderr.split())


def test_paths_are_relative_to_the_file_and_pages_have_names_of_their_own(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "ab"}\n')
    text = 'models = "rasp-reverse"\nprompts = ["a.jsonl", "rasp-reverse"]\n'
    entry = '[[analyses]]\ncommand = "lens"\n'
    (tmp_path / "own.toml").write_text(text + entry + entry)
    pages = read_config(tmp_path / "own.toml").pages
    assert [Path(page.prompts or "").name for page in pages.values()] == [
        "a.jsonl",
        "rasp-reverse",
    ] * 2
    assert len(pages) == 4
    assert pages["rasp-reverse-lens-a"].prompts == str(tmp_path / "a.jsonl")


@each(
    ("text", "heads"),
    [
        ("L0H1", ["L0H1"]),
        ("L0H1.q", ["L0H1"]),
        ("L0H1 → L12H3.k", ["L0H1", "L12H3"]),
        ("L0MLP", []),
    ],
)
def test_the_heads_of_a_name(text, heads):
    assert HEAD.findall(text) == heads


def test_nothing_known_gives_no_heads():
    assert heads_of({}, Path()) == {}
    assert "## Provenance" in summary("x", {}, {})
