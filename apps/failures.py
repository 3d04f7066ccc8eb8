"""How does a command fail? With one line on stderr and an exit code that says why.

2 bad input, 3 a model that can't be loaded, 4 out of resources, 130 interrupted; 1 for what
should not happen. The traceback is shown with ``--debug`` alone.
"""

import inspect
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Annotated, ParamSpec

import typer

from apps.terminal import error_line, tell

UNEXPECTED, OUT_OF_RESOURCES, INTERRUPTED = 1, 4, 130
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
"""What torch says in a RuntimeError when memory gives out."""

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
debugging: ContextVar[bool] = ContextVar("debugging", default=False)

_Arguments = ParamSpec("_Arguments")


def fails_plainly(command: Callable[_Arguments, None]) -> Callable[..., None]:
    """The same command with an option ``--debug``, its errors told in one line."""

    @wraps(command)
    def told(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        debug = bool(kwargs.pop("debug", False)) or debugging.get()
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:
            if debug:
                tell(traceback.format_exc())
            code, message = verdict(error)
            error_line(message)
            raise typer.Exit(code) from error

    own = inspect.signature(command)
    option = inspect.Parameter(
        "debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug
    )
    vars(told)["__signature__"] = own.replace(parameters=[*own.parameters.values(), option])
    return told


def verdict(error: BaseException) -> tuple[int, str]:
    """The exit code and the one line for an error."""
    from interp.errors import InterpError  # noqa: PLC0415 - torch is not for --help

    match error:
        case InterpError():
            return error.exit_code, str(error)
        case KeyboardInterrupt():
            return INTERRUPTED, str(error) or "Interrupted; nothing was written."
        case MemoryError():
            return OUT_OF_RESOURCES, "Out of memory. Give fewer or shorter prompts."
        case RuntimeError() if any(words in str(error).lower() for words in OUT_OF_MEMORY):
            return OUT_OF_RESOURCES, f"Out of memory: {str(error).splitlines()[0]}"
        case OSError():
            return OUT_OF_RESOURCES, f"{error.filename or 'The system'}: {error.strerror or error}."
        case _:
            what = f"{type(error).__name__}: {error}"
            return UNEXPECTED, f"Unexpected {what} (a fault of the program; --debug shows where)."
