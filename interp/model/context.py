"""What do all layers of one stack share during one forward? Positions, padding, the other stack.

Padding is the token id ``PAD = -1``, which is no token of any vocabulary and so can't be taken
for one. A token's position is its index among the real tokens of its own row, which makes left
and right padding the same thing to a model.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InvalidTokens
from interp.model.past import NoPast, Past, copied

PAD = -1

_Made = TypeVar("_Made")


@dataclass(frozen=True, eq=False)
class Batch:
    """Checked token ids.

    Attributes:
        ids: token ids; 0 stands where there is padding.
        real: where there is a token and not padding; ``None`` if there is no padding.
    """

    ids: Int[Tensor, "batch pos"]
    real: Bool[Tensor, "batch pos"] | None = None

    @classmethod
    def of(
        cls,
        tokens: object,
        d_vocab: int,
        n_ctx: int,
        mask: object = None,
        device: torch.device | str | None = None,
    ) -> "Batch":
        """Check ``tokens`` against the vocabulary and the context length.

        Args:
            tokens: ids ``[batch pos]``, or ``[pos]`` for a single row; ``PAD`` where padded. A
                tensor, an array or lists.
            d_vocab: ids must be below it.
            n_ctx: the longest row allowed.
            mask: ``[batch pos]``, nonzero at real tokens, for batches padded in another way.
            device: where the model lives.

        Raises:
            InvalidTokens: no tokens, too many, not whole numbers, outside the vocabulary, a row
                of padding only, or a mask of another shape.
        """
        ids = _as_ids(tokens).to(device)
        real = ids != PAD
        if mask is not None:
            real = real & _checked_mask(mask, ids).to(ids.device)
        lengths = real.sum(-1)
        if lengths.numel() and int(lengths.max()) > n_ctx:
            raise InvalidTokens(
                f"A row of {int(lengths.max())} tokens is over this model's context of {n_ctx}; "
                "shorten it or split it."
            )
        if int(lengths.min()) == 0:
            row = int(lengths.argmin())
            raise InvalidTokens(f"Row {row} holds no token, only padding; drop that prompt.")
        ids = torch.where(real, ids, 0)
        if int(ids.min()) < 0 or int(ids.max()) >= d_vocab:
            row, pos = ((ids < 0) | (ids >= d_vocab)).nonzero()[0].tolist()
            raise InvalidTokens(
                f"Token id {int(ids[row, pos])} at row {row}, position {pos} is outside the "
                f"vocabulary 0..{d_vocab - 1}; was the text encoded with this model's tokenizer?"
            )
        return cls(ids, None if bool(real.all()) else real)

    @property
    def is_real(self) -> Bool[Tensor, "batch pos"]:
        """Where there is a token and not padding."""
        return torch.ones_like(self.ids, dtype=torch.bool) if self.real is None else self.real

    @property
    def tokens(self) -> Int[Tensor, "batch pos"]:
        """The ids with ``PAD`` where there is padding: what :meth:`of` read."""
        return self.ids if self.real is None else self.ids.where(self.real, PAD)

    def rows(self, chosen: Int[Tensor, " row"]) -> "Batch":
        """Some of the rows."""
        return Batch(self.ids[chosen], None if self.real is None else self.real[chosen])

    def ending_together(self) -> "Batch":
        """The same rows, all ending at the right, with no more padding before them than need be."""
        return self if self.real is None else self._ordered(self.real.int().argsort(stable=True))

    def starting_together(self) -> "Batch":
        """The same rows, all starting at the left, with no more padding behind than need be."""
        return self if self.real is None else self._ordered(tokens_first(self.real))

    def copied(self, copies: int) -> "Batch":
        """So many copies of the rows, one after another."""
        return Batch(
            copied(self.ids, copies), None if self.real is None else copied(self.real, copies)
        )

    def _ordered(self, order: Int[Tensor, "batch pos"]) -> "Batch":
        ids, real = self.ids.gather(-1, order), self.is_real.gather(-1, order)
        used = real.any(0)
        ids, real = ids[:, used], real[:, used]
        return Batch(ids, None if bool(real.all()) else real)


def tokens_first(real: Bool[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
    """Each row's columns, those that hold tokens first: ``[b, p]`` is where position p stands."""
    return real.int().argsort(dim=-1, descending=True, stable=True)


def column_of(
    real: Bool[Tensor, "batch pos"], position: int
) -> tuple[Int[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """In which column each row's ``position`` stands, and which rows are too short to have it.

    Positions count the real tokens of a row; negative ones from its end.
    """
    lengths = real.sum(-1)
    wanted = lengths + position if position < 0 else torch.full_like(lengths, position)
    lacking = (wanted < 0) | (wanted >= lengths)
    return ((real.cumsum(-1) - 1 == wanted[:, None]) & real).int().argmax(-1), lacking


def _as_ids(tokens: object) -> Tensor:
    try:
        ids = torch.as_tensor(tokens)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidTokens(
            f"Tokens must be whole numbers [batch pos] of one length: {error}. "
            "model.to_tokens([...]) pads texts of several lengths."
        ) from error
    if ids.numel() == 0:
        raise InvalidTokens("The prompt is empty: there is no token to run the model on.")
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise InvalidTokens(f"Token ids must be whole numbers, got a tensor of {ids.dtype}.")
    ids = ids[None] if ids.ndim == 1 else ids
    if ids.ndim != 2:  # noqa: PLR2004 - batch and pos
        raise InvalidTokens(f"Tokens must be [batch pos], got shape {tuple(ids.shape)}.")
    return ids.long()


def _checked_mask(mask: object, ids: Tensor) -> Tensor:
    mask = torch.as_tensor(mask)
    mask = mask[None] if mask.ndim == 1 else mask
    if mask.shape != ids.shape:
        raise InvalidTokens(
            f"The mask is {tuple(mask.shape)}, the tokens are {tuple(ids.shape)}; they must agree."
        )
    return mask.bool()


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
