"""Files that are written atomically by one process at a time, and read with a size limit.

A process can be killed between any two system calls, and a disk can fill up at any of them. Only a
rename is atomic, so a file is written under a temporary name, flushed to the disk and renamed:

    .NAME.interp-new    the temporary file that becomes NAME
    .NAME.interp-lock   locked while NAME is written; the kernel releases the lock of a process
                        when it ends, for whatever reason

The names are fixed, so the next writer of NAME replaces the leftovers of a killed one, and nothing
else. Folders are written in the same way, see :mod:`interp.io.atomic_folder`.

Input files are not trusted: only regular files are opened (no devices, pipes or folders), and their
size is limited.
"""

import ctypes
import errno
import os
import stat
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from interp.errors import OutOfResources

NEW, LOCK = "new", "lock"
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)
"""Error numbers of a file system without locks."""
AT_FDCWD, RENAME_EXCHANGE = -100, 2
NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)
"""Arguments of renameat2, and its error numbers where it can't exchange."""
HOLDER_READS, HOLDER_PAUSE = 20, 0.01
"""How often the process id of a lock's holder is read until it is there, and seconds in between."""
UNREADABLE = (OSError, ValueError)
"""Errors of the functions that read files; callers add the path and what was expected."""


def beside(path: Path, role: str) -> Path:
    """The path of a temporary file or folder in the folder of ``path``."""
    return path.with_name(f".{path.name}.interp-{role}")


def refuse_link(path: Path) -> None:
    """Refuse a temporary folder that is a link, which may have been planted to lead elsewhere.

    Raises:
        OutOfResources: it is a link.
    """
    if path.is_symlink():
        raise OutOfResources(f"{path} is a link, not a folder: remove it.")


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` with the path of a temporary file, then rename the file to ``path``.

    Raises:
        OSError: the file can't be written.
        OutOfResources: another process is writing it.
    """
    new = beside(path, NEW)
    with locked(path):
        try:
            new.unlink(missing_ok=True)
            write(new)
            force(new)
            new.replace(path)
            force(path.parent)
        except SafetensorError as error:  # raised if the disk is full
            raise OSError(f"{path.name} can't be written: {error}") from error
        finally:
            new.unlink(missing_ok=True)


def write_text_whole(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8 in every locale.

    Raises:
        OSError: the file can't be written.
        OutOfResources: another process is writing it.
    """
    write_whole(path, lambda new: new.write_text(text, encoding="utf-8"))


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock of a file or folder that is being written; a file system may have no locks.

    Raises:
        OSError: the lock can't be created.
        OutOfResources: another process, or another thread, holds it; the message names the process.
    """
    os.stat(f"{path.parent}/")  # noqa: PTH116 - a missing folder, which filelock would create
    lock = beside(path, LOCK)
    file_lock = FileLock(lock, blocking=False, fallback_to_soft=False)
    while not file_lock.is_locked:
        try:
            file_lock.acquire()
        except Timeout as error:
            if holder := _holder(lock):
                raise OutOfResources(
                    f"{path} is being written by {holder}: wait until it ends, or choose another "
                    "place."
                ) from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            break
    try:
        with suppress(OSError):  # the process id is only for the error message
            lock.write_text(str(os.getpid()), encoding="ascii")
        yield
    finally:  # the file is removed first: who has opened it meanwhile sees that, and opens another
        lock.unlink(missing_ok=True)
        file_lock.release()


def _holder(lock: Path) -> str | None:
    """The process that holds a lock, and writes its id just after; ``None`` if it has ended."""
    for _ in range(HOLDER_READS):
        try:
            return f"process {int(read_bounded(lock, 20))}"
        except FileNotFoundError:
            return None
        except UNREADABLE:
            time.sleep(HOLDER_PAUSE)
    return "another process"


def exchange(first: Path, second: Path) -> bool:
    """Exchange two files or folders of one file system in a single system call, which Linux has.

    Returns:
        Whether they were exchanged: False if the system or the file system can't.

    Raises:
        OSError: there is no permission, or one is missing.
    """
    system_call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if system_call is None:
        return False
    if not system_call(
        AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE
    ):
        return True
    number = ctypes.get_errno()
    if number in NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(second))


def force(path: Path) -> None:
    """Flush a file's bytes, or the names in a folder, to the disk.

    Raises:
        OSError: they can't be written.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that can't flush folders
            raise
    finally:
        os.close(handle)


def is_file(path: Path) -> bool:
    """Whether a path is a regular file; False for a name that no file can have."""
    try:
        return path.is_file()
    except UNREADABLE:
        return False


def is_folder(path: Path) -> bool:
    """Whether a path is a folder; False for a name that no folder can have."""
    try:
        return path.is_dir()
    except UNREADABLE:
        return False


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading bytes.

    Raises:
        OSError: there is no such file, or no permission.
        ValueError: it is a device or a pipe, or no file can have this name.
    """
    file = open(path, "rb", opener=_open_nonblocking)  # noqa: SIM115 - Path has no opener
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
        most: maximum number of bytes.

    Raises:
        OSError: there is no such file, or no permission.
        ValueError: it is a device or a pipe, or larger than ``most``.
    """
    with open_regular(path) as file:
        if size_of(file) > most:
            raise ValueError(f"it is larger than {most} bytes")
        return file.read(most)


def read_file_or_pipe(path: Path, most: int) -> bytes:
    """The bytes of a regular file or a pipe, such as ``<(command)`` in a shell.

    Args:
        path: the file or the pipe; a pipe without a writer is empty.
        most: maximum number of bytes.

    Raises:
        OSError: there is no such file, or no permission.
        ValueError: it is a device, or larger than ``most``.
    """
    with open(path, "rb", opener=_open_nonblocking) as file:
        if not stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            return read_bounded(path, most)
        os.set_blocking(file.fileno(), True)
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it is larger than {most} bytes")
    return data


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a path without blocking on a pipe that has no writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
