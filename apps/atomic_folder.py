"""A folder of results that is written completely or not at all."""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from interp.errors import OutOfResources


@contextmanager
def atomic_folder(folder: Path) -> Generator[Path]:
    """A temporary folder whose files are moved to ``folder`` when the block ends without an error.

    It is created inside ``folder``: this checks at once that ``folder`` can be written, and moving
    is renaming. After an error or an interruption it is removed, with every folder created here.

    Raises:
        OutOfResources: ``folder`` can't be created or written.
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    temporary: Path | None = None
    try:
        temporary = _create_inside(folder)
        yield temporary
        for file in sorted(temporary.iterdir()):
            file.replace(folder / file.name)
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        with suppress(OSError):  # a folder that is not empty stays, and so do its parents
            for path in created:
                path.rmdir()


def _create_inside(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder))
    except OSError as error:
        raise OutOfResources(
            f"{folder} can't be written: {error.strerror or error}. Choose another with --out."
        ) from error
