"""Progress of long work: a callback of ``(done, total)``, or a bar."""

from collections.abc import Callable

from tqdm.auto import tqdm

Progress = Callable[[int, int], None]
"""Called with how much is done, and the total."""
ProgressLike = Progress | bool | None
"""A callback, True for a bar, or False or None for neither."""
DELAY = 2.0
"""Seconds before a bar appears; shorter work shows none."""


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
