"""A process that reads damaged files: each input line is ``kind<tab>seed``, each output line JSON.

    python -m tools.fuzz.worker

Its memory is limited, so that a file that needs too much memory causes an error in this process.
"""

import json
import resource
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from shutil import copytree, rmtree

import torch

from benchmarks.memory import high_water, reset_high_water
from interp.errors import InterpError
from tools.fuzz.kinds import KINDS, Kind
from tools.fuzz.mutations import damaged_bytes, replaced_path

ROOM = 2**32
"""Bytes of address space in addition to those in use before the first file is read."""
SPECIAL = 0.08
"""Share of damages that replace the file; see :func:`replaced_path`."""
BYTES = 0.35
"""Share of damages to bytes."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of reading one damaged file.

    Attributes:
        kind: kind of the file.
        seed: seed of the damage.
        end: ``read``, ``refused``, ``foreign`` (an exception of another family), ``hang`` or
            ``crash``.
        what: the exception, if there was one.
        size: size of the files in its folder, in bytes.
        peak: peak memory of reading in addition to the memory before, in bytes.
        seconds: the time taken.
    """

    kind: str
    seed: int
    end: str
    what: str = ""
    size: int = 0
    peak: int = 0
    seconds: float = 0.0


class Reader:
    """Damages and reads files of every kind in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._valid: dict[str, Path] = {}

    def __call__(self, name: str, seed: int) -> Outcome:
        """The outcome of one damage; seed -1 damages nothing."""
        kind, folder = KINDS[name], self._folder / "damaged"
        rmtree(folder, ignore_errors=True)
        copytree(self._valid_folder(name), folder)
        file = folder / kind.file
        if seed >= 0:
            damage(Random(f"{name} {seed}"), kind, file)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        before, start = reset_high_water(), time.perf_counter()
        end, what = _read(kind, folder)
        seconds = time.perf_counter() - start
        return Outcome(name, seed, end, what, size, max(0, high_water() - before), seconds)

    def _valid_folder(self, name: str) -> Path:
        """A folder with a valid file; it is read once, so that lazy imports are done."""
        if name not in self._valid:
            folder = self._folder / f"valid-{len(self._valid)}"
            folder.mkdir()
            KINDS[name].prepare(folder)
            KINDS[name].read(folder)
            self._valid[name] = folder
        return self._valid[name]


def damage(random: Random, kind: Kind, file: Path) -> None:
    """Damage a file in place."""
    drawn = random.random()
    if drawn < SPECIAL:
        replaced_path(random, file)
        return
    mutate = damaged_bytes if drawn < SPECIAL + BYTES else kind.mutate
    file.write_bytes(mutate(random, file.read_bytes()))


def _read(kind: Kind, folder: Path) -> tuple[str, str]:
    try:
        kind.read(folder)
    except InterpError as error:
        message = str(error)
        return "refused", f"{type(error).__name__}: {message}"
    except BaseException as error:
        return "foreign", f"{type(error).__name__}: {str(error)[:500]}"
    return "read", ""


def main() -> None:
    """Read files until the input ends."""
    torch.set_num_threads(1)
    answers = sys.stdout
    sys.stdout = sys.stderr
    with tempfile.TemporaryDirectory() as name:
        reader = Reader(Path(name))
        taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = taken * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for line in sys.stdin:
            kind, seed = line.rstrip("\n").split("\t")
            print(json.dumps(asdict(reader(kind, int(seed)))), file=answers, flush=True)


if __name__ == "__main__":
    main()
