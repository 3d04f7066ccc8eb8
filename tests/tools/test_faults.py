"""Interrupted commands leave whole folders; careless writers, which do not, are found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.faults.__main__ import DOCS, MARKERS, Tally

# Files that are renamed one by one, and files that are removed before they are written.
SCRIPT = """
import sys
from pathlib import Path
from tools.faults.__main__ import killed_at_each_step, main
from tools.faults.writers import OLD, Writer

def mixing(version, folder):
    folder.mkdir(exist_ok=True)
    for name in ("a", "b"):
        (folder / f"{name}.part").write_text(version)
    for name in ("a", "b"):
        (folder / f"{name}.part").replace(folder / name)

def losing(version, folder):
    folder.mkdir(exist_ok=True)
    for name in ("a", "b"):
        (folder / name).unlink(missing_ok=True)
    for name in ("a", "b"):
        (folder / name).write_text(version)
    (folder.parent / f"remains-{version}").touch()

place = Path(sys.argv[1], "place")
place.mkdir()
for act in (mixing, losing):
    learned = place.with_name(act.__name__)
    learned.mkdir()
    writer = Writer(act.__name__, act)
    writer.learn(learned)
    for tally in killed_at_each_step(writer, learned / OLD, place, ("replace", "unlink")):
        print(tally.writer, tally.mixed, tally.lost, tally.remains > 0)

sys.exit(main(["--short"]))
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A process that forks: one without threads."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path_factory.mktemp("faults"))],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=500,
    )


@pytest.mark.slow
def test_careless_writers_are_found(done):
    assert done.stdout.splitlines()[:2] == ["mixing 2 2 False", "losing 1 1 True"], done.stderr


@pytest.mark.slow
def test_convert_is_whole_at_every_rename_on_a_full_disk_and_beside_another(done):
    """The short form of ``make faults``."""
    assert done.returncode == 0, done.stdout + done.stderr
    faults = [line.split("  ")[1] for line in done.stdout.splitlines()[2:]]
    assert faults == [
        "killed at each replace, exchange",
        "disk full",
        "disk read-only",
        "two writers",
    ]


def test_any_number_is_a_fault():
    assert Tally("a", "b", runs=3).is_faultless
    for name in ("mixed", "lost", "absent", "remains", "failed"):
        assert not Tally("a", "b", **{name: 1}).is_faultless


def test_the_page_has_a_place_for_the_figures():
    text = Path(DOCS).read_text(encoding="utf-8")
    assert all(text.count(marker) == 1 for marker in MARKERS)
