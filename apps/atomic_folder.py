"""How does a folder of results appear whole or not at all? Written aside, then moved in."""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from interp.errors import OutOfResources


@contextmanager
def staged(folder: Path) -> Generator[Path]:
    """A folder to write files into; they move to ``folder`` when the block ends well.

    It lies inside ``folder``, so entering shows that ``folder`` can be written, and moving is
    renaming. After an error or an interruption nothing is left, nor any folder made here.

    Raises:
        OutOfResources: ``folder`` can't be made or written.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    staging: Path | None = None
    try:
        staging = _inside(folder)
        yield staging
        for file in sorted(staging.iterdir()):
            file.replace(folder / file.name)
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
        with suppress(OSError):  # as soon as one is not empty
            for path in made:
                path.rmdir()


def _inside(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder))
    except OSError as error:
        raise OutOfResources(
            f"{folder} can't be written: {error.strerror or error}. Choose another with --out."
        ) from error
