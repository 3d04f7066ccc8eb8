"""What replaces a tensor, gathered from one forward of reference prompts after another.

Each class is given the tensors at a place, forward by forward, and holds what it makes of them: a
sum, or the values that are drawn. So memory does not grow with the number of reference prompts. If
all are in one forward, the sum has the dtype of the activations; otherwise it is in float64. What
differs from prompt to prompt can be made for some of the prompts at a time.
"""

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.edits import donor_rows, summing_dtype, token_mean
from interp.errors import InvalidInput
from interp.model import tokens_first


@dataclass(frozen=True, eq=False)
class Masks:
    """Which columns of an axis are tokens.

    Attributes:
        to: of the prompts.
        of: of the reference prompts.
    """

    to: Bool[Tensor, "batch pos"]
    of: Bool[Tensor, "donor column"]

    def for_rows(self, rows: Int[Tensor, " row"]) -> "Masks":
        """Those of some prompts."""
        return replace(self, to=self.to[rows])

    @cached_property
    def positions(self) -> Int[Tensor, "prompt pos"]:
        """The position of each column among the tokens of its row; any at padding.

        One row, if no prompt has padding before a token: columns are then positions.

        Raises:
            InvalidInput: the longest prompt is longer than every reference prompt.
        """
        longest, reference_length = int(self.to.sum(-1).max()), int(self.of.sum(-1).max())
        if longest > reference_length:
            raise InvalidInput(
                "A mean per position needs reference prompts as long as the prompts: they have up "
                f"to {reference_length} tokens, the prompts up to {longest}. Give longer reference "
                "prompts, or per_position=False."
            )
        position = (self.to.cumsum(-1) - 1).clamp(min=0)
        columns = torch.arange(self.to.shape[1], device=self.to.device).clamp(max=longest - 1)
        return columns[None] if bool((columns == position)[self.to].all()) else position


@dataclass(frozen=True, eq=False)
class Donors:
    """The donor of each token.

    Attributes:
        real: which columns of the prompts are tokens.
        rows: the donors.
        columns: the columns of the donors.
    """

    real: Bool[Tensor, "batch pos"]
    rows: Int[Tensor, "batch pos"]
    columns: Int[Tensor, "batch pos"]

    @classmethod
    def drawn(cls, masks: Masks, seed: int, *, is_reference: bool) -> "Donors":
        """Draw the donors.

        Args:
            masks: the columns that are tokens.
            seed: seed of the draw.
            is_reference: whether donors are other prompts than those that are replaced.
        """
        return cls(masks.to, *donor_tokens(masks.to, seed, masks.of if is_reference else None))

    def for_rows(self, rows: Int[Tensor, " row"]) -> "Donors":
        """Those of some prompts."""
        return Donors(self.real[rows], self.rows[rows], self.columns[rows])


class Gathered(ABC):
    """What replaces the tensor at a place.

    Attributes:
        needed: the reference prompts that it is made of and that are not added yet, in ascending
            order.
        by_prompt: whether it differs from prompt to prompt.
        is_mean: whether it is made of one mean for all prompts.
    """

    needed: Int[Tensor, " donor"]
    by_prompt: bool = True
    is_mean: bool = False

    @abstractmethod
    def add(self, rows: Int[Tensor, " row"], x: Tensor) -> None:
        """Add the tensor of some reference prompts, ``[row …]``."""

    @abstractmethod
    def values(self) -> Tensor:
        """What replaces the tensor: a value for each prompt, one for all, or a single mean."""

    @abstractmethod
    def for_rows(self, rows: Int[Tensor, " row"]) -> "Gathered":
        """What replaces the tensor on some prompts: with the same mean, but without donors."""


class _Mean(Gathered):
    """A mean: the sum of what was added, and how many there were.

    Args:
        of: the columns of the reference prompts that are tokens.
    """

    is_mean = True

    def __init__(self, of: Bool[Tensor, "donor column"]) -> None:
        self.needed = torch.arange(len(of), device=of.device)
        self._of = of
        self._total: Tensor | None = None
        self._count: Tensor | int = 0
        self._dtype = torch.float64

    def add(self, rows: Int[Tensor, " row"], x: Float[Tensor, "row ..."]) -> None:
        """Add the tensor of some reference prompts."""
        total, count = self.sum_of(rows, x, is_all=len(x) == len(self.needed))
        self._total = total if self._total is None else self._total + total
        self._count = self._count + count
        self._dtype = x.dtype

    @abstractmethod
    def sum_of(
        self, rows: Int[Tensor, " row"], x: Float[Tensor, "row ..."], *, is_all: bool
    ) -> tuple[Tensor, Tensor | int]:
        """The sum over some reference prompts, and the number of its terms.

        Args:
            rows: the reference prompts.
            x: their tensor.
            is_all: whether they are all of them.
        """

    def for_rows(self, rows: Int[Tensor, " row"]) -> "Gathered":
        """See :meth:`Gathered.for_rows`."""
        part = copy(self)
        part.needed = self.needed[:0]
        part.restrict(rows)
        return part

    def restrict(self, rows: Int[Tensor, " row"]) -> None:
        """Keep the columns of some prompts only; a mean over all tokens has none."""

    def mean(self) -> Tensor:
        """The mean, in the dtype of what was added."""
        total, count = _added(self._total), self._count
        if isinstance(count, Tensor):
            count = count.clamp(min=1).to(total.dtype).reshape(-1, *[1] * (total.ndim - 1))
        return (total / count).to(self._dtype)


class MeanOfTokens(_Mean):
    """The mean over all tokens, without batch and position."""

    by_prompt = False

    def __init__(self, masks: Masks) -> None:
        super().__init__(masks.of)

    def sum_of(
        self, rows: Int[Tensor, " row"], x: Float[Tensor, "row column ..."], *, is_all: bool
    ) -> tuple[Tensor, int]:
        """See :meth:`_Mean.sum_of`; of all, it is the mean itself."""
        real = self._of[rows]
        if is_all:
            return token_mean(x, real)[0, 0], 1
        return x[real].sum(0, dtype=torch.float64), int(real.sum())

    def values(self) -> Float[Tensor, "..."]:
        """The mean."""
        return self.mean()


class MeanByPosition(_Mean):
    """The mean at each position over the prompts that have the position."""

    def __init__(self, masks: Masks) -> None:
        super().__init__(masks.of)
        self._positions = masks.positions
        self.by_prompt = len(self._positions) > 1

    def restrict(self, rows: Int[Tensor, " row"]) -> None:
        """See :meth:`_Mean.restrict`."""
        if self.by_prompt:
            self._positions = self._positions[rows]

    def sum_of(
        self, rows: Int[Tensor, " row"], x: Float[Tensor, "row column ..."], *, is_all: bool
    ) -> tuple[Tensor, Tensor]:
        """See :meth:`_Mean.sum_of`."""
        real = self._of[rows]
        order, lengths = tokens_first(real), real.sum(-1, keepdim=True)
        has = torch.arange(real.shape[1], device=real.device) < lengths
        tokens = x[torch.arange(len(x), device=x.device)[:, None], order]
        wide = summing_dtype(x.dtype) if is_all else torch.float64
        tokens = tokens * has.to(wide).reshape(*has.shape, *[1] * (x.ndim - 2))
        return tokens.sum(0), has.sum(0)

    def values(self) -> Float[Tensor, "prompt pos ..."]:
        """The mean at the position of each column; one row if it is that of every prompt."""
        return self.mean()[self._positions]


class MeanOfPatterns(_Mean):
    """The mean over prompts for each pair of positions."""

    def __init__(self, pairs: "Pairs") -> None:
        super().__init__(pairs.masks[0].of)
        self._pairs = pairs
        self.by_prompt = not self._pairs.is_one_for_all

    def restrict(self, rows: Int[Tensor, " row"]) -> None:
        """See :meth:`_Mean.restrict`."""
        self._pairs = self._pairs.for_rows(rows)

    def sum_of(
        self, rows: Int[Tensor, " row"], x: Float[Tensor, "row head query key"], *, is_all: bool
    ) -> tuple[Tensor, int]:
        """See :meth:`_Mean.sum_of`; of all, it is the mean itself."""
        values = self._pairs.read(rows, x)
        if is_all:
            return values.mean(0, keepdim=True), 1
        return values.sum(0, keepdim=True, dtype=torch.float64), len(x)

    def values(self) -> Float[Tensor, "prompt head query key"]:
        """The mean at the columns of each prompt; one row if they are those of every prompt."""
        return self._pairs.written(self.mean(), one_for_all=not self.by_prompt)


class Resampled(Gathered):
    """The value on another prompt, at the same position.

    Args:
        donors: the donor of each token.
    """

    def __init__(self, donors: Donors) -> None:
        self._donors = donors
        self.needed = donors.rows[donors.real].unique()
        self._values: Tensor | None = None

    def for_rows(self, rows: Int[Tensor, " row"]) -> "Resampled":
        """See :meth:`Gathered.for_rows`."""
        return Resampled(self._donors.for_rows(rows))

    def add(self, rows: Int[Tensor, " row"], x: Float[Tensor, "row column ..."]) -> None:
        """Take the values that are drawn from some reference prompts."""
        row, here = _among(rows, self._donors.rows)
        if self._values is None:
            self._values = x.new_zeros(*row.shape, *x.shape[2:])
        self._values[here] = x[row[here], self._donors.columns[here]]

    def values(self) -> Float[Tensor, "batch pos ..."]:
        """A value for each token of each prompt."""
        return _added(self._values)


class ResampledPatterns(Gathered):
    """The pattern of another prompt.

    Args:
        pairs: the pairs of positions.
        donors: the donor of each query.
    """

    def __init__(self, pairs: "Pairs", donors: Donors) -> None:
        self._pairs, self._donors = pairs, donors
        self._rows = donors.rows.gather(1, tokens_first(donors.real)[:, :1])[:, 0]
        self.needed = self._rows.unique()
        self._values: Tensor | None = None

    def for_rows(self, rows: Int[Tensor, " row"]) -> "ResampledPatterns":
        """See :meth:`Gathered.for_rows`."""
        return ResampledPatterns(self._pairs.for_rows(rows), self._donors.for_rows(rows))

    def add(self, rows: Int[Tensor, " row"], x: Float[Tensor, "row head query key"]) -> None:
        """Take the patterns that are drawn from some reference prompts."""
        row, here = _among(rows, self._rows)
        values = self._pairs.read(rows, x)
        if self._values is None:
            self._values = values.new_zeros(len(self._rows), *values.shape[1:])
        self._values[here] = values[row[here]]

    def values(self) -> Float[Tensor, "batch head query key"]:
        """The pattern of each prompt."""
        return self._pairs.written(_added(self._values))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of positions of queries and keys, in prompts that all have the same length.

    Attributes:
        masks: the columns of queries and of keys that are tokens.
        lengths: number of queries and of keys.
    """

    masks: tuple[Masks, Masks]
    lengths: tuple[int, int]

    @classmethod
    def of(cls, query: Masks, key: Masks) -> "Pairs":
        """The pairs of queries and keys.

        Raises:
            InvalidInput: not all prompts have the same length.
        """
        return cls((query, key), (_one_length(query), _one_length(key)))

    def for_rows(self, rows: Int[Tensor, " row"]) -> "Pairs":
        """Those of some prompts."""
        query, key = self.masks
        return replace(self, masks=(query.for_rows(rows), key.for_rows(rows)))

    @property
    def is_one_for_all(self) -> bool:
        """Whether all prompts have padding at the same columns."""
        return all(bool((mask.to == mask.to[:1]).all()) for mask in self.masks)

    def read(
        self, rows: Int[Tensor, " row"], x: Float[Tensor, "row head column_q column_k"]
    ) -> Float[Tensor, "row query key head"]:
        """Patterns of some reference prompts by position, without padding."""
        masks = (mask.of[rows] for mask in self.masks)
        return x.movedim(1, -1)[self._mesh(*masks)]

    def written(
        self, values: Float[Tensor, "value query key head"], *, one_for_all: bool = False
    ) -> Float[Tensor, "prompt head column_q column_k"]:
        """Values by position at the columns of the prompts, and 0 at padding.

        Args:
            values: of each prompt, or one row for all.
            one_for_all: whether to return one row, as all prompts have padding at the same columns.
        """
        query, key = (mask.to[:1] if one_for_all else mask.to for mask in self.masks)
        written = values.new_zeros(*query.shape, key.shape[1], values.shape[-1])
        written[self._mesh(query, key)] = values
        return written.movedim(-1, 1)

    def _mesh(
        self, query: Bool[Tensor, "row column_q"], key: Bool[Tensor, "row column_k"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The index of each pair of positions in each row, whose tokens are marked."""
        n_queries, n_keys = self.lengths
        of_query, of_key = tokens_first(query)[:, :n_queries], tokens_first(key)[:, :n_keys]
        row = torch.arange(len(query), device=query.device)
        return row[:, None, None], of_query[:, :, None], of_key[:, None, :]


def _added(gathered: Tensor | None) -> Tensor:
    """What has been gathered, unless nothing was added."""
    if gathered is None:
        raise InvalidInput("There is no reference prompt; give at least one.")
    return gathered


def _among(
    rows: Int[Tensor, " row"], donors: Int[Tensor, "..."]
) -> tuple[Int[Tensor, "..."], Bool[Tensor, "..."]]:
    """Where donors are among some rows, in ascending order, and whether they are."""
    row = torch.searchsorted(rows, donors).clamp(max=len(rows) - 1)
    return row, rows[row] == donors


def _one_length(masks: Masks) -> int:
    """The number of tokens of each prompt and reference prompt.

    Raises:
        InvalidInput: not all have the same length.
    """
    lengths = torch.cat([masks.to.sum(-1), masks.of.sum(-1)])
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest < longest:
        raise InvalidInput(
            "To replace a pattern, all prompts must have the same length; these have "
            f'{shortest} to {longest} tokens. Give prompts of one length, or part="z".'
        )
    return longest


def donor_tokens(
    real: Bool[Tensor, "batch pos"],
    seed: int,
    reference: Bool[Tensor, "donor column"] | None = None,
) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"]]:
    """For each token of prompts of any length, the row and the column of its donor.

    The donor has the same position, in the nearest preceding prompt of the cycle that is long
    enough. For a position that no other prompt has, a position of the preceding prompt is drawn.
    Prompts of equal length have the donors of :func:`interp.edits.donor_rows`. With a reference of
    m prompts, the cycle goes through these, and prompt i starts from prompt i mod m.

    Args:
        real: which columns hold tokens.
        seed: seed of the cycle, and of the drawn positions.
        reference: which columns of other prompts hold tokens, if donors are taken from these
            prompts.

    Raises:
        InvalidInput: there is a single prompt, and no reference.
    """
    (n, width), on_cpu = real.shape, real.cpu()
    if reference is None and n < 2:  # noqa: PLR2004 - a prompt and its donor
        raise InvalidInput("Resampling needs at least two prompts; one was given.")
    donors = on_cpu if reference is None else reference.cpu()
    # By position, as padding may be anywhere: column[i, p] is the column of token p of donor i.
    column, lengths = tokens_first(donors), donors.sum(-1)
    position = torch.arange(width).expand(n, -1)
    has, gives = position < on_cpu.sum(-1)[:, None], torch.arange(width) < lengths[:, None]
    before = donor_rows(len(donors), seed)
    candidate = before[torch.arange(n) % len(donors)]
    row, has_value = candidate[:, None].repeat(1, width), gives[candidate]
    shared = has & (gives.sum(0) > (1 if reference is None else 0))
    while bool((shared & ~has_value).any()):
        candidate = before[candidate]
        row = row.where(has_value | ~gives[candidate], candidate[:, None])
        has_value = has_value | gives[candidate]
    generator = torch.Generator().manual_seed(seed)
    drawn = (torch.rand(n, width, generator=generator) * lengths[row]).long()
    donor = column[row, position.where(has_value, drawn)]
    order = tokens_first(on_cpu)
    rows, columns = (torch.empty_like(x).scatter_(1, order, x) for x in (row, donor))
    return rows.to(real.device), columns.to(real.device)
