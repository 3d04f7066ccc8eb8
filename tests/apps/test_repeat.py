"""Runs that are stopped, resumed and repeated give the same numbers, bit for bit."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from architectures import covering
from tables import each
from waiting_command import PROGRAM

from apps.commands import COMMANDS, partial_run
from apps.commands.options import FILES, SHARED
from apps.commands.saved_table import saved_table
from apps.commands.written_run import difference
from interp.errors import InvalidInput
from interp.kernels import choice as kernel

PAGE = (Path(__file__).parents[2] / "docs/how-to/repeat.md").read_text(encoding="utf-8")
ABLATE = ["ablate", "--model", "rasp-reverse", "--memory", "300kB"]
HEADS = ["heads", "--model", "rasp-reverse", "--rows", "2"]
PATCH = [
    "patch",
    "--model",
    "rasp-reverse",
    "--memory",
    "300kB",
    "--at",
    "z",
    "--over",
    "layer-head",
]


@pytest.fixture
def slices(monkeypatch):
    """The first slices of a sweep end after a few forwards; the forwards that there were."""
    forwards = []

    class Short(partial_run.Slice):
        def __call__(self) -> bool:
            if self.has_begun:
                forwards.append(None)
            return self.has_begun and len(forwards) in (1, 3, 6)

    monkeypatch.setattr(partial_run, "Slice", Short)
    return forwards


def tables_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".csv"}


SWEEPS = {
    "ablate": ABLATE,
    "ablate kl": [*ABLATE, "--units", "layers", "--method", "resample", "--metric", "kl"],
    "patch": PATCH,
    "paths": ["paths", "--model", "rasp-reverse", "--memory", "3MB"],
    "attribute": ["attribute", "--model", "rasp-reverse", "--check", "8", "--memory", "1MB"],
    "nodes": ["nodes", "--model", "rasp-reverse", "--check", "8", "--memory", "1MB"],
    "heads": HEADS,
    "erase": ["erase", "--model", "rasp-histogram", "--metric", "kl", "--memory", "300kB"],
}


@pytest.mark.parametrize(
    "name", covering(SWEEPS, ["ablate kl", "heads", "patch"], nightly=["paths", "attribute"])
)
def test_slices_change_no_number(command, tmp_path, slices, monkeypatch, name):
    words = SWEEPS[name]
    done = command(*words, "--out", tmp_path / "sliced")
    assert done.exit_code == 0, done.output
    assert len(slices) > 2
    monkeypatch.setattr(partial_run.Slice, "__call__", lambda _: False)
    assert command(*words, "--out", tmp_path / "whole").exit_code == 0
    assert tables_of(tmp_path / "sliced") == tables_of(tmp_path / "whole")
    assert {path.name for path in tmp_path.iterdir() if "kept" in path.name} == set()


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(command, tmp_path):
    words, out = ABLATE, tmp_path / "out"
    assert command(*words, "--out", tmp_path / "whole").exit_code == 0
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words, "--out", str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        done = int(process.stdout.readline())
        process.kill()
    assert not out.exists()
    left = json.loads((tmp_path / ".out.interp-kept" / "run.json").read_text())
    assert left["computed"]["command"] == "ablate"
    resumed = command(*words, "--resume", "--out", out)
    assert resumed.exit_code == 0, resumed.output
    assert done > 0
    assert tables_of(out) == tables_of(tmp_path / "whole")
    assert not (tmp_path / ".out.interp-kept").exists()
    assert not (tmp_path / ".out.interp-new").exists()


def interrupted(monkeypatch):
    """Ctrl-C after the second forward."""
    asked = []

    class Interrupting(partial_run.Slice):
        def __call__(self) -> bool:
            super().__call__()
            asked.append(None)
            if len(asked) == 2:
                raise KeyboardInterrupt
            return False

    monkeypatch.setattr(partial_run, "Slice", Interrupting)


LENS = ["train-lens", "--model", "rasp-reverse", "--prompts", "rasp-reverse", "--steps", "6"]


def test_a_stopped_training_goes_on_and_ends_with_the_same_bytes(command, tmp_path, monkeypatch):
    """Ctrl-C after its third step; the lens and the tables are those of a whole one."""
    assert command(*LENS, "--out", tmp_path / "whole").exit_code == 0
    monkeypatch.setattr(partial_run, "SLICE", 0.0)
    monkeypatch.setattr(partial_run, "PREPARATIONS", 0)
    write = partial_run.PartialRun.write

    def stops(partial, state, budget):
        write(partial, state, budget)
        if len(state.kl) == 3:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(partial_run.PartialRun, "write", stops)
        done = command(*LENS, "--out", out)
    assert done.exit_code == 130
    assert "Interrupted with 2 of 6 steps done" in " ".join(done.stderr.split())
    assert not out.exists()
    other = command(*LENS, "--lr", "0.1", "--out", out, "--resume")
    assert (
        other.exit_code,
        "had lr 0.003, this one has 0.1" in " ".join(other.stderr.split()),
    ) == (
        2,
        True,
    )
    steps = []
    monkeypatch.setattr(
        partial_run.PartialRun, "write", lambda _, state, budget: steps.append(len(state.kl))
    )
    resumed = command(*LENS, "--out", out, "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert steps == [4, 5, 6]
    assert tables_of(out) == tables_of(tmp_path / "whole")
    lenses = [(folder / "lens.safetensors").read_bytes() for folder in (out, tmp_path / "whole")]
    assert lenses[0] == lenses[1]
    assert not (tmp_path / ".out.interp-kept").exists()


@pytest.mark.slow
def test_ctrl_c_keeps_the_texts_that_were_read(command, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        interrupted(patched)
        stopped = command(*HEADS, "--out", tmp_path / "out")
    assert stopped.exit_code == 130
    assert "Interrupted with 4 texts done, which are kept" in stopped.stderr
    kept = tmp_path / ".out.interp-kept" / "sweep.safetensors"
    whole_file = kept.read_bytes()
    kept.write_bytes(whole_file[:-1])
    damaged = command(*HEADS, "--out", tmp_path / "out", "--resume")
    assert damaged.exit_code == 2
    assert "sweep.safetensors is not what" in damaged.stderr
    kept.write_bytes(whole_file)
    resumed = command(*HEADS, "--out", tmp_path / "out", "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert command(*HEADS, "--out", tmp_path / "whole").exit_code == 0
    assert tables_of(tmp_path / "out") == tables_of(tmp_path / "whole")


@pytest.mark.parametrize("gain", [1.5, 0.9])
def test_a_repeated_run_uses_the_kernel_of_the_run(command, tmp_path, monkeypatch, gain):
    """Chosen by a measurement at first; then the recorded one, without a measurement."""
    monkeypatch.setattr(kernel, "LARGE", 0)
    monkeypatch.setattr(kernel, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(kernel, "packing_gain", lambda _: gain)
    assert command(*ABLATE, "--out", tmp_path / "out").exit_code == 0
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["settings"]["kernel"] == ("packed" if gain > 1 else "default")
    assert run["provenance"]["products"].startswith(run["settings"]["kernel"])
    assert f"{gain:.2f}" in run["provenance"]["kernel_choice"]
    assert f"{gain:.2f}" in (tmp_path / "out" / "report.html").read_text()
    monkeypatch.setattr(kernel, "faster_kernel", None)
    repeated = command("repeat", tmp_path / "out")
    assert repeated.exit_code == 0, repeated.output
    assert "bit for bit" in repeated.output
    assert "products" not in repeated.output
    other = command("repeat", tmp_path / "out", "--kernel", "default")
    assert ("provenance.products was packed" in other.output) == (gain > 1)


def test_a_run_without_a_choice_of_kernel_is_repeated_with_the_default(
    command, tmp_path, monkeypatch
):
    assert command(*ABLATE, "--out", tmp_path / "out").exit_code == 0
    assert "kernel" not in json.loads((tmp_path / "out" / "run.json").read_text())["settings"]
    monkeypatch.setattr(kernel, "LARGE", 0)
    monkeypatch.setattr(kernel, "faster_kernel", None)
    assert command("repeat", tmp_path / "out").exit_code == 0


def test_ctrl_c_keeps_what_is_done_and_prints_it(command, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        interrupted(patched)
        stopped = command(*ABLATE, "--out", tmp_path / "out")
    assert stopped.exit_code == 130
    assert "cells done, which are kept: the same command with --resume" in stopped.stderr
    anew = command(*ABLATE, "--seed", 1, "--out", tmp_path / "out", "--resume")
    assert (anew.exit_code, anew.stderr.count("\n")) == (2, 1)
    assert "had seed 0, this one has 1" in anew.stderr
    resumed = command(*ABLATE, "--out", tmp_path / "out", "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert command(*ABLATE, "--out", tmp_path / "whole").exit_code == 0
    assert tables_of(tmp_path / "out") == tables_of(tmp_path / "whole")


@pytest.mark.slow
def test_without_resume_a_run_begins_anew_and_mentions_what_was_kept(
    command, tmp_path, monkeypatch
):
    with monkeypatch.context() as patched:
        interrupted(patched)
        command(*ABLATE, "--out", tmp_path / "out")
    anew = command(*ABLATE, "--out", tmp_path / "out")
    assert anew.exit_code == 0
    assert "holds the partial results of a run that was stopped" in anew.stderr
    assert not (tmp_path / ".out.interp-kept").exists()
    nothing = command(*ABLATE, "--out", tmp_path / "out", "--resume")
    assert nothing.exit_code == 0
    assert "There are no partial results for this output folder" in nothing.stderr


@pytest.mark.slow
def test_resume_has_no_effect_on_a_command_without_partial_results(command, tmp_path):
    """It is accepted, so that a script may always pass it; the numbers are those without it."""
    words = ["dla", "--model", "induction-by-hand"]
    done = command(*words, "--out", tmp_path / "resumed", "--resume")
    assert done.exit_code == 0, done.output
    assert "interp dla keeps no partial results, so --resume has no effect" in done.stderr
    assert "partial results" not in done.stdout
    plain = command(*words, "--out", tmp_path / "plain")
    assert "--resume" not in plain.stderr
    assert tables_of(tmp_path / "resumed") == tables_of(tmp_path / "plain")


@pytest.mark.slow
def test_a_command_without_partial_results_leaves_those_of_another(command, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        interrupted(patched)
        command(*ABLATE, "--out", tmp_path / "out")
    for words in (["--resume"], []):
        done = command("dla", "--model", "rasp-reverse", "--out", tmp_path / "out", *words)
        assert done.exit_code == 0, done.output
        assert "run that was stopped" not in done.stderr
    resumed = command(*ABLATE, "--out", tmp_path / "out", "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert "There are no partial results" not in resumed.stderr
    assert not (tmp_path / ".out.interp-kept").exists()


def test_the_resumable_commands_are_those_whose_analyses_take_a_partial_result(command):
    """And the help of each command states whether it is one."""
    resumable = {spec.name for spec in COMMANDS if spec.is_resumable}
    listed = re.findall(r"Partial results are saved by the commands .*?:(.*?)\.", PAGE, re.DOTALL)
    assert {*re.findall("`(.+?)`", listed[0])} == resumable
    assert resumable == {
        *("ablate", "patch", "paths", "attribute", "nodes", "erase", "head-effects", "heads"),
        "train-lens",
    }
    for spec in COMMANDS:
        help_text = " ".join(command(spec.name, "--help").stdout.split())
        assert ("keeps no partial results" in help_text) != spec.is_resumable, spec.name


def replace_in_run_file(folder, **values):
    """Replace values of the file beside a partial result."""
    file = folder / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def flip_a_bit(folder):
    """Change the last byte, which is of a number."""
    file = folder / "sweep.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def as_link(folder):
    """Move the folder away and leave a link to it."""
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "run.json").unlink(), "can't be read"),
        (lambda folder: (folder / "run.json").write_text("{}"), "can't be read"),
        (lambda folder: (folder / "sweep.safetensors").write_text("no"), "not a valid"),
        (
            lambda folder: replace_in_run_file(folder, computed=[]),
            "it.computed should be an object",
        ),
        (lambda folder: replace_in_run_file(folder, budget=0), "a budget of 0 bytes"),
        (
            lambda folder: replace_in_run_file(folder, budget=2**63),
            "a budget of 9223372036854775808 bytes",
        ),
        (lambda folder: replace_in_run_file(folder, budget="1"), "it.budget should be of type int"),
        (flip_a_bit, "its SHA-256 is not the one that it was written with"),
        (as_link, "is a link, not a folder"),
    ],
)
def test_what_is_kept_and_damaged_is_refused(command, tmp_path, monkeypatch, damage, message):
    with monkeypatch.context() as patched:
        interrupted(patched)
        command(*ABLATE, "--out", tmp_path / "out")
    damage(tmp_path / ".out.interp-kept")
    done = command(*ABLATE, "--out", tmp_path / "out", "--resume")
    assert (done.exit_code, done.stderr.count("\n")) == (4 if damage is as_link else 2, 1)
    assert message in done.stderr


def test_a_repeated_run_has_the_same_numbers(command, tmp_path):
    out = tmp_path / "out"
    assert command(*PATCH, "--seed", 3, "--out", out).exit_code == 0
    done = command("repeat", out / "run.json", "--out", tmp_path / "again")
    assert done.exit_code == 0, done.output
    assert "patch: the same numbers, bit for bit" in done.stdout
    assert "patch_by_prompt: the same numbers" in done.stdout
    assert tables_of(tmp_path / "again") == tables_of(out)


@pytest.mark.slow
def test_a_repeated_run_lists_the_numbers_that_differ_and_what_else_does(command, tmp_path):
    out = tmp_path / "out"
    assert command("dla", "--model", "python-2l", "--out", out).exit_code == 0
    done = command("repeat", out, "--dtype", "bfloat16")
    assert done.exit_code == 1
    assert "effect by up to" in done.stdout
    assert "provenance.dtype was float32, is bfloat16" in done.stdout


def test_a_run_is_repeated_from_elsewhere_without_its_prompt_file(
    command, tmp_path, monkeypatch, prompts
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").write_bytes(prompts.read_bytes())
    words = ["--model", "induction-by-hand", "--prompts", "mine.jsonl", "--out", "out"]
    assert command("lens", *words).exit_code == 0
    described = json.loads((tmp_path / "out" / "run.json").read_text())
    assert described["settings"]["prompts"] == str(tmp_path / "mine.jsonl")
    (tmp_path / "mine.jsonl").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = command("repeat", tmp_path / "out")
    assert done.exit_code == 0, done.output
    (tmp_path / "mine.jsonl").write_text('{"text": "abab"}')
    assert command("repeat", tmp_path / "out").exit_code == 0


@each(
    ("contents", "message"),
    [
        ("{", "can't be read"),
        ('{"command": "rm -rf x"}', "expected a"),
        ('{"command": "interp unknown --model x"}', "no command unknown"),
        ('{"command": "interp lens --colour red"}', "No such option"),
        ('{"command": "interp \\"lens"}', "expected a"),
        ('{"command": "interp lens", "budget": "1"}', "budget should be of type int"),
        ('{"command": "interp lens", "budget": 0}', "the budget 0 is no number of bytes"),
        ('{"command": "interp lens", "budget": 9223372036854775808}', "is no number of bytes"),
        ('{"command": "interp lens", "prompts": [1]}', "prompts should be an object"),
        ('{"command": "interp lens", "prompts": {"sha256": 1}}', "prompts.sha256 should be"),
    ],
)
def test_a_run_that_can_not_be_repeated_is_refused(command, tmp_path, contents, message):
    (tmp_path / "run.json").write_text(contents)
    done = command("repeat", tmp_path)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert message in done.stderr


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A table of 100 rows."""
    file = tmp_path_factory.mktemp("saved") / "heads.parquet"
    frame = pd.DataFrame({"name": ["a", "b"] * 50, "layer": range(100), "effect": [0.5] * 100})
    frame.to_parquet(file, index=False)
    return file, frame


def test_a_saved_table_is_read_as_it_was_written(saved):
    file, frame = saved
    assert difference(saved_table(file, frame), frame) == ""
    changed = frame.assign(name=["a", "c"] * 50)
    assert "name in 50 of 100 rows" in difference(saved_table(file, changed), changed)
    smaller = frame.head(3)
    expected = "100 rows of name, layer, effect before, 3 of name, layer, effect now"
    assert difference(saved_table(file, smaller), smaller) == expected


@each(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-20]),
        lambda file: file.write_bytes(file.read_bytes().replace(b"PAR1", b"PAR2")),
        lambda file: (file.unlink(), os.mkfifo(file)),
        lambda file: (file.unlink(), file.symlink_to("/dev/zero")),
        lambda file: (file.unlink(), file.symlink_to("/etc/passwd")),
        lambda file: (file.unlink(), file.symlink_to(file.name)),
        lambda file: pd.DataFrame({"name": [[1]] * 100}).to_parquet(file),
    ],
)
def test_a_saved_table_that_can_not_be_read_is_refused(saved, tmp_path, damage):
    file = tmp_path / "heads.parquet"
    file.unlink(missing_ok=True)
    file.write_bytes(saved[0].read_bytes())
    damage(file)
    with pytest.raises(InvalidInput, match=r"heads.parquet can't be read as a table"):
        saved_table(file, saved[1])


def test_differences_of_tables_are_named():
    frame = pd.DataFrame({"name": ["a", "b"], "effect": [1.0, float("nan")]})
    assert difference(frame, frame.copy()) == ""
    assert "effect by up to 0.5" in difference(frame, frame.assign(effect=[1.5, float("nan")]))
    assert "name in 1 of 2 rows" in difference(frame, frame.assign(name=["a", "c"]))
    assert "2 rows of name, effect before, 1 of" in difference(frame, frame.head(1))
    one_nan = frame.assign(effect=[float("nan")] * 2)
    assert "effect" in difference(frame, one_nan)


def test_the_kernels_of_a_run_are_those_that_were_taken(command, tmp_path):
    """Attention is fused unless patterns are edited, which forms them."""
    taken = {}
    for part in ("z", "pattern"):
        out = tmp_path / part
        words = ["--model", "induction-by-hand", "--prompts", "letters", "--part", part]
        assert command("ablate", *words, "--method", "zero", "--out", out).exit_code == 0
        taken[part] = json.loads((out / "run.json").read_text())["kernels"]
    fused = [name for name in taken["z"] if "scaled_dot_product" in name]
    assert len(fused) == 1
    assert "aten.bmm" in taken["pattern"]
    assert "aten.bmm" not in taken["z"]


# The options that all commands have.


def test_every_command_has_the_shared_options_and_files_are_options():
    options = {spec.name: {*spec.parameters} for spec in COMMANDS}
    all_options = set().union(*options.values())
    assert not any(names & {*SHARED} for names in options.values())
    assert {*FILES} <= all_options | {*SHARED}


@each(
    ("words", "message"),
    [
        (["lens", "--rows", 2], "takes no --rows"),
        (["dla", "--memory", "1GB"], "takes no --memory"),
        (["ablate", "--memory", "much"], "is not a number of bytes"),
        (["ablate", "--memory", "0"], "is not a number of bytes"),
        (["ablate", "--memory", "1kB"], "memory="),
        (["ablate", "--dtype", "int8"], "--dtype"),
    ],
)
def test_settings_that_can_not_be_used_are_refused(command, tmp_path, words, message):
    done = command(*words, "--model", "rasp-reverse", "--out", tmp_path / "out")
    assert done.exit_code in (2, 4)
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_rows_and_dtype_and_json(command, tmp_path):
    words = ["ablate", "--model", "rasp-reverse", "--dtype", "float64", "--json", "--top", 2]
    runs = [command(*words, "--rows", rows, "--out", tmp_path / f"{rows}") for rows in (1, 5)]
    first, second = (json.loads(run.stdout) for run in runs)
    assert first["provenance"]["dtype"] == "float64"
    assert len(first["table"]) == 2
    for row, same_row in zip(first["table"], second["table"], strict=True):
        assert row["name"] == same_row["name"]
        assert row["effect"] == pytest.approx(same_row["effect"], abs=1e-9)
