"""Starts the ranks of a program as torchrun does, but forks them, so that they import nothing.

A process that torchrun starts imports PyTorch and interp for two seconds, and torchrun itself too:
longer than most programs beside this file run. Here a process that has imported what they import is
forked for each rank.
"""

import json
import os
import runpy
import sys
import time
from collections.abc import Mapping
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any
from unittest import mock

from apps.serve import choose_port

HERE = Path(__file__).parent
TESTS = HERE.parent
IMPORTED = "imported_by_ranks"
"""The module beside this file that is imported once, in the process that is forked."""
SECONDS = 280
"""Time limit of a program."""


def on_ranks(size: int, program: str, folder: Path, *words: str) -> list[dict[str, Any]]:
    """What each rank of a program wrote; ranks that ended before wrote nothing."""
    context = get_context("forkserver")
    context.set_forkserver_preload([IMPORTED])
    shared = {
        "PYTHONPATH": os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS / "analyses", HERE))),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(choose_port(0)),
        "TORCHELASTIC_RUN_ID": "none",
        "WORLD_SIZE": str(size),
        "OMP_NUM_THREADS": "1",
    }
    argv, log = [str(HERE / f"{program}.py"), str(folder), *words], folder / "ranks.log"
    log.touch()  # so that it can be read if no rank begins
    with mock.patch.dict(os.environ, shared):  # read by the process that is forked, where it starts
        ranks = [
            context.Process(target=_run, args=(argv, shared | {"RANK": str(rank)}, log))
            for rank in range(size)
        ]
        for rank in ranks:
            rank.start()
    try:
        _wait_for({rank.sentinel: rank for rank in ranks}, log)
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    files = (folder / f"{rank}.json" for rank in range(size))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]


def _wait_for(ranks: dict[Any, Any], log: Path) -> None:
    """Wait until all have ended; the first that fails, or the time limit, is an error."""
    deadline = time.monotonic() + SECONDS
    while ranks:
        ended = wait(list(ranks), max(0.0, deadline - time.monotonic()))
        assert ended, f"ranks were still running after {SECONDS} s: {log.read_text()}"
        for sentinel in ended:
            rank = ranks.pop(sentinel)
            rank.join()
            assert rank.exitcode == 0, log.read_text()


def _run(argv: list[str], environment: Mapping[str, str], log: Path) -> None:
    """Run the program, which ends this process, with these variables."""
    os.environ.update(environment)
    with log.open("a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")
