"""Path arguments: a string or a path object that can be the name of a file."""

from pathlib import Path

from interp.errors import InvalidInput, shorten


def as_path(given: object) -> Path:
    """``given`` as a path.

    Raises:
        InvalidInput: it is neither a string nor a path, or no file can have this name.
    """
    if not isinstance(given, str | Path) or not str(given) or "\0" in str(given):
        raise InvalidInput(f"A path of a file or a folder was expected; got {shorten(given)}.")
    return Path(given)
