"""A disk that is full or read-only: the earlier report stays whole, and nothing else is left."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from architectures import covering

MODEL = "induction-by-hand"
ABLATE = ["ablate", "--model", MODEL, "--prompts", "letters", "--method"]
OUT_OF_RESOURCES = 4

ON_A_DISK = """
import sys
from pathlib import Path
from apps.cli import main
from tools.faults.disk import Disk

place, words = Path(sys.argv[1]), sys.argv[2:]

def exit_code(method):
    try:
        main([*words, method, "--out", str(place / "out")])
    except SystemExit as error:
        return error.code

def content():
    return {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}

try:
    disk = Disk(place)
except OSError as error:
    sys.exit(f"can't mount: {error}")
assert exit_code("zero") == 0
before = content()
for fault in (disk.free(1), disk.free(10), disk.read_only()):
    with fault:
        assert exit_code("mean") == 4
    assert content() == before
assert exit_code("mean") == 0
assert content().keys() == before.keys()
assert content() != before
disk.unmount()
"""


def content(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, hidden files too."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@contextmanager
def largest_file(nbytes: int) -> Generator[None]:
    """No file can be written beyond a size, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("nbytes", covering([500, 5_000, 50_000], [5_000]))
def test_a_file_that_can_be_written_in_part_only(command, tmp_path, nbytes):
    """The CSV file, the Parquet file and the page are the first to exceed these sizes."""
    out = tmp_path / "a" / "out"
    with largest_file(nbytes):
        done = command(*ABLATE, "zero", "--out", out)
    assert done.exit_code == OUT_OF_RESOURCES, done.output
    assert done.stderr.startswith(f"error: {out} can't be written: File too large. Free some space")
    assert done.stderr.endswith("nothing was written.\n")
    assert not list(tmp_path.iterdir())

    assert command(*ABLATE, "zero", "--out", out).exit_code == 0
    before = content(tmp_path)
    with largest_file(nbytes):
        done = command(*ABLATE, "mean", "--out", out)
    assert done.exit_code == OUT_OF_RESOURCES
    assert done.stderr.endswith("what it held is unchanged.\n")
    assert content(tmp_path) == before

    assert command(*ABLATE, "mean", "--out", out).exit_code == 0
    after = content(tmp_path)
    assert after.keys() == before.keys()
    assert after != before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_by_its_folder(command, tmp_path, monkeypatch, number):
    """The system names no file where a write fails."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("apps.commands.outputs.write_report", fail)
    done = command(*ABLATE, "zero", "--out", tmp_path / "out")
    assert done.exit_code == OUT_OF_RESOURCES
    assert f"{tmp_path / 'out'} can't be written: {os.strerror(number)}." in done.stderr
    assert not list(tmp_path.iterdir())


def test_another_error_keeps_its_own_message(command, tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/some/file")

    monkeypatch.setattr("apps.commands.outputs.write_report", fail)
    done = command(*ABLATE, "zero", "--out", tmp_path / "out")
    assert (done.exit_code, done.stderr) == (4, "error: /some/file: Input/output error.\n")


@pytest.mark.slow
def test_a_real_disk_that_is_full_or_read_only(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ON_A_DISK, str(tmp_path), *ABLATE],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    if done.stderr.startswith("can't mount"):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    reasons = ["No space left on device", "No space left on device", "Read-only file system"]
    assert len(errors) == len(reasons)
    for line, reason in zip(errors, reasons, strict=True):
        assert line.startswith(f"error: {tmp_path / 'out'} can't be written: {reason}.")
