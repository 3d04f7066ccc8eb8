"""Files: written completely or not at all, and read within bounds.

A file is written under a temporary name, then renamed. What is read may come from anywhere: only
regular files are opened (no devices, pipes or folders), and their size is bounded.
"""

import os
import stat
import tempfile
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

ASIDE = ".part"
UNREADABLE = (OSError, ValueError)
"""What the functions that read files raise; callers say which file, and what it should be."""


def is_aside(path: Path) -> bool:
    """Whether a file is the temporary file of an interrupted :func:`write_whole`."""
    return path.name.startswith(".") and path.suffix == ASIDE


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it.

    Raises:
        OSError: it can't be written.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=ASIDE)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text_whole(path: Path, text: str) -> None:
    """The same for a text, in UTF-8 whatever the locale.

    Raises:
        OSError: it can't be written.
    """
    write_whole(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def is_file(path: Path) -> bool:
    """Whether a path leads to a regular file; a name that no file can have does not."""
    try:
        return path.is_file()
    except UNREADABLE:
        return False


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file to read its bytes.

    Raises:
        OSError: there is no such file, or no permission.
        ValueError: it is a device or a pipe; or no file can have this name.
    """
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - Path has no opener
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise ValueError("it is not a regular file")


def size_of(file: BinaryIO) -> int:
    """The size of an open file in bytes."""
    return os.fstat(file.fileno()).st_size


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a regular file.

    Args:
        path: the file.
        most: how many bytes it may have.

    Raises:
        OSError: there is no such file, or no permission.
        ValueError: it is a device or a pipe, or larger than ``most``.
    """
    with open_regular(path) as file:
        if size_of(file) > most:
            raise ValueError(f"it is larger than {most} bytes")
        return file.read(most)


def _without_waiting(path: str, flags: int) -> int:
    """Open a path; a pipe that nobody writes to is opened too, and then refused."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
