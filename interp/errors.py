"""The exceptions of this package; ``except interp.InterpError`` catches all of them.

Each message says what was given, what was expected, and what to do. ``exit_code`` is the exit code
of the command line: 2 for bad input, 3 for a model that can't be loaded, 4 for exhausted resources.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from reprlib import Repr

MAX_SHOWN = 100
"""Maximum number of characters of input that a message shows."""
MAX_MESSAGE = 1000
"""Maximum number of characters of a message."""
_BRIEF = Repr()
_BRIEF.maxlevel, _BRIEF.maxstring, _BRIEF.maxother = 3, MAX_SHOWN, MAX_SHOWN


class InterpError(Exception):
    """Base class of all errors of this package; its messages have a bounded length.

    Attributes:
        exit_code: the exit code of the command line.
        result: the partial result of a long computation that raised it, if there is one.
    """

    exit_code = 2
    result: object = None

    def __init__(self, *args: object) -> None:
        super().__init__(*(_bounded(arg) if isinstance(arg, str) else arg for arg in args))


def first_line(error: BaseException) -> str:
    """The first line of another library's error message."""
    return next((line for line in map(str.strip, str(error).split("\n")) if line), repr(error))


def reason(error: BaseException) -> str:
    """Why a file can't be read, in one line: the system's message without the path."""
    return getattr(error, "strerror", None) or first_line(error)


def _bounded(message: str) -> str:
    """The message, or its beginning and end; the end says what to do."""
    if len(message) <= MAX_MESSAGE:
        return message
    return f"{message[: MAX_MESSAGE * 2 // 3]} … {message[-MAX_MESSAGE // 4 :]}"


def shorten(value: object) -> str:
    """A value in a message: its shortened repr, or shape and dtype for a tensor or an array."""
    kind = type(value).__name__
    try:
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape is not None and dtype is not None:
            return f"a {kind} of shape {tuple(shape)} and {dtype}"
        text = " ".join(_BRIEF.repr(value).split())
    except Exception:  # a foreign repr may raise errors of any type
        return f"a {kind}"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def nearest(name: str, names: Iterable[str], cutoff: float = 0.5) -> str:
    """A sentence with the known names most similar to a name; empty if none is similar."""
    near = get_close_matches(name[:MAX_SHOWN], [*names], n=3, cutoff=cutoff)
    return f" Nearest: {', '.join(near)}." if near else ""


class InvalidConfig(InterpError, ValueError):
    """An invalid configuration; the message names the field."""


class InvalidInput(InterpError, ValueError):
    """A file, a prompt or an argument that can't be used."""


class NotANumber(InvalidInput):
    """A metric or logits that are NaN."""


class NoSuchAttribute(InvalidInput, AttributeError):
    """An attribute that this model does not have: ``hasattr`` is False."""


class InvalidTokens(InvalidInput):
    """Token ids, a mask or a text that this model can't read."""


class UnknownPlace(InterpError, KeyError):
    """A place that this model does not have; the message lists the nearest ones."""

    def __str__(self) -> str:
        """The message; ``KeyError`` would return its repr."""
        return str(self.args[0]) if self.args else ""


class InvalidEdit(InterpError, ValueError):
    """An edit whose selection, shape, dtype or device does not match the tensor."""


class HookFailed(InterpError, RuntimeError):
    """A function given as an edit or a hook raised an exception, which is ``__cause__``."""


class WorkerFailed(InterpError, RuntimeError):
    """A worker of a sweep ended, or raised an exception that is not of this package."""

    exit_code = 4


class NotRecorded(InterpError, KeyError):
    """A place that a cache neither stores nor can derive."""

    __str__ = UnknownPlace.__str__


class StaleCache(InterpError, RuntimeError):
    """The weights changed after the run, so tensors can no longer be derived from them."""


class ModelLoadError(InterpError):
    """A model, or a file of it, that can't be loaded."""

    exit_code = 3


class IgnoredFieldsWarning(UserWarning):
    """Fields of a ``config.json`` that no part of the model reads."""


class Cancelled(InterpError):
    """``cancelled=`` returned True before there was a partial result to return."""


class OutOfResources(InterpError):
    """Out of memory or disk space, or no permission."""

    exit_code = 4
