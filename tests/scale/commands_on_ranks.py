"""Runs commands on processes that hold their models together: a program for torchrun.

    torchrun --nproc-per-node 2 tests/scale/commands_on_ranks.py FOLDER

``FOLDER/commands.json`` has the words of each command by a name. Writes the exit code of each, and
what this rank printed, to FOLDER/RANK.json; outputs go to FOLDER/NAME. The command ``ablate`` also
runs once more, stopped and resumed.
"""

import io
import json
import math
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import torch
from torch import distributed as dist

from apps.cli import app
from apps.commands import partial_run
from apps.failures import INTERRUPTED

IS_FIRST = os.environ["RANK"] == "0"
STOPS = 2
"""How often the sweeps of a command stop and go on."""


class Slice(partial_run.Slice):
    """Over after each forward, a few times: by the clock of the first rank, of others never."""

    left = 0.0

    def __call__(self) -> bool:
        is_over = super().__call__() and Slice.left > 0
        Slice.left -= is_over
        return is_over


def outcome(words: list[str], stops: float = STOPS) -> dict[str, object]:
    """The exit code of a command, and what it prints."""
    Slice.left = stops if IS_FIRST else 0
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = app(words, standalone_mode=False)
    return {"code": code or 0, "stdout": out.getvalue(), "stderr": err.getvalue()}


def resumed(words: list[str]) -> dict[str, object]:
    """As :func:`outcome`, of a command that was interrupted when it had first kept something."""
    write = partial_run.PartialRun.write

    def write_once(self: partial_run.PartialRun, sweep: partial_run.Partial, budget: int) -> None:
        write(self, sweep, budget)
        raise KeyboardInterrupt

    with mock.patch.object(partial_run.PartialRun, "write", write_once):
        assert outcome(words)["code"] == INTERRUPTED
    return outcome([*words, "--resume"])


def main(folder: Path) -> None:
    """Run all commands."""
    torch.set_num_threads(1)
    commands = json.loads((folder / "commands.json").read_text(encoding="utf-8"))
    how = ("--device", "tensor-parallel", "--out")
    stops = {"ablate": math.inf}
    seen = {
        name: outcome([*words, *how, str(folder / name)], stops.get(name, STOPS))
        for name, words in commands.items()
    }
    if "ablate" in commands:
        name = "ablate, resumed"
        seen[name] = resumed([*commands["ablate"], *how, str(folder / name)])
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    # Errors of several commands are printed.
    with (
        mock.patch("apps.failures.may_print", return_value=True),
        mock.patch.object(partial_run, "Slice", Slice),
        mock.patch.object(partial_run, "SLICE", 0.0),
        mock.patch.object(partial_run, "PREPARATIONS", 0),
    ):
        main(Path(sys.argv[1]))
    dist.barrier()
    os._exit(0)  # as on_ranks does
