"""A file system in memory that can be full or read-only; it needs Linux and root."""

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

CLONE_NEWNS = 0x20000
READ_ONLY, REMOUNT, RECURSIVE, PRIVATE = 1, 32, 1 << 14, 1 << 18
PAGE = os.sysconf("SC_PAGE_SIZE")


class Disk:
    """A file system mounted for this process and its children only.

    Raises:
        OSError: it can't be mounted, for example without root.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._check(self._libc.unshare(CLONE_NEWNS))
        self._mount("none", Path("/"), RECURSIVE | PRIVATE, "")
        self._mount("tmpfs", folder, 0, "size=1g")

    @contextmanager
    def free(self, pages: int) -> Generator[None]:
        """Leave only ``pages`` pages free in a block."""
        used = os.statvfs(self.folder)
        size = (used.f_blocks - used.f_bfree) * PAGE + pages * PAGE
        self._mount("tmpfs", self.folder, REMOUNT, f"size={size}")
        yield
        self._mount("tmpfs", self.folder, REMOUNT, "size=1g")

    @contextmanager
    def read_only(self) -> Generator[None]:
        """Make the file system read-only in a block."""
        self._mount("tmpfs", self.folder, REMOUNT | READ_ONLY, "")
        yield
        self._mount("tmpfs", self.folder, REMOUNT, "")

    def unmount(self) -> None:
        """Unmount the file system."""
        self._check(self._libc.umount2(bytes(self.folder), 0))

    def _mount(self, kind: str, folder: Path, flags: int, options: str) -> None:
        name = kind.encode()
        self._check(self._libc.mount(name, bytes(folder), name, flags, options.encode()))

    def _check(self, result: int) -> None:
        if result:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
