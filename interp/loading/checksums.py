"""SHA-256 of the bundled weights, in a file that ``sha256sum --check`` reads too."""

from hashlib import file_digest
from pathlib import Path

from interp.errors import ModelLoadError, reason
from interp.files import UNREADABLE, open_regular, read_bounded, write_text_whole

SUMS = "SHA256SUMS"
MAX_BYTES = 2**20


def check_listed(weights: Path, folder: Path) -> None:
    """Compare a file of weights with its line in the list of ``folder``.

    Args:
        weights: the file, somewhere in ``folder``; nothing is checked if it is missing.
        folder: holds the list.

    Raises:
        ModelLoadError: the file is another than the one listed, or not listed.
    """
    name = weights.relative_to(folder).as_posix()
    try:
        if not weights.exists():
            return
        listed = read_bounded(folder / SUMS, MAX_BYTES).decode().splitlines()
        matches = f"{_sha256(weights)}  {name}" in listed
    except UNREADABLE as error:
        raise ModelLoadError(
            f"{weights} can't be compared with {SUMS}: {reason(error)}."
        ) from error
    if not matches:
        raise ModelLoadError(
            f"{weights} is not the file that {folder / SUMS} lists: it was damaged or changed. "
            "Install interp again; copy the model's folder to change it."
        )


def damaged(folder: Path) -> list[str]:
    """The files listed in ``folder`` that are missing from it, or are others than those listed.

    Raises:
        ModelLoadError: there is no list, or it can't be read.
    """
    try:
        listed = read_bounded(folder / SUMS, MAX_BYTES).decode().splitlines()
    except UNREADABLE as error:
        raise ModelLoadError(f"{folder / SUMS} can't be read: {reason(error)}.") from error
    pairs = [line.partition("  ") for line in listed]
    return [name for expected, _, name in pairs if not _is(folder / name, expected)]


def write_sums(folder: Path) -> None:
    """List all weights in ``folder``.

    Raises:
        OSError: the list can't be written, or a file not read.
    """
    files = sorted(folder.rglob("*.safetensors"))
    lines = [f"{_sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    write_text_whole(folder / SUMS, "".join(lines))


def _is(path: Path, expected: str) -> bool:
    try:
        return _sha256(path) == expected
    except UNREADABLE:
        return False


def _sha256(path: Path) -> str:
    with open_regular(path) as file:
        return file_digest(file, "sha256").hexdigest()
