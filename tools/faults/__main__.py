"""Interrupt the commands that write folders, at every step, and count the failures.

    make faults                              # everything, and write docs/reference/reliability.md
    python -m tools.faults --short      # each rename of one command, one disk, two writers

A command replaces a folder that has a complete old version. Whatever happens to the writer, the
folder must then be there (``absent`` counts the other cases) and hold the complete old or new
version (``mixed`` counts the other cases; ``lost`` those where neither version is left anywhere).
After the same command is run again, there must be the new version and nothing else (``remains``
counts the other cases).
"""

import argparse
import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.table import write_between
from tools.faults.child import EXCHANGE, STEPS, Child, Ended, kill_at
from tools.faults.disk import PAGE, Disk
from tools.faults.writers import NEW, OLD, Writer, writers

MARKERS = ("<!-- figures of tools.faults -->", "<!-- end of tools.faults -->")
DOCS = Path(__file__).parents[2] / "docs" / "reference" / "reliability.md"
KILLS, ROUNDS, DISKS = 20, 20, 12
OUT_OF_RESOURCES = 4
KILLED = -9


@dataclass
class Tally:
    """The failures after one kind of fault of a writer.

    Attributes:
        writer: name of the command.
        fault: description of the fault.
        runs: number of runs.
        mixed: number of runs after which the folder held neither version completely.
        lost: number of runs after which neither version was left.
        absent: number of runs after which there was no folder.
        remains: number of runs after which other files were left by the next run.
        failed: number of wrong exit codes and wrong results of the next run.
        note: other counts.
    """

    writer: str
    fault: str
    runs: int = 0
    mixed: int = 0
    lost: int = 0
    absent: int = 0
    remains: int = 0
    failed: int = 0
    note: str = ""

    @property
    def is_faultless(self) -> bool:
        """Whether there were no failures."""
        return not (self.mixed or self.lost or self.absent or self.remains or self.failed)

    def cells(self) -> list[str]:
        """The row of a table."""
        numbers = (self.runs, self.mixed, self.lost, self.absent, self.remains, self.failed)
        return [self.writer, self.fault, *map(str, numbers), self.note]


class Trial:
    """A folder with the old version, alone in another folder, for one run of a writer.

    Args:
        writer: the writer, which recognizes its versions.
        old: a folder with the old version.
        place: the folder that gets a copy of it; its previous contents are removed.
        tally: counts the failures.
    """

    def __init__(self, writer: Writer, old: Path, place: Path, tally: Tally) -> None:
        self.writer, self.place, self.tally = writer, place, tally
        self.folder = place / "a"
        for path in place.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(old, self.folder)
        tally.runs += 1

    def write(self, version: str = NEW) -> None:
        """Write a version into the folder."""
        self.writer.write(version, self.folder)

    def check(self, ended: Ended) -> None:
        """Count a failure if the exit code does not agree with the version in the folder."""
        expected = {0: NEW, OUT_OF_RESOURCES: OLD}.get(ended.code)
        self.tally.failed += self.writer.version_of(self.folder) != expected

    def judge(self) -> None:
        """Count the failures now, and those after the same command is run again."""
        versions = {path: self.writer.version_of(path) for path in self.place.iterdir()}
        self.tally.mixed += self.folder in versions and versions[self.folder] is None
        self.tally.absent += self.folder not in versions
        self.tally.lost += not any(versions.values())
        again = Child(self.write).wait()
        self.tally.failed += again.code != 0 or self.writer.version_of(self.folder) != NEW
        self.tally.remains += list(self.place.iterdir()) != [self.folder]


def killed_at_each_step(
    writer: Writer, old: Path, place: Path, names: tuple[str, ...] = STEPS
) -> Iterator[Tally]:
    """Kill the writer before each call of ``names``, until a run ends before it is killed."""
    tally = Tally(writer.name, f"killed at each {', '.join(names)}")
    ended = None
    while ended is None or ended.code == KILLED:
        trial = Trial(writer, old, place, tally)
        ended = Child(trial.write, kill_at(tally.runs, names)).wait()
        tally.failed += ended.code not in (0, KILLED)
        trial.judge()
    yield tally


def killed_at_random(writer: Writer, old: Path, place: Path) -> Iterator[Tally]:
    """Kill the writer at random moments between its start and its end."""
    tally = Tally(writer.name, "killed at a random moment")
    moments = random.Random(0)
    longest = Child(Trial(writer, old, place, Tally("", "")).write).wait().seconds
    for _ in range(KILLS):
        trial = Trial(writer, old, place, tally)
        Child(trial.write).kill_after(moments.uniform(0, longest)).wait()
        trial.judge()
    yield tally


def disk_faults(writer: Writer, old: Path, place: Path, n_disks: int = DISKS) -> Iterator[Tally]:
    """Write to a disk that becomes full, sooner or later, and to a read-only one."""
    full, read_only = Tally(writer.name, "disk full"), Tally(writer.name, "disk read-only")
    try:
        disk = Disk(place)
    except OSError as error:
        full.note = read_only.note = f"not measured: {error.strerror}"
        yield from (full, read_only)
        return
    trial = Trial(writer, old, place, Tally("", ""))
    Child(trial.write).wait()
    pages = sum(-(-path.stat().st_size // PAGE) for path in trial.folder.rglob("*"))
    for number in range(n_disks):
        trial = Trial(writer, old, place, full)
        with disk.free(pages * number // n_disks):
            trial.check(Child(trial.write).wait())
        trial.judge()
    trial = Trial(writer, old, place, read_only)
    with disk.read_only():
        trial.check(Child(trial.write).wait())
    trial.judge()
    disk.unmount()
    yield from (full, read_only)


def two_writers(writer: Writer, old: Path, place: Path, rounds: int = ROUNDS) -> Iterator[Tally]:
    """Write both versions at once: each is complete, or an error names the other process."""
    tally, refused = Tally(writer.name, "two writers"), 0
    for _ in range(rounds):
        trial = Trial(writer, old, place, tally)
        children = [Child(partial(trial.write, version)) for version in (OLD, NEW)]
        ended = [child.wait() for child in children]
        named = [end.code == OUT_OF_RESOURCES and "by process" in end.stderr for end in ended]
        refused += sum(named)
        right = all(end.code == 0 or name for end, name in zip(ended, named, strict=True))
        tally.failed += not right or all(named)
        trial.judge()
    tally.note = f"{refused} refused by name"
    yield tally


def measure(place: Path, *, short: bool) -> Iterator[Tally]:
    """Every fault of every command; with ``short``, some faults of the quickest command."""
    place.mkdir()
    for writer in writers().values():
        if short and writer.name != "convert":
            continue
        folder = place.with_name(writer.name)
        writer.learn(folder)
        old = folder / OLD
        if short:
            yield from killed_at_each_step(writer, old, place, ("replace", EXCHANGE))
            yield from disk_faults(writer, old, place, n_disks=2)
            yield from two_writers(writer, old, place, rounds=2)
        else:
            for fault in (killed_at_each_step, killed_at_random, disk_faults, two_writers):
                yield from fault(writer, old, place)


def to_markdown(tallies: list[Tally]) -> str:
    """The counts as a table in Markdown."""
    titles = ["writer", "fault", "runs", "mixed", "lost", "absent", "remains", "failed", "note"]
    rows = [titles, ["---"] * len(titles), *(tally.cells() for tally in tallies)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(words: list[str] | None = None) -> int:
    """Print a line for each fault, and return 1 if there was any failure."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument("--short", action="store_true", help="some faults of the quickest command")
    parser.add_argument("--docs", action="store_true", help=f"write the table into {DOCS.name}")
    options = parser.parse_args(words)
    torch.set_num_threads(1)  # without other threads, the process can be forked
    tallies: list[Tally] = []
    with TemporaryDirectory(prefix="faults-") as name:
        for tally in measure(Path(name, "place"), short=options.short):
            tallies.append(tally)
            print("  ".join(tally.cells()), flush=True)
    if options.docs:
        write_between(DOCS, to_markdown(tallies), MARKERS)
    return int(not all(tally.is_faultless for tally in tallies))


if __name__ == "__main__":
    sys.exit(main())
