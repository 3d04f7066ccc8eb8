"""State that all layers of a stack share during one forward: positions, padding, encoder output.

The position of a token is its index among the real tokens of its own row, so that left and right
padding give the same results.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.model.batch import Batch, repeated

_Computed = TypeVar("_Computed")
KeysValues = tuple[Tensor, Tensor]
"""Keys and values, each ``[batch pos kv_head d_head]``."""


@runtime_checkable
class KVCacheLike(Protocol):
    """Keys and values of columns that a forward does not compute; see also ``kv_cache.py``."""

    def extend(self, owner: object, k: Tensor, v: Tensor) -> KeysValues:
        """Keys and values of ``owner`` (an attention) for all columns, given the new ones."""
        ...

    def fixed(self, owner: object, compute: Callable[[], KeysValues]) -> KeysValues:
        """Keys and values that do not grow (computed from an encoder's output)."""
        ...


class NoKVCache:
    """The KV cache of an ordinary forward: no keys and values but those of the computed columns."""

    def extend(self, owner: object, k: Tensor, v: Tensor) -> KeysValues:  # noqa: ARG002
        """The new keys and values, which are all."""
        return k, v

    def fixed(self, owner: object, compute: Callable[[], KeysValues]) -> KeysValues:  # noqa: ARG002
        """The result of ``compute``."""
        return compute()


@dataclass(frozen=True, eq=False)
class Context:
    """Positions and padding of one stack in one forward.

    Attributes:
        positions: index of each token among the real tokens of its row (0 at padding).
        offset: number of columns that precede those of this forward (with a KV cache).
        real: which *key* columns hold tokens; ``None`` if all do.
        encoder_output: the output of the encoder, which the decoder attends to.
        encoder_real: which columns of the encoder's input hold tokens; ``None`` if all do.
        kv_cache: keys and values of columns that this forward does not compute.
        n_later: number of columns after those of this forward that can be attended to.
    """

    positions: Int[Tensor, "batch pos"]
    offset: int = 0
    real: Bool[Tensor, "batch key"] | None = None
    encoder_output: Float[Tensor, "batch source d_model"] | None = None
    encoder_real: Bool[Tensor, "batch source"] | None = None
    kv_cache: KVCacheLike = field(default_factory=NoKVCache)
    n_later: int = 0
    _shared: dict[Hashable, object] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        batch: Batch,
        offset: int = 0,
        kv_cache: KVCacheLike | None = None,
        encoder_real: Bool[Tensor, "batch source"] | None = None,
    ) -> "Context":
        """The context of the columns of a batch from ``offset`` on."""
        ids, kv_cache = batch.ids, kv_cache or NoKVCache()
        if batch.real is None:
            row = torch.arange(offset, ids.shape[1], device=ids.device)
            positions = row.expand(ids.shape[0], -1)
        else:
            positions = (batch.real.cumsum(-1) - 1).clamp(min=0)[:, offset:]
        return cls(positions, offset, batch.real, None, encoder_real, kv_cache)

    @classmethod
    def plain(cls, x: Tensor) -> "Context":
        """The context of an unpadded stream ``[batch pos d_model]``."""
        row = torch.arange(x.shape[1], device=x.device)
        return cls(row.expand(x.shape[0], -1))

    def with_encoder(self, output: Tensor | None) -> "Context":
        """The same context with an encoder's output to attend to."""
        return replace(self, encoder_output=output)

    def stored(self) -> "Context":
        """The same context without encoder output and KV cache, as a cache stores it."""
        return replace(self, encoder_output=None, kv_cache=NoKVCache(), _shared={})

    def narrowed(self, columns: slice, kv_cache: KVCacheLike) -> "Context":
        """The context of some of the columns; the others can be attended to in ``kv_cache``."""
        first, stop, _ = columns.indices(self.n_query)
        return replace(
            self,
            positions=self.positions[:, columns],
            offset=self.offset + first,
            n_later=self.n_later + self.n_query - stop,
            kv_cache=kv_cache,
            _shared={},
        )

    def repeated(self, copies: int, kv_cache: KVCacheLike) -> "Context":
        """The context of ``copies`` copies of the batch, one after another."""
        return self._each_row(lambda x: repeated(x, copies), kv_cache)

    def of_copy(self, copy: int, copies: int) -> "Context":
        """The context of one of ``copies`` copies of a batch: its positions and padding."""
        return self._each_row(lambda x: x.chunk(copies)[copy], NoKVCache())

    def _each_row(self, change: Callable[[Tensor], Tensor], kv_cache: KVCacheLike) -> "Context":
        """The context of the rows that ``change`` makes, without the encoder's output."""

        def changed(x: Tensor | None) -> Tensor | None:
            return None if x is None else change(x)

        return replace(
            self,
            positions=change(self.positions),
            real=changed(self.real),
            encoder_output=None,
            encoder_real=changed(self.encoder_real),
            kv_cache=kv_cache,
            _shared={},
        )

    @property
    def key_positions(self) -> Int[Tensor, "batch key"]:
        """The position of each *key* among the real tokens of its row."""
        if self.real is None:
            columns = torch.arange(self.n_key, device=self.positions.device)
            return columns.expand(self.positions.shape[0], -1)
        return (self.real.cumsum(-1) - 1).clamp(min=0)

    @property
    def key_less_query(self) -> Int[Tensor, "#batch query key"]:
        """Key position minus query position; a single row if all rows are alike."""
        queries, keys = self.positions, self.key_positions
        if self.real is None:
            queries, keys = queries[:1], keys[:1]
        return keys[:, None, :] - queries[:, :, None]

    @property
    def lengths(self) -> Int[Tensor, " row"]:
        """Number of tokens of each row in all columns; a single number if all rows are alike."""
        if self.real is None:
            return torch.tensor([self.n_key], device=self.positions.device)
        return self.real.sum(-1)

    @property
    def n_query(self) -> int:
        """Number of columns that this forward computes."""
        return self.positions.shape[1]

    @property
    def n_key(self) -> int:
        """Number of columns that can be attended to."""
        return self.offset + self.n_query + self.n_later

    @property
    def columns(self) -> Int[Tensor, " query"]:
        """Indices of the columns that this forward computes."""
        last = self.offset + self.n_query
        return torch.arange(self.offset, last, device=self.positions.device)

    def once(self, key: Hashable, compute: Callable[[], _Computed]) -> _Computed:
        """``compute()``, called once per forward and key: masks and angles shared by layers."""
        if key not in self._shared:
            self._shared[key] = compute()
        return self._shared[key]  # pyright: ignore[reportReturnType] - stored under this key
