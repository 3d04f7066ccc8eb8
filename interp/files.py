"""How is a file written so that it is whole or not there? Aside, then renamed."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

ASIDE = ".part"


def is_aside(path: Path) -> bool:
    """Whether a file is what a killed :func:`write_whole` left."""
    return path.name.startswith(".") and path.suffix == ASIDE


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it: all or nothing.

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
    """The same for a text, in UTF-8 whatever the machine's own encoding.

    Raises:
        OSError: it can't be written.
    """
    write_whole(path, lambda aside: aside.write_text(text, encoding="utf-8"))
