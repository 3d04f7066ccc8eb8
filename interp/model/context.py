"""What do all layers of one stack share during one forward? Positions, padding, the other stack.

A token's position is its index among the real tokens of its own row, which makes left and right
padding the same thing to a model.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.model.batch import Batch
from interp.model.kv_cache import NoPast, Past, copied

_Made = TypeVar("_Made")


@dataclass(frozen=True, eq=False)
class Context:
    """Positions and padding of one stack in one forward.

    Attributes:
        positions: of each token among the real tokens of its row (0 at padding).
        offset: how many columns were read before these (with a key/value cache).
        real: which *key* columns hold tokens; ``None`` if all do.
        memory: what the encoder gave out, for a decoder of a pair.
        memory_real: which of its columns hold tokens; ``None`` if all do.
        past: keys and values of earlier columns.
        ahead: how many columns after these can be attended to.
    """

    positions: Int[Tensor, "batch pos"]
    offset: int = 0
    real: Bool[Tensor, "batch key"] | None = None
    memory: Float[Tensor, "batch source d_model"] | None = None
    memory_real: Bool[Tensor, "batch source"] | None = None
    past: Past = field(default_factory=NoPast)
    ahead: int = 0
    _shared: dict[Hashable, object] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        batch: Batch,
        offset: int = 0,
        past: Past | None = None,
        source_real: Bool[Tensor, "batch source"] | None = None,
    ) -> "Context":
        """The context of the columns of a batch from ``offset`` on; ``past`` holds those before."""
        ids, past = batch.ids, past or NoPast()
        if batch.real is None:
            row = torch.arange(offset, ids.shape[1], device=ids.device)
            return cls(row.expand(ids.shape[0], -1), offset, None, None, source_real, past)
        positions = (batch.real.cumsum(-1) - 1).clamp(min=0)[:, offset:]
        return cls(positions, offset, batch.real, None, source_real, past)

    @classmethod
    def plain(cls, x: Tensor) -> "Context":
        """The context of an unpadded stream ``[batch pos d_model]``."""
        row = torch.arange(x.shape[1], device=x.device)
        return cls(row.expand(x.shape[0], -1))

    def reading(self, memory: Tensor | None) -> "Context":
        """The same, with an encoder's output to attend to."""
        return replace(self, memory=memory)

    def kept(self) -> "Context":
        """What deriving needs of it later: without memory and past, which may be large."""
        return replace(self, memory=None, past=NoPast(), _shared={})

    def narrowed(self, columns: slice, past: Past) -> "Context":
        """Of some of these columns, all of which can still be attended to through ``past``."""
        first, stop, _ = columns.indices(self.n_query)
        return replace(
            self,
            positions=self.positions[:, columns],
            offset=self.offset + first,
            ahead=self.ahead + self.n_query - stop,
            past=past,
            _shared={},
        )

    def copied(self, copies: int, past: Past) -> "Context":
        """Of so many copies of the batch, one after another."""
        return replace(
            self,
            positions=copied(self.positions, copies),
            real=None if self.real is None else copied(self.real, copies),
            memory=None,
            memory_real=None if self.memory_real is None else copied(self.memory_real, copies),
            past=past,
            _shared={},
        )

    def of_copy(self, copy: int, copies: int) -> "Context":
        """Positions and padding of one of the copies."""

        def own(x: Tensor | None) -> Tensor | None:
            return None if x is None else x.unflatten(0, (copies, -1))[copy]

        return replace(
            self,
            positions=self.positions.unflatten(0, (copies, -1))[copy],
            real=own(self.real),
            memory=None,
            memory_real=own(self.memory_real),
            past=NoPast(),
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
    def lengths(self) -> Int[Tensor, " row"]:
        """How many tokens each row has, those of other columns included; one if all are alike."""
        if self.real is None:
            return torch.tensor([self.n_key], device=self.positions.device)
        return self.real.sum(-1)

    @property
    def n_query(self) -> int:
        """How many columns this forward reads."""
        return self.positions.shape[1]

    @property
    def n_key(self) -> int:
        """How many columns it can attend to."""
        return self.offset + self.n_query + self.ahead

    @property
    def columns(self) -> Int[Tensor, " query"]:
        """The columns that this forward reads."""
        last = self.offset + self.n_query
        return torch.arange(self.offset, last, device=self.positions.device)

    def once(self, key: Hashable, make: Callable[[], _Made]) -> _Made:
        """What ``make`` gave when ``key`` was first asked: masks and angles that layers share."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]  # pyright: ignore[reportReturnType] - made by this very key
