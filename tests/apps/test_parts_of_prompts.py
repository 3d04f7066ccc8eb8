"""Commands run prompts in parts, whose numbers go to Parquet files."""

import json
import sys

import pandas as pd
import pytest
from tables import each

import analyses
from apps.commands import COMMANDS, analysis_run
from interp import read_prompts
from interp.prompts import sha256_of_prompts

MODEL = ("--model", "python-2l")
WITH_PARTS = {"ablate", "attribute", "dla", "nodes", "patch", "paths", "patterns"}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Of eight prompts each."""

    def in_parts(*arguments, **settings):
        return analyses.run_in_parts(*arguments, **settings, size=8)

    monkeypatch.setattr(analysis_run, "run_in_parts", in_parts)


@pytest.fixture
def many(tmp_path):
    """A file of 21 prompts, with pairs."""
    prompts = read_prompts("python-2l-pairs")
    file = tmp_path / "many.jsonl"
    lines = [json.dumps(prompts[number % len(prompts)].fields()) for number in range(21)]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_the_commands_with_numbers_of_single_prompts_have_the_option():
    assert {spec.name for spec in COMMANDS if spec.derived.has_separate_prompts} == WITH_PARTS


@each(
    "words",
    [
        ("ablate", "--method", "zero", "--metric", "kl"),
        ("ablate", "--reference", "repeated", "--metric", "logit-diff"),
        ("dla",),
        ("nodes",),
        ("paths", "--into", "logits"),
    ],
)
def test_the_table_is_that_of_all_prompts_at_once(command, tmp_path, many, words):
    """And the numbers of each prompt are in the files."""
    inputs = (*words, *MODEL, "--prompts", many)
    tmp_path = tmp_path / words[-1].strip("-")
    tmp_path.mkdir()
    parts = command(*inputs, "--out", tmp_path / "parts", "--per-prompt", tmp_path / "numbers")
    assert parts.exit_code == 0, parts.output
    assert "of 21 prompts" in parts.output
    whole = command(*inputs, "--out", tmp_path / "whole")
    assert whole.exit_code == 0, whole.output
    files = sorted(file.name for file in (tmp_path / "numbers").glob("*.parquet"))
    assert files == [f"prompts-{number:010d}.parquet" for number in (0, 8, 16)]
    assert pd.read_parquet(tmp_path / "numbers")["prompt"].nunique() == 21
    name = next(file.name for file in (tmp_path / "parts").glob("*.parquet"))
    ours, theirs = (
        pd.read_parquet(tmp_path / folder / name).set_index("name") for folder in ("parts", "whole")
    )
    columns = [name for name in ("effect", "low", "high", "size", "share", "p") if name in theirs]
    pd.testing.assert_frame_equal(
        ours[columns].sort_index(), theirs[columns].sort_index(), rtol=1e-4, atol=1e-5
    )


def test_run_json_has_the_number_and_the_hash_of_the_prompts(command, tmp_path, many):
    """And is repeated bit for bit."""
    words = ("ablate", *MODEL, "--method", "zero", "--prompts", many)
    done = command(*words, "--out", tmp_path / "out", "--per-prompt", tmp_path / "numbers")
    assert done.exit_code == 0, done.output
    described = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    read = described["prompts"]
    assert (read["n"], read["sha256"], read["prompts"]) == (21, sha256_of_prompts(many), None)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Which parts of a model matter for these prompts?" in page  # what ablate answers
    assert described["settings"]["per_prompt"] == str(tmp_path / "numbers")
    repeated = command("repeat", tmp_path / "out")
    assert repeated.exit_code == 0, repeated.output
    assert "heads: the same numbers, bit for bit" in repeated.output


def test_a_stopped_run_is_resumed(command, tmp_path, many, monkeypatch):
    """With the bytes of a run that was not stopped; without --resume it is refused."""
    words = ("ablate", *MODEL, "--method", "zero", "--prompts", many)
    calls = []
    ablate_heads = analyses.ablate_heads

    def stopping(*arguments, **settings):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return ablate_heads(*arguments, **settings)

    monkeypatch.setattr(sys.modules["apps.commands.ablate"].analyses, "ablate_heads", stopping)
    place = ("--out", tmp_path / "out", "--per-prompt", tmp_path / "numbers")
    stopped = command(*words, *place)
    assert stopped.exit_code == 130, stopped.output
    assert len([*(tmp_path / "numbers").glob("*.parquet")]) == 2
    refused = command(*words, *place)
    assert (refused.exit_code, "--resume" in refused.output) == (2, True), refused.output
    resumed = command(*words, *place, "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert "partial results" not in resumed.output
    assert len(calls) == 5  # the first part once more, and the third
    other = ("--out", tmp_path / "other", "--per-prompt", tmp_path / "others")
    assert command(*words, *other).exit_code == 0
    for first, second in (("numbers", "others"), ("out", "other")):
        names = {file.name for file in (tmp_path / first).glob("*.parquet")}
        assert names
        for name in names:
            assert (tmp_path / first / name).read_bytes() == (tmp_path / second / name).read_bytes()


def test_numbers_that_depend_on_other_prompts_are_refused(command, tmp_path, many, monkeypatch):
    place = ("--out", tmp_path / "out", "--per-prompt", tmp_path / "numbers")
    words = ("ablate", *MODEL, "--prompts", many, *place)
    refused = command(*words)
    assert refused.exit_code == 2
    assert "give" in refused.output
    assert "reference" in refused.output
    inside = command(*words, "--method", "zero", "--per-prompt", tmp_path / "out" / "numbers")
    assert inside.exit_code == 2
    assert "one is inside" in inside.output
    monkeypatch.setattr(analysis_run, "n_processes", lambda: 2)
    several = command(*words, "--method", "zero")
    assert several.exit_code == 2
    assert "tensor-parallel" in several.output
