"""``interp report``: one page of several analyses, with the tables of each."""

import json
import re
from html import unescape
from importlib import import_module

import pandas as pd
import pytest

import interp
from apps.commands import COMMANDS
from apps.commands.report import SECTIONS
from apps.report import Report, ReportPrompt
from apps.report.sections import Section, sections_page

EVIL = "</script><img src=x onerror=alert(1)>&amp;"


@pytest.fixture(scope="module")
def written(command, tmp_path_factory):
    """Roles can't be measured on five letters."""
    out = tmp_path_factory.mktemp("report") / "out"
    words = [word for name in ("roles", "ablate", "explain") for word in ("--section", name)]
    done = command("report", "--model", "rasp-duplicates", *words, "--out", out)
    assert done.exit_code == 0, done.output
    return done, out


def test_the_page_has_a_section_for_each_analysis(written):
    done, out = written
    page = (out / "report.html").read_text()
    assert re.findall(r'<section id="(\w+)">', page) == ["ablate", "explain"]
    questions = re.findall(r"<h2>(.*?)</h2>", page)
    assert questions[:2] == [
        "Which heads matter for these prompts?",
        "Which circuit makes this answer?",
    ]
    drawn = re.findall(r'<div class="views" data-views="(\w+)"', page)
    assert drawn == re.findall(r'json" id="views-(\w+)"', page) == ["ablate", "explain"]
    conclusions = [unescape(text) for text in re.findall(r'class="conclusion">(.*?)</p>', page)]
    for name, conclusion in zip(("ablate", "explain"), conclusions, strict=True):
        assert json.loads((out / name / "run.json").read_text())["answer"] == conclusion
        assert f"{name}: {conclusion}" in " ".join(done.stdout.split())
    assert "embed → L0H0.k → L0MLP → logits" in conclusions[1]


def test_what_a_model_does_not_allow_is_left_out_with_the_reason(written):
    done, out = written
    assert "roles: left out. Rows of 2 × 2 tokens" in " ".join(done.stdout.split())
    assert "Left out" in (out / "report.html").read_text()
    assert not (out / "roles").exists()


def test_the_time_of_each_section_is_printed(written):
    done, _ = written
    times = re.findall(r"Section (\d) of 3, (\w+): \d+ s", done.stderr)
    assert times == [("2", "ablate"), ("3", "explain")]


def test_a_section_has_progress_of_its_own(command, tmp_path, monkeypatch):
    monkeypatch.setattr("apps.terminal.LOG_INTERVAL", 0.0)
    words = ["--model", "induction-by-hand", "--section", "ablate", "--out", tmp_path / "out"]
    done = command("report", *words)
    assert "Section 1 of 1, ablate: 8 of 8" in done.stderr, done.output


def test_each_section_has_the_tables_of_its_command(written, command, tmp_path):
    _, out = written
    run = json.loads((out / "explain" / "run.json").read_text())
    assert run["command"].startswith("interp explain --model rasp-duplicates")
    done = command(*run["command"].split()[1:], "--out", tmp_path / "alone")
    assert done.exit_code == 0, done.output
    for name in ("explain.csv", "edges.csv"):
        in_report, alone = (
            pd.read_csv(path / name) for path in (out / "explain", tmp_path / "alone")
        )
        pd.testing.assert_frame_equal(in_report, alone)


@pytest.mark.slow
def test_explain_uses_what_earlier_sections_measured(command, tmp_path, monkeypatch):
    explain = import_module("analyses.explain")  # also the name of the function
    monkeypatch.setattr(explain, "attribute_edges", lambda *_, **__: pytest.fail("again"))
    words = ("--model", "rasp-duplicates", "--section", "attribute", "--section", "explain")
    done = command("report", *words, "--out", tmp_path / "out")
    assert "explain: left out" not in done.output
    assert done.exit_code == 0, done.output


def test_the_default_sections_are_commands():
    assert set(SECTIONS) <= {command.name for command in COMMANDS}


def test_a_section_is_named_as_its_command_is_typed(command, tmp_path):
    words = ["--model", "induction-by-hand", "--section", "top-texts", "--out", tmp_path / "out"]
    done = command("report", *words)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "top-texts" / "run.json").is_file()
    page = (tmp_path / "out" / "report.html").read_text()
    assert re.findall(r'<section id="([^"]+)">', page) == ["top-texts"]
    assert 'id="views-top-texts"' in page


@pytest.mark.parametrize(
    ("section", "message"), [("thoughts", "thoughts"), ("roles", "roles: Rows of 2 × 2 tokens")]
)
def test_a_report_without_any_section_is_refused(command, tmp_path, section, message):
    words = ["--model", "rasp-duplicates", "--section", section, "--out", tmp_path / "out"]
    done = command("report", *words)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_texts_stay_texts(finding):
    prompts = [ReportPrompt((EVIL,), EVIL, EVIL)] * 5
    report = Report(finding([[1.0, 1.1, 0.9, 1.05, 0.95]], model=EVIL), prompts, {"command": EVIL})
    page = sections_page([Section("ablate", report)], {EVIL: EVIL})
    assert "<img" not in page
    assert page.count("&lt;img") >= 5


def test_a_folder_is_reported_on_its_own_prompts(command, tmp_path):
    """A folder without a card has no prompts: the advice to give --prompts can be followed."""
    interp.load("induction-by-hand").save(tmp_path / "model")
    words = ["report", "--model", tmp_path / "model", "--section", "ablate", "--section", "lens"]
    refused = command(*words, "--out", tmp_path / "out")
    assert refused.exit_code == 2
    assert "give --prompts" in refused.stderr
    how = ["--prompts", "letters", "--dtype", "float64", "--rows", "4", "--memory", "1GB"]
    done = command(*words, *how, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    run = json.loads((tmp_path / "out" / "ablate" / "run.json").read_text())
    assert "--prompts letters" in run["command"]
    assert "--dtype float64" in run["command"]
    assert "--memory 1000000000" in run["command"]
    lens = json.loads((tmp_path / "out" / "lens" / "run.json").read_text())
    assert "--memory" not in lens["command"]


def test_settings_of_a_site_are_given_in_its_file(command, tmp_path):
    (tmp_path / "own.toml").write_text('models = "python-2l"\n[[analyses]]\ncommand = "roles"\n')
    done = command("report", "--config", tmp_path / "own.toml", "--rows", "3", "--dtype", "float64")
    assert done.exit_code == 2
    assert "--dtype and --rows can't be combined with --config" in done.stderr
