"""The pages of analyses: each has one, whose code runs, and the pages are up to date."""

import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
import yaml
from architectures import covering
from typer.testing import CliRunner

import analyses
import interp
from apps.cli import app
from apps.commands import COMMANDS
from apps.commands.group import TOPICS
from apps.method_text import paragraphs, question
from tools import analyses_pages
from tools.analyses_pages import (
    EXAMPLES,
    FIGURES,
    QUESTIONS,
    Products,
    asked,
    docstring_of,
    index,
    method,
    options,
    page,
)
from tools.site.pages import agrees

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference" / "analyses"


def stored(name):
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def test_every_analysis_has_an_example_and_answers_one_question():
    assert set(EXAMPLES) == set(analyses.available())
    assert sorted(name for names in QUESTIONS.values() for name in names) == sorted(EXAMPLES)


def test_a_command_is_listed_under_the_question_that_its_page_answers():
    topic_of = {name: topic for topic, names in TOPICS.items() for name in names}
    question_of = {name: asked for asked, names in QUESTIONS.items() for name in names}
    functions = {spec.name: spec.entry.attr for spec in COMMANDS if spec.entry.attr in EXAMPLES}
    assert len(functions) > len(COMMANDS) / 2
    for name, function in functions.items():
        assert question_of[function].startswith(topic_of[name].removesuffix("?")), name


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_page_has_what_the_docstring_has(name):
    text = docstring_of(name)
    assert any(paragraph.is_equation for paragraph in paragraphs(text))
    assert len(question(text)) < 100
    for part in (*asked(name, EXAMPLES[name]), *method(name), *options(name)):
        assert part in stored(name), "run `make analyses`"
    assert f"({FIGURES}/{name}.svg)" in stored(name)


LONG_PAGES = [
    *("attribute_edges", "explain_scores", "frequencies", "head_census", "neurons"),
    *("order_sensitivity", "prune"),
]
"""Analyses whose pages take two seconds and more."""


@pytest.mark.parametrize(
    "name",
    covering(EXAMPLES, ["attention_pattern", "logit_lens", "patch_activations"], LONG_PAGES),
)
def test_a_page_is_what_the_command_writes(name, tmp_path):
    assert agrees(page(name, EXAMPLES[name], tmp_path), stored(name)), "run `make analyses`"
    ElementTree.fromstring((tmp_path / f"{name}.svg").read_text(encoding="utf-8"))


EXAMPLE_COMMANDS = [example.command for example in EXAMPLES.values() if example.command]
LONG = {
    *("trace", "prune", "continue", "train-lens", "attribute", "nodes", "paths", "explain"),
    *("census", "roles", "compare", "covariance", "order", "frequencies", "scores", "steer"),
    *("erase", "probe", "check-dictionaries"),
}
"""Commands that take longer with the options of their pages than with those of
``declared.Command``, with which test_commands.py runs each of them."""


@pytest.mark.parametrize("command", EXAMPLE_COMMANDS)
def test_the_command_of_a_page_has_options_that_there_are(command, monkeypatch):
    called = []
    monkeypatch.setattr(
        "apps.commands.carry_out.carry_out", lambda spec, *options: called.append(spec.name)
    )
    words = shlex.split(command)[1:]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert called == words[:1]
    assert CliRunner().invoke(app, [*words, "--not-an-option"]).exit_code == 2


@pytest.mark.parametrize(
    "command",
    covering(
        EXAMPLE_COMMANDS,
        ["interp ablate"],
        nightly=[command for command in EXAMPLE_COMMANDS if command.split()[1] in LONG],
    ),
)
def test_the_command_of_a_page_runs(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "reports").iterdir()
    assert {"report.html", "run.json"} <= {path.name for path in folder.iterdir()}


def test_no_page_is_left_of_an_analysis_that_is_gone():
    assert {path.stem for path in PAGES.glob("*.md")} == {*EXAMPLES, "index"}
    assert {path.stem for path in (PAGES / FIGURES).iterdir()} == set(EXAMPLES)


def test_index_and_menu_list_the_analyses_by_question():
    assert stored("index") == index([*EXAMPLES]), "run `make analyses`"
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    (reference,) = (entry["Reference"] for entry in nav if "Reference" in entry)
    (menu,) = (entry["Analyses"] for entry in reference if "Analyses" in entry)
    assert menu == [
        "reference/analyses/index.md",
        *(
            {group: [{name: f"reference/analyses/{name}.md"} for name in names]}
            for group, names in QUESTIONS.items()
        ),
    ]


@pytest.mark.slow
def test_the_command_writes_the_pages_and_their_figures(tmp_path, monkeypatch):
    few = {name: EXAMPLES[name] for name in ("attention_pattern", "training_history")}
    monkeypatch.setattr(analyses_pages, "EXAMPLES", few)
    assert analyses_pages.main(["--docs", str(tmp_path)]) == 0
    assert {path.stem for path in tmp_path.glob("*.md")} == {*few, "index"}
    assert {path.stem for path in (tmp_path / FIGURES).iterdir()} == set(few)
    assert "ablate_heads" not in (tmp_path / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kernel", ["fused", "explicit"])
def test_products_count_those_of_attention_forward_and_backward(kernel):
    """2 n_in n_out operations per token of a weight, 4 d_head per head, query and key."""
    model = interp.load("induction-by-hand")
    tokens = model.to_tokens("abcabcabc")
    n = tokens.numel()
    weights = model.d_model * (4 * model.n_layers * model.n_heads * model.d_head + model.d_vocab)
    attention = 4 * n * n * model.d_head * model.n_heads * model.n_layers
    with Products() as forward:
        interp.run(model, tokens, kernel=kernel)
    assert forward.operations == 2 * n * weights + attention
    embedded = torch.randn(n, model.d_model, requires_grad=True)
    with Products() as both:
        (embedded @ torch.ones(model.d_model, 3)).sum().backward()
    assert both.operations == 2 * (2 * n * model.d_model * 3)
