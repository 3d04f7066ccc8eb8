"""Commands with ``--executor``: the tables of a local run, also after a kill, on other workers."""

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from architectures import covering
from scaled import end_within
from typer.testing import CliRunner
from waiting_command import PROGRAM

from apps.cli import app
from apps.commands.executors import executor_of_options
from interp import Sweep
from interp.executors import Processes, Ray

WORDS = ("ablate", "--model", "python-2l", "--prompts", "repeated", "--dtype", "float64")
pytestmark = pytest.mark.timeout(180)


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def tables_of(folder: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in sorted(folder.iterdir())
        if file.suffix in (".csv", ".parquet")
    }


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(child) for child in listed.stdout.split()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, bytes]:
    """The tables of a run that was not killed."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    done = command(*WORDS, "--executor", "processes", "--workers", 2, "--out", out)
    assert done.exit_code == 0, done.output
    return tables_of(out)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kill", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)]
)
def test_a_killed_run_goes_on_with_other_workers_and_ends_with_the_same_bytes(
    tmp_path, whole, kill
):
    words = [*WORDS, "--executor", "processes", "--workers", "2"]
    out = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words, "--out", str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as driver:
        assert int(driver.stdout.readline()) > 0
        workers = children_of(driver.pid)
        driver.send_signal(kill)
        driver.wait(30)
    assert workers
    assert end_within(workers)
    part = Sweep.load(tmp_path / ".out.interp-kept" / "sweep.safetensors")
    assert not part.complete
    words[words.index("2")] = "1"
    resumed = command(*words, "--resume", "--out", out)
    assert resumed.exit_code == 0, resumed.output
    assert tables_of(out) == whole


@pytest.mark.slow
def test_every_command_that_sweeps_or_reads_texts_has_the_options():
    sweep = ("ablate", "patch", "paths", "attribute", "nodes", "erase", "trace", "neurons")
    for name in (*sweep, "heads", "top-texts", "patterns"):
        text = command(name, "--help").output
        assert "--executor" in text, name
        assert "--workers" in text, name
        assert "--job-timeout" in text, name
    assert "--executor" not in command("predict", "--help").output


PASSES = {"heads": ["--sample", 10, "--rows", 8], "top-texts": ["--of", "L1H1"], "patterns": []}


@pytest.mark.parametrize("name", covering(PASSES, (), nightly=["top-texts", "patterns"]))
def test_a_pass_over_texts_has_the_tables_of_a_local_run(tmp_path, name):
    """``test_passes.py`` has the analyses of the others, with workers of one pool."""
    words = [name, *PASSES[name], "--model", "python-2l", "--dtype", "float64"]
    for folder, how in (("local", []), ("workers", ["--executor", "processes", "--workers", 2])):
        done = command(*words, *how, "--out", tmp_path / folder)
        assert done.exit_code == 0, done.output
    if torch.get_num_threads() == 1:
        assert tables_of(tmp_path / "workers") == tables_of(tmp_path / "local")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--executor", "processes", "--workers", 0], "workers=0 must be an integer of at least 1"),
        (["--workers", 2], "--workers 2 needs --executor processes or --executor ray"),
        (["--job-timeout", 2.5], "--job-timeout 2.5 needs --executor processes or --executor ray"),
        (["--executor", "processes", "--job-timeout", 0], "job_timeout=0.0 should be a positive"),
        (["--executor", "processes", "--job-timeout", "nan"], "job_timeout=nan should be a"),
        (["--executor", "processes", "--address", "auto"], "--address auto needs --executor ray"),
        (["--executor", "ray", "--address", "nowhere"], "address='nowhere' should be 'auto'"),
    ],
)
def test_options_without_effect_are_refused(tmp_path, words, message):
    done = command(*WORDS, *words, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


@pytest.mark.parametrize(("option", "seconds"), [(None, 3600), (2.5, 2.5), (float("inf"), None)])
def test_a_worker_may_take_the_seconds_of_job_timeout(monkeypatch, option, seconds):
    pools = []
    monkeypatch.setattr("interp.use", lambda executor: nullcontext(pools.append(executor)))
    for name in ("processes", "ray"):
        with executor_of_options(name, job_timeout=option):
            assert pools[-1].job_timeout == seconds
    assert [type(pool) for pool in pools] == [Processes, Ray]
