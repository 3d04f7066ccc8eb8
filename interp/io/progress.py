"""Progress of long work, a callback of ``(done, total)`` or a bar; cancelling it.

    with cancellable(cancelled):
        means = collect(model, prompts)     # raises Cancelled after a forward, if cancelled()

A forward asks the innermost function of the thread that computes it, so that what runs forwards
need not pass the function on.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from tqdm.auto import tqdm

from interp.errors import Cancelled

Progress = Callable[[int, int], None]
"""Called with how much is done, and the total."""
ProgressLike = Progress | bool | None
"""A callback, True for a bar, or False or None for neither."""
DELAY = 2.0
"""Seconds before a bar appears; shorter work shows none."""
_IS_CANCELLED: ContextVar[Callable[[], bool] | None] = ContextVar("is_cancelled", default=None)


def as_progress(progress: ProgressLike, label: str) -> Progress | None:
    """The callback for a ``progress=`` argument; ``None`` if no progress is reported.

    Args:
        progress: see :data:`ProgressLike`. The bar shows the time left; it is drawn in a notebook
            or a terminal, and nowhere else.
        label: the text beside the bar.
    """
    if not isinstance(progress, bool):
        return progress
    if not progress:
        return None
    bar = tqdm(desc=label, disable=None, delay=DELAY)

    def show(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)
        if done >= total:
            bar.close()

    return show


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
