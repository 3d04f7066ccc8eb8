"""Errors of a command: one line on stderr, and an exit code for each kind.

The exit codes are 1 for a bug, 2 for bad input, 3 for a model that can't be loaded, 4 for exhausted
resources, 130 if interrupted and 143 if terminated. The traceback is shown only with ``--debug``.
"""

import inspect
import signal
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Annotated, ParamSpec

import typer

from apps.terminal import print_error, print_stderr
from apps.torchrun import as_one, is_first, may_print

UNEXPECTED, OUT_OF_RESOURCES, INTERRUPTED, TERMINATED = 1, 4, 130, 143

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
debugging: ContextVar[bool] = ContextVar("debugging", default=False)

terminated = threading.Event()
"""Set if a command was interrupted by SIGTERM."""
_Arguments = ParamSpec("_Arguments")


def reports_errors(
    command: Callable[_Arguments, None], *, divides_work: bool = False
) -> Callable[..., None]:
    """Add the option ``--debug`` to a command; turn its errors into one line and an exit code.

    Args:
        command: the command.
        divides_work: whether processes that run it at the same time share its work.
    """

    @wraps(command)
    def wrapped(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        debug = bool(kwargs.pop("debug", False)) or debugging.get()
        with errors_as_exit_codes(debug=debug), as_one(kwargs, divides_work=divides_work):
            command(*args, **kwargs)

    signature = inspect.signature(command)
    option = inspect.Parameter(
        "debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug
    )
    parameters = [*signature.parameters.values(), option]
    vars(wrapped)["__signature__"] = signature.replace(parameters=parameters)
    return wrapped


@contextmanager
def errors_as_exit_codes(*, debug: bool) -> Generator[None, None, None]:
    """Turn an error into one line and an exit code; with ``debug``, print its traceback as well."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            print_stderr(traceback.format_exc())
        code, message = code_and_message(error)
        if may_print(error):
            print_error(message)
        raise typer.Exit(code) from error


def interrupt_when_terminated() -> None:
    """Let SIGTERM interrupt a command as Ctrl-C does, so that partial results are saved.

    Processes of torchrun that save none end at once.
    """
    if not is_first():
        return

    def interrupt(*_: object) -> None:
        terminated.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def code_and_message(error: BaseException) -> tuple[int, str]:
    """The exit code and the one-line message for an error."""
    if isinstance(error, KeyboardInterrupt):  # maybe of the import of torch, which fails a 2nd time
        code = TERMINATED if terminated.is_set() else INTERRUPTED
        return code, str(error) or "Interrupted; nothing was written."
    # Imported here, because torch is not needed for --help.
    from interp.errors import InterpError  # noqa: PLC0415
    from interp.sweeps import is_out_of_memory  # noqa: PLC0415

    match error:
        case InterpError():
            return error.exit_code, str(error)
        case _ if is_out_of_memory(error):
            reason = f" ({str(error).splitlines()[0]})" if str(error) else ""
            return OUT_OF_RESOURCES, f"Out of memory{reason}. Give fewer or shorter prompts."
        case OSError():
            return OUT_OF_RESOURCES, f"{error.filename or 'System'}: {error.strerror or error}."
        case _:
            what = f"{type(error).__name__}: {error}"
            return UNEXPECTED, f"Unexpected {what} (this is a bug; --debug shows the traceback)."
