"""KV caches: keys and values of columns that a forward does not compute.

Later columns need nothing else from earlier ones. Generating text, restarting a forward in the
middle of a row, and computing only some columns of a row all rely on this.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from interp.model.batch import repeated
from interp.model.context import KeysValues, KVCacheLike


class KVCache:
    """Keys and values of all columns computed so far, which grow with every forward."""

    def __init__(self) -> None:
        self._stored: dict[object, KeysValues] = {}

    def extend(self, owner: object, k: Tensor, v: Tensor) -> KeysValues:
        """Append the new keys and values along ``pos`` and return all of them."""
        if owner in self._stored:
            earlier_k, earlier_v = self._stored[owner]
            k, v = torch.cat([earlier_k, k], dim=1), torch.cat([earlier_v, v], dim=1)
        self._stored[owner] = (k, v)
        return k, v

    def fixed(self, owner: object, compute: Callable[[], KeysValues]) -> KeysValues:
        """The result of the first call of ``compute``."""
        if owner not in self._stored:
            self._stored[owner] = compute()
        return self._stored[owner]


class FixedKV:
    """Keys and values of one attention for all columns, computed beforehand.

    Args:
        owner: the attention.
        k: its keys for all columns.
        v: its values for all columns.
        others: the KV cache of every other attention.
    """

    def __init__(self, owner: object, k: Tensor, v: Tensor, others: KVCacheLike) -> None:
        self._owner, self._all, self._others = owner, (k, v), others

    def extend(self, owner: object, k: Tensor, v: Tensor) -> KeysValues:
        """Keys and values of all columns, which include the new ones."""
        return self._all if owner is self._owner else self._others.extend(owner, k, v)

    def fixed(self, owner: object, compute: Callable[[], KeysValues]) -> KeysValues:
        """Keys and values from the KV cache of the other attentions."""
        return self._others.fixed(owner, compute)


class RepeatedKV:
    """Keys and values of earlier columns, shared by several copies of one batch.

    Args:
        stored: keys and values of each attention; for cross-attention, of the whole source.
        copies: number of copies of the batch along the first axis of a forward.
        columns: number of columns that precede those of the forward.
    """

    def __init__(self, stored: Mapping[object, KeysValues], copies: int, columns: int) -> None:
        self._stored, self._copies, self._columns = stored, copies, columns

    def extend(self, owner: object, k: Tensor, v: Tensor) -> KeysValues:
        """The stored keys and values, repeated for each copy, followed by the new ones."""
        if self._columns == 0:
            return k, v
        return self._joined(self._stored[owner][0], k), self._joined(self._stored[owner][1], v)

    def fixed(self, owner: object, compute: Callable[[], KeysValues]) -> KeysValues:
        """Keys and values of the source, repeated for each copy; computed if not stored."""
        if owner not in self._stored:
            return compute()
        k, v = self._stored[owner]
        return repeated(k, self._copies), repeated(v, self._copies)

    def _joined(self, before: Tensor, new: Tensor) -> Tensor:
        n = self._columns
        joined = new.new_empty(new.shape[0], n + new.shape[1], *new.shape[2:])
        joined.unflatten(0, (self._copies, -1))[:, :, :n] = before[:, :n]
        joined[:, n:] = new
        return joined
