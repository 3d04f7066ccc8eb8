"""Replaces the files of a folder atomically, written by one process at a time.

The files of a report or of a model belong together. If they were renamed one by one, a killed
process would leave files of two runs side by side: each valid, but inconsistent. Therefore they are
written into a new folder beside it and flushed to the disk, and the two folders are exchanged:

    .NAME.interp-new  ↔  NAME                from here on NAME has the new files

Linux does that in one system call, so that there is always a folder NAME. Where it can't, there are
two renames, and a process that is killed between them leaves no NAME, but both folders:

    NAME              →  .NAME.interp-old
    .NAME.interp-new  →  NAME

The next writer of NAME does the second rename if it is missing, and removes leftover folders.

Only files that this package wrote are replaced. Each folder has a ``manifest.json``, which lists
its files with their SHA-256; a folder with any other file, or one that has changed since, is
refused, and the message names the file.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path

from interp.errors import InvalidInput, OutOfResources
from interp.io.files import NEW, beside, exchange, force, locked

MANIFEST, FORMAT, VERSION = "manifest.json", "interp folder", 1
MAX_MANIFEST_BYTES = 2**24
OLD = "old"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk or an exhausted quota."""
MAX_NAMED, MAX_CHARACTERS = 3, 60
"""Maximum number of foreign files that an error names, and of characters of each name."""


@contextmanager
def atomic_folder(folder: Path) -> Generator[Path]:
    """A temporary folder that replaces ``folder`` when the block ends without an error.

    It is created at once, so that a folder that can't be written raises an error before the work.
    After an error or an interruption it is removed, with all parent folders created here.

    Raises:
        InvalidInput: ``folder`` has files that this package did not write, or can't be replaced as
            a whole.
        OutOfResources: ``folder`` can't be written, or another process is writing it.
    """
    with sole_writer(folder) as place, replacement(place) as new:
        yield new


@contextmanager
def sole_writer(folder: Path) -> Generator[Path]:
    """Lock ``folder``, remove leftovers of a killed writer, and check that it may be replaced.

    Yields:
        The folder, with symbolic links resolved.

    Raises:
        InvalidInput: see :func:`atomic_folder`.
        OutOfResources: see :func:`atomic_folder`.
    """
    created: list[Path] = []
    try:
        with ExitStack() as locks:
            with _translated_errors(folder):
                folder = folder.resolve()
                created += [path for path in folder.parents if not path.exists()]
                _check_place(folder)
                folder.parent.mkdir(parents=True, exist_ok=True)
                locks.enter_context(locked(folder))
                _recover(folder)
                _check_replaceable(folder)
            yield folder
    finally:
        with suppress(OSError):  # the first folder that is not empty raises
            for path in created:
                path.rmdir()


@contextmanager
def replacement(folder: Path) -> Generator[Path]:
    """A temporary folder that replaces ``folder``; the caller must hold :func:`sole_writer`.

    Raises:
        InvalidInput: files that this package did not write have appeared in ``folder`` since. The
            new files are kept beside it, and the message has their path.
        OutOfResources: see :func:`atomic_folder`.
    """
    new = beside(folder, NEW)
    try:
        with _translated_errors(folder):
            new.mkdir()
        try:
            yield new
        except OSError as error:  # its message names a temporary file, or none
            if error.errno in FULL:
                raise _no_space(folder, error) from error
            raise
        with _translated_errors(folder):
            _install(new, folder)
    finally:
        with suppress(OSError):  # the next writer tries again
            _recover(folder)


def _install(new: Path, folder: Path) -> None:
    _write_manifest(new)
    for path in (*new.rglob("*"), new):
        force(path)
    try:
        _check_replaceable(folder)
    except InvalidInput as error:
        aside = _free_name(folder)
        new.replace(aside)
        raise InvalidInput(f"{error} The new files are in {aside}.") from error
    if folder.exists():
        shutil.copymode(folder, new)
    if not (folder.exists() and exchange(new, folder)):
        if folder.exists():
            folder.replace(beside(folder, OLD))
        new.replace(folder)
    force(folder.parent)


def _recover(folder: Path) -> None:
    """Complete the replacement that a killed writer began, and remove its leftovers.

    If ``old`` exists, ``new`` is complete.
    """
    new, old = beside(folder, NEW), beside(folder, OLD)
    if old.exists() and new.exists() and not folder.exists():
        new.replace(folder)
    for path in (new, old):
        if path.exists():
            shutil.rmtree(path)


def _check_place(folder: Path) -> None:
    if folder.is_mount() or Path.cwd().is_relative_to(folder):
        raise InvalidInput(
            f"{folder} is the current folder, holds it, or is the root of a file system, so it "
            "can't be replaced as a whole: choose a folder inside it."
        )
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(None, "it is not a folder")


def _check_replaceable(folder: Path) -> None:
    """Refuse a folder with files that this package did not write, or that changed since."""
    written = _manifest_of(folder)
    foreign = (
        path.relative_to(folder).as_posix()
        for path in _files_of(folder)
        if not _is_unchanged(path, written.get(path.relative_to(folder).as_posix()))
    )
    named = [name[:MAX_CHARACTERS] for name in islice(foreign, MAX_NAMED)]
    if named:
        raise InvalidInput(
            f"{folder} holds {', '.join(named)}, which interp did not write or which changed "
            "since: choose another folder, or move them away."
        )


def _files_of(folder: Path) -> Iterator[Path]:
    """All files and links below a folder; links are not followed."""
    for root, folders, files in os.walk(folder):
        links = (name for name in folders if Path(root, name).is_symlink())
        yield from (Path(root, name) for name in (*files, *links))


def _is_unchanged(path: Path, expected: str | None) -> bool:
    plain = path.is_file() and not path.is_symlink()
    return expected is not None and plain and _sha256(path) == expected


def _manifest_of(folder: Path) -> dict[str, str]:
    """SHA-256 by file name, including the manifest; empty if there is no readable manifest."""
    path = folder / MANIFEST
    try:
        if path.is_file() and path.stat().st_size <= MAX_MANIFEST_BYTES:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            if (manifest["format"], manifest["version"]) == (FORMAT, VERSION):
                return {**manifest["files"], MANIFEST: _sha256(path)}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return {}


def _write_manifest(folder: Path) -> None:
    files = {path.relative_to(folder).as_posix(): _sha256(path) for path in _files_of(folder)}
    manifest: Mapping[str, object] = {
        "format": FORMAT,
        "version": VERSION,
        "files": dict(sorted(files.items())),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _free_name(folder: Path) -> Path:
    number = 2
    while (path := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    return path


def _no_space(folder: Path, error: OSError) -> OutOfResources:
    return OutOfResources(
        f"{folder} can't be written: {error.strerror}. Free some space there or choose another "
        f"folder; {'what it held is unchanged' if folder.exists() else 'nothing was written'}."
    )


@contextmanager
def _translated_errors(folder: Path) -> Generator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:  # the latter for a loop of symbolic links
        if isinstance(error, OSError) and error.errno in FULL:
            raise _no_space(folder, error) from error
        reason = getattr(error, "strerror", None) or error
        raise OutOfResources(
            f"{folder} can't be written: {reason}. Choose another folder."
        ) from error
