"""Reads only a share of each weight, for models that several processes hold together."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

from interp.model import Network

Share = Callable[[Network, str, Tensor], Tensor]
"""``share(model, name, weight)``: what is kept of a weight of a model, which has no data."""
_SHARE: ContextVar[Share | None] = ContextVar("share", default=None)


@contextmanager
def reading_shares(share: Share) -> Generator[None]:
    """Models loaded in the block keep what ``share`` returns of each weight, one after another."""
    token = _SHARE.set(share)
    try:
        yield
    finally:
        _SHARE.reset(token)


def own_share(model: Network, name: str, weight: Tensor) -> Tensor:
    """What is kept of a weight: all of it, unless shares are read."""
    share = _SHARE.get()
    return weight if share is None else share(model, name, weight)
