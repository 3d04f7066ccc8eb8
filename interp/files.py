"""How is a file written so that it is whole or not there? Aside, then renamed."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it: all or nothing.

    Raises:
        OSError: it can't be written.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
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
