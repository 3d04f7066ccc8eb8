"""Commands in several processes, as torchrun starts them: the files of one process, one output."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from declared import declared_as
from started_ranks import TESTS, on_ranks
from typer.testing import CliRunner

from apps.cli import app
from apps.devices import loading_options
from apps.torchrun import as_one, is_first, n_processes
from interp.errors import InvalidInput

BOUND = 1e-12
"""Of differences in float64."""
REFUSED = {
    "check-dictionaries": "got 'ShardedTransformer'",
    "covariance": "a copy: this process has a share of the weights, as one of 2 ranks",
    "order": "without: this process has a share of the weights, as one of 2 ranks",
}
"""Commands that need all weights in one process, each with the reason."""
COMMANDS = {
    **{command.name: command.words for command in declared_as("command").values()},
    # Of the two that exchange most, edges that tests/scale/test_ranks.py patches all of.
    "paths": ("--model", "rasp-reverse", "--method", "zero", "--into", "logits"),
    "trace": ("--check", "1"),
}
SLOW = ("ablate", "attribute", "census", "check-dictionaries", "dla", "order", "paths", "patterns")
"""Commands of the slow test: sweeps, gradients, one pass, refusals; the nightly one has all."""
CONSOLE = "import sys; from apps.cli import main; main(sys.argv[1:])"

pytestmark = pytest.mark.timeout(300)


def words_of(name: str) -> list[str]:
    """The words of a fast run of a command, in float64."""
    words = COMMANDS[name]
    model = () if "--model" in words else ("--model", "induction-by-hand")
    return [name, *model, *words, "--dtype", "float64"]


def in_order_of_labels(table: pd.DataFrame) -> pd.DataFrame:
    """The same rows: values that are equal but for rounding have no order among them."""
    labels = [str(name) for name in table if not pd.api.types.is_float_dtype(table[name])]
    return table.sort_values(labels, ignore_index=True) if labels else table


def without_folder(text: str, folder: Path) -> str:
    """What a command prints, without its output folder and the spaces at which lines wrap."""
    return "".join(text.split()).replace(str(folder), "")


def keys_of(value: Any, path: str = "") -> set[str]:
    """The paths of all keys of some JSON."""
    if not isinstance(value, dict):
        return set()
    inner = (keys_of(entry, f"{path}.{name}") for name, entry in value.items())
    return {f"{path}.{name}" for name in value}.union(*inner)


def assert_equal_files(folder: Path, expected: Path) -> None:
    """The same files, keys of JSON, and numbers within rounding."""
    names = {file.name for file in expected.iterdir()}
    assert {file.name for file in folder.iterdir()} == names
    described, as_expected = (json.loads((x / "run.json").read_text()) for x in (folder, expected))
    assert keys_of(described) == keys_of(as_expected)
    assert described["executor"] == "2 ranks"
    assert_equal_tables(folder, expected)


def assert_equal_tables(folder: Path, expected: Path) -> None:
    """The same numbers within rounding."""
    tables = [file.name for file in expected.glob("*.parquet")]
    assert tables
    for name in tables:
        ours, theirs = (in_order_of_labels(pd.read_parquet(x / name)) for x in (folder, expected))
        pd.testing.assert_frame_equal(ours, theirs, rtol=BOUND, atol=BOUND)


OTHERS = ("report", "graph", "repeat", "harvest")


@dataclass(frozen=True)
class Ran:
    """Commands that two ranks ran.

    Attributes:
        names: the analyses among them; the others are :data:`OTHERS`.
        words: the words of each command.
        folder: the folder of the outputs, each by the name of its command, and of ``ran``, the run
            of one process that ``repeat`` repeats.
        first, other: what each rank printed, and the exit code.
    """

    names: tuple[str, ...]
    words: dict[str, list[str]]
    folder: Path
    first: dict[str, Any]
    other: dict[str, Any]

    def alone(self, name: str) -> tuple[Path, str]:
        """The output folder of the same command in one process, and what that prints."""
        folder = self.folder / "alone" / name
        done = CliRunner().invoke(app, [*self.words[name], "--out", str(folder)])
        assert done.exit_code == 0, done.output
        return folder, done.stdout


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(SLOW, marks=pytest.mark.slow),
        pytest.param(tuple(COMMANDS), marks=pytest.mark.nightly),
    ],
    ids=["some", "all"],
)
def ran(request, tmp_path_factory) -> Ran:
    """All in one start of the ranks, which takes longer than most commands."""
    folder, model = tmp_path_factory.mktemp("ranks"), ("--model", "induction-by-hand")
    done = CliRunner().invoke(app, [*words_of("ablate"), "--out", str(folder / "ran")])
    assert done.exit_code == 0, done.output
    words = {name: words_of(name) for name in request.param} | {
        "report": ["report", *model, "--section", "ablate"],
        "graph": ["graph", "abcab", *model],
        "repeat": ["repeat", str(folder / "ran")],
        "harvest": ["harvest", *model, "--texts", "letters", "--places", "resid_post.1"],
    }
    with_order = {**words, "report": [*words["report"], "--section", "order"]}
    (folder / "commands.json").write_text(json.dumps(with_order), encoding="utf-8")
    first, other = on_ranks(2, "commands_on_ranks", folder)
    return Ran(request.param, words, folder, first, other)


def test_a_command_writes_the_files_of_one_process_and_prints_once(ran):
    """Also after a stop. The first rank stops its sweeps after each forward, the others would not.

    Commands that need all weights are refused on every rank, and write nothing.
    """
    folder, first, other = ran.folder, ran.first, ran.other
    assert set(first) == {*ran.names, *OTHERS, "ablate, resumed"}
    for name in ran.names:
        assert other[name]["stdout"] == ""
        if name in REFUSED:
            for rank in (first, other):
                assert rank[name]["code"] == 2
                assert REFUSED[name] in rank[name]["stderr"]
            assert not (folder / name).exists()
            continue
        assert (first[name]["code"], other[name]["code"]) == (0, 0), first[name]["stderr"]
        assert other[name]["stderr"] == ""
        alone, stdout = ran.alone(name)
        printed = without_folder(first[name]["stdout"], folder / name)
        assert printed == without_folder(stdout, alone)
        assert_equal_files(folder / name, alone)
    assert first["ablate, resumed"]["code"] == 0, first["ablate, resumed"]["stderr"]
    assert_equal_files(folder / "ablate, resumed", folder / "alone" / "ablate")


def test_reports_graphs_harvests_and_repeated_runs_are_those_of_one_process(ran):
    """A repeated run compares the tables of one process with its own: they differ by rounding."""
    first, other = ran.first, ran.other
    for name in OTHERS:
        assert (other[name]["stdout"], other[name]["stderr"]) == ("", "")
        assert (other[name]["code"], first[name]["code"]) == (0, 0) or name == "repeat"
    for name in ("report", "graph", "harvest"):
        alone, _ = ran.alone(name)
        files = [sorted(x.relative_to(y) for x in y.rglob("*")) for y in (alone, ran.folder / name)]
        assert files[0] == files[1]
    assert "order: left out. without: this process has a share" in first["report"]["stdout"]
    assert_equal_tables(ran.folder / "repeat", ran.folder / "ran")


def torchrun(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Two processes of a shell script, in which ``$interp`` is the command."""
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent), "OMP_NUM_THREADS": "1"}
    environment["interp"] = f"{sys.executable} {folder / 'console.py'}"
    (folder / "console.py").write_text(CONSOLE, encoding="utf-8")
    launch = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    return subprocess.run(
        [*launch, "--no-python", "bash", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_an_error_of_one_process_ends_all_and_is_printed_once(tmp_path):
    """Only the second process lacks the prompts; the first waits for it, and writes nothing."""
    (tmp_path / "0.txt").write_text("abcabc\n", encoding="utf-8")
    command = "$interp ablate --model induction-by-hand --prompts $RANK.txt --out out"
    done = torchrun(tmp_path, f"{command} --device tensor-parallel")
    assert done.returncode != 0
    assert done.stderr.count("error: ") == 1
    assert "error: 1.txt can't be read: No such file or directory" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_processes_of_torchrun_act_as_one(tmp_path):
    """Other tests fork their ranks."""
    words = "--model induction-by-hand --device tensor-parallel --out out"
    done = torchrun(tmp_path, f"$interp ablate {words}")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "run.json").read_text())["executor"] == "2 ranks"


@pytest.mark.nightly
def test_processes_that_would_each_do_the_whole_are_refused(tmp_path):
    done = torchrun(tmp_path, "$interp ablate --model induction-by-hand --out out")
    assert done.returncode != 0
    assert done.stderr.count("error: ") == 1
    assert "torchrun started 2 processes of this command" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.fixture
def launched(monkeypatch):
    """The environment of the second of two processes of torchrun."""
    for name, value in {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("options", "divides_work", "message"),
    [
        ({"device": "cpu"}, False, "Give --device tensor-parallel"),
        ({"device": None}, False, "Give --device tensor-parallel"),
        ({"out": None}, False, "write the same files. Start it without torchrun"),
        ({"device": "cpu"}, True, None),
        ({"device": "tensor-parallel"}, False, None),
        ({"device": "tensor-parallel", "executor": "local"}, False, None),
        ({"device": "tensor-parallel", "executor": "ray"}, False, "--executor ray can't be"),
    ],
)
def test_options_decide_whether_processes_act_as_one(
    launched, capsys, options, divides_work, message
):
    refusal = nullcontext() if message is None else pytest.raises(InvalidInput, match=message)
    with refusal, as_one(options, divides_work=divides_work):
        print("of the second process")  # noqa: T201 - what it prints is dropped
    assert not is_first()
    assert capsys.readouterr().out == ""


def test_one_process_prints_and_can_hold_no_part_of_a_model(capsys):
    """Without torchrun."""
    with as_one({"device": "cpu"}, divides_work=False):
        print("of the only process")  # noqa: T201
    assert capsys.readouterr().out
    assert (is_first(), n_processes()) == (True, 1)
    words = ["ablate", "--model", "induction-by-hand", "--device", "tensor-parallel"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "torchrun --nproc-per-node N --no-python interp" in " ".join(done.output.split())
    with pytest.raises(InvalidInput, match="is for commands of analyses and harvest"):
        loading_options("tensor-parallel")
