"""Cancelling work between two of its forwards, where there is no partial result to return.

    with cancellable(cancelled):
        means = collect(model, prompts)     # raises Cancelled after a forward, if cancelled()

A forward asks the innermost function of the thread that computes it, so that what runs forwards
need not pass the function on.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from interp.errors import Cancelled

_IS_CANCELLED: ContextVar[Callable[[], bool] | None] = ContextVar("is_cancelled", default=None)


@contextmanager
def cancellable(cancelled: Callable[[], bool] | None) -> Generator[None]:
    """Let each forward inside the ``with`` block raise ``Cancelled`` if ``cancelled()`` is True.

    ``None`` changes nothing: an outer block stays in effect.
    """
    token = _IS_CANCELLED.set(cancelled or _IS_CANCELLED.get())
    try:
        yield
    finally:
        _IS_CANCELLED.reset(token)


def check_cancelled() -> None:
    """Check, after a forward, that the work has not been cancelled.

    Raises:
        Cancelled: it has.
    """
    cancelled = _IS_CANCELLED.get()
    if cancelled is not None and cancelled():
        raise Cancelled(
            "cancelled() was True before the first value was measured, so there is no partial "
            "result."
        )
