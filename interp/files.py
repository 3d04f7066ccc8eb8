"""Files that are complete or absent: written under a temporary name, then renamed."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

ASIDE = ".part"


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
    except SafetensorError as error:  # as a full disk is told where tensors are written
        raise OSError(f"{path.name} can't be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text_whole(path: Path, text: str) -> None:
    """The same for a text, in UTF-8 whatever the locale.

    Raises:
        OSError: it can't be written.
    """
    write_whole(path, lambda aside: aside.write_text(text, encoding="utf-8"))
