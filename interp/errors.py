"""Everything that can go wrong, as one family: ``except interp.InterpError`` catches it all.

Each message says what came, what was expected, and what to do. ``exit_code`` is what the command
line returns: 2 for bad input, 3 for a model that can't be loaded, 4 for exhausted resources.
"""


class InterpError(Exception):
    """The root of the family.

    Attributes:
        exit_code: what the command line returns.
        result: what long work had done before this was raised, if it had done something.
    """

    exit_code = 2
    result: object = None


def first_line(error: BaseException) -> str:
    """What another library's error says, less what it tells its own programmers below."""
    return next((line for line in map(str.strip, str(error).split("\n")) if line), repr(error))


class InvalidConfig(InterpError, ValueError):
    """A configuration that describes no model: the message names the field."""


class InvalidInput(InterpError, ValueError):
    """A file, a prompt or an argument that can't be used."""


class InvalidTokens(InvalidInput):
    """Token ids, a mask or a text that can't be fed to this model."""


class UnknownPlace(InterpError, KeyError):
    """A place that this model does not have; the message offers the nearest that it has."""

    def __str__(self) -> str:
        """The message itself: ``KeyError`` would print its repr."""
        return str(self.args[0]) if self.args else ""


class InvalidEdit(InterpError, ValueError):
    """An edit whose selection, shape, dtype or device does not fit the tensor it meets."""


class HookFailed(InterpError, RuntimeError):
    """A user's function raised inside the forward; ``__cause__`` is what it raised."""


class NotRecorded(InterpError, KeyError):
    """A place was asked of a cache that neither holds it nor can derive it."""

    __str__ = UnknownPlace.__str__


class StaleCache(InterpError, RuntimeError):
    """The weights changed after the run, so what is derived would belong to another model."""


class ModelLoadError(InterpError):
    """A model, or a file of it, that can't be loaded."""

    exit_code = 3


class OutOfResources(InterpError):
    """Memory, disk or permission gave out."""

    exit_code = 4
