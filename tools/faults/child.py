"""Runs a function in a forked process, which can be killed at a step or after some time."""

import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path

EXCHANGE = "exchange"
STEPS = ("mkdir", "fsync", "replace", "unlink", "rmdir", EXCHANGE)
"""Functions of :mod:`os`, and the exchange of folders, before whose calls a process may be killed.
"""


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        code: the exit code, or minus the signal that killed the process.
        stderr: the text printed to standard error.
        seconds: the running time.
    """

    code: int
    stderr: str
    seconds: float


class Child:
    """A process that calls ``before`` and ``act``; it is started immediately."""

    def __init__(self, act: Callable[[], object], before: Callable[[], object] = bool) -> None:
        self._stderr = Path(tempfile.mkstemp(prefix="stderr-")[1])
        self._start = time.monotonic()
        self._pid = os.fork()
        if self._pid == 0:
            os._exit(_exit_code(act, before, self._stderr))

    def kill_after(self, seconds: float) -> "Child":
        """Send SIGKILL ``seconds`` after the start."""
        time.sleep(max(0.0, self._start + seconds - time.monotonic()))
        os.kill(self._pid, signal.SIGKILL)
        return self

    def wait(self) -> Ended:
        """Wait until the process ends."""
        _, status = os.waitpid(self._pid, 0)
        seconds, stderr = time.monotonic() - self._start, self._stderr.read_text()
        self._stderr.unlink()
        return Ended(os.waitstatus_to_exitcode(status), stderr, seconds)


def kill_at(step: int, names: tuple[str, ...] = STEPS) -> Callable[[], None]:
    """A function after whose call the process is killed before its call ``step`` of ``names``."""

    def prepare() -> None:
        calls = count(1)
        for name in names:
            module = import_module("interp.io.atomic_folder") if name == EXCHANGE else os
            setattr(module, name, _killing(getattr(module, name), calls, step))

    return prepare


def _killing(function: Callable[..., object], calls: count, step: int) -> Callable[..., object]:
    def counted(*args: object, **kwargs: object) -> object:
        if next(calls) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    return counted


def _exit_code(act: Callable[[], object], before: Callable[[], object], stderr: Path) -> int:
    """Run ``before`` and ``act`` in the forked process; returns its exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(stderr, os.O_WRONLY), 2)
    try:
        before()
        act()
    except SystemExit as error:
        return int(error.code or 0)
    except BaseException as error:  # no exception may reach the code of the parent
        os.write(2, repr(error).encode())
        return 1
    return 0
