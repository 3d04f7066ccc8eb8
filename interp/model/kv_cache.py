"""What does attention know of columns that this forward does not read? Their keys and values.

Queries of later columns need no more of earlier ones than that: generating text, restarting a
forward in the middle of a row, and computing a single column all rest on it.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor


class Past:
    """Keys and values of the tokens already read, per attention: the key/value cache."""

    def __init__(self) -> None:
        self._held: dict[object, tuple[Tensor, Tensor]] = {}

    def extend(self, owner: object, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append new keys and values along ``pos`` and return all of them."""
        if owner in self._held:
            past_k, past_v = self._held[owner]
            k, v = torch.cat([past_k, k], dim=1), torch.cat([past_v, v], dim=1)
        self._held[owner] = (k, v)
        return k, v

    def once(
        self, owner: object, make: Callable[[], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """What ``make`` gave the first time (the keys and values of a fixed source)."""
        if owner not in self._held:
            self._held[owner] = make()
        return self._held[owner]


class NoPast(Past):
    """Remembers nothing: the past of an ordinary forward."""

    def extend(self, owner: object, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """The new keys and values alone."""
        return k, v

    def once(
        self,
        owner: object,  # noqa: ARG002 - Past's signature
        make: Callable[[], tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, Tensor]:
        """What ``make`` gives."""
        return make()


class Seen(Past):
    """Keys and values of one attention for all columns that it will ever be asked about."""

    def __init__(self, owner: object, k: Tensor, v: Tensor, others: Past) -> None:
        super().__init__()
        self._owner, self._all, self._others = owner, (k, v), others

    def extend(self, owner: object, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, those of these columns among them."""
        return self._all if owner is self._owner else self._others.extend(owner, k, v)

    def once(
        self, owner: object, make: Callable[[], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """As without."""
        return self._others.once(owner, make)


class Copied(Past):
    """Keys and values of earlier columns that many copies of one batch share, and leave alone.

    Args:
        held: of each attention, ``[batch pos kv_head d_head]``; those of cross-attention whole.
        copies: how many copies of the batch stand one after another in a forward.
        columns: how many columns were read before.
    """

    def __init__(
        self, held: Mapping[object, tuple[Tensor, Tensor]], copies: int, columns: int
    ) -> None:
        super().__init__()
        self._clean, self._copies, self._columns = held, copies, columns

    def extend(self, owner: object, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The earlier ones, once a copy, and the new ones behind them."""
        if self._columns == 0:
            return k, v
        return self._joined(self._clean[owner][0], k), self._joined(self._clean[owner][1], v)

    def once(
        self, owner: object, make: Callable[[], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Those of a source, once a copy; what ``make`` gives if they are not held."""
        if owner not in self._clean:
            return make()
        k, v = self._clean[owner]
        return copied(k, self._copies), copied(v, self._copies)

    def _joined(self, before: Tensor, new: Tensor) -> Tensor:
        n = self._columns
        joined = new.new_empty(new.shape[0], n + new.shape[1], *new.shape[2:])
        joined.unflatten(0, (self._copies, -1))[:, :, :n] = before[:, :n]
        joined[:, n:] = new
        return joined


def copied(x: Tensor, copies: int) -> Tensor:
    """``x`` so many times, one after another along its first axis."""
    return x if copies == 1 else x.expand(copies, *x.shape).flatten(0, 1)
