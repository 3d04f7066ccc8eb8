"""SHA-256 checksums of the bundled weights, in a file that ``sha256sum --check`` also reads."""

from hashlib import file_digest
from pathlib import Path

from interp.errors import ModelLoadError, reason
from interp.io import UNREADABLE, open_regular, read_bounded, write_text_whole

SUMS = "SHA256SUMS"
MAX_BYTES = 2**20


def check_listed(weights: Path, folder: Path) -> None:
    """Compare the checksum of a file of weights with the list in ``folder``.

    Args:
        weights: the file, somewhere in ``folder``; nothing is checked if it is missing.
        folder: the folder with the list.

    Raises:
        ModelLoadError: the file differs from the one listed, or is not listed.
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
            "Reinstall interp; to change a bundled model, copy its folder first."
        )


def damaged(folder: Path) -> list[str]:
    """The files listed in ``folder`` that are missing, or differ from those listed.

    Raises:
        ModelLoadError: there is no list, or it can't be read.
    """
    try:
        listed = read_bounded(folder / SUMS, MAX_BYTES).decode().splitlines()
    except UNREADABLE as error:
        raise ModelLoadError(f"{folder / SUMS} can't be read: {reason(error)}.") from error
    pairs = [line.partition("  ") for line in listed]
    return [name for expected, _, name in pairs if not _has_checksum(folder / name, expected)]


def write_sums(folder: Path) -> None:
    """Write the list of the checksums of all weights in ``folder``.

    Raises:
        OSError: the list can't be written, or a file can't be read.
    """
    files = sorted(folder.rglob("*.safetensors"))
    lines = [f"{_sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    write_text_whole(folder / SUMS, "".join(lines))


def _has_checksum(path: Path, expected: str) -> bool:
    try:
        return _sha256(path) == expected
    except UNREADABLE:
        return False


def _sha256(path: Path) -> str:
    with open_regular(path) as file:
        return file_digest(file, "sha256").hexdigest()
