"""How does attention know how far apart two tokens are? By turning, or by what scores gain or lose.

Turning rotates queries and keys, so that q_i·k_j depends on i − j (RoPE, Su et al. 2021). Distance
lowers the scores by slope · |i − j| (ALiBi, Press et al. 2022), or adds to them what was learned
for its range (T5, Raffel et al. 2020).
"""

from dataclasses import dataclass
from math import floor, log, log2
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.config import Layout, PositionsConfig, ScalingConfig
from interp.model.context import Context
from interp.model.embeddings import pair_up
from interp.model.positions.scaling import depends_on_length, scaled
from interp.model.recipe import Layout as PlaceLayout
from interp.model.recipe import Reader, Recipe
from interp.model.tap import Tap
from interp.points import Place, Point

Heads = Float[Tensor, "batch pos head d_head"]
Distances = Float[Tensor, "#batch head query key"]


class Unturned:
    """Attention that knows nothing of positions; the parent of those that do."""

    lowers_scores = False
    """Whether something is added to the scores."""
    needs_length = False
    """Whether what is done to early tokens depends on how long their text is."""

    def query(self, q: Heads, context: Context, tap: Tap) -> Heads:  # noqa: ARG002
        """Queries, as they are."""
        return q

    def key(self, k: Heads, context: Context, tap: Tap) -> Heads:  # noqa: ARG002
        """Keys, as they are."""
        return k

    def turned(self, x: Tensor, positions: Tensor) -> Tensor:  # noqa: ARG002
        """``x`` as it looks from ``positions``: the same."""
        return x

    def bias(self, context: Context) -> Distances | None:  # noqa: ARG002
        """What is added to the scores: nothing."""
        return None

    def layout(self, query: Place, key: Place) -> PlaceLayout:  # noqa: ARG002
        """No places of its own, behind those of queries and keys."""
        return {}


@dataclass(frozen=True)
class Rotary(Unturned):
    """Each pair of dimensions turns by position / base^(2i/d), or slower where stretched.

    Attributes:
        base: of the wavelengths.
        pairs: where the two of a pair stand.
        d: how many dimensions turn, the first ones; ``None`` means all.
        scaling: how it was stretched to longer texts.
    """

    base: float = 10_000.0
    pairs: Layout = "half"
    d: int | None = None
    scaling: ScalingConfig | None = None

    @property
    def needs_length(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the angles depend on the length of the text."""
        return depends_on_length(self.scaling)

    def query(self, q: Heads, context: Context, tap: Tap) -> Heads:
        """R(i)·q_i."""
        return tap(Point.ROT_Q, self._by(q, self._turn(q, context)))

    def key(self, k: Heads, context: Context, tap: Tap) -> Heads:
        """R(j)·k_j."""
        return tap(Point.ROT_K, self._by(k, self._turn(k, context)))

    def turned(
        self, x: Float[Tensor, "... d_head"], positions: Tensor
    ) -> Float[Tensor, "... d_head"]:
        """R(position)·x for ``x`` of any leading shape that ``positions`` broadcasts to.

        In a text no longer than the model was trained on, where that matters.
        """
        rates = scaled(self.d or x.shape[-1], self.base, self.scaling, None)
        phase = positions[..., None].double() * rates.to(positions.device)
        return self._by(x, self._waves(phase, x.dtype))

    def _turn(self, x: Heads, context: Context) -> tuple[Tensor, Tensor]:
        d = self.d or x.shape[-1]

        def make() -> tuple[Tensor, Tensor]:
            lengths = context.lengths if self.needs_length else None
            rates = scaled(d, self.base, self.scaling, lengths).to(x.device)
            rates = rates if lengths is None else rates[:, None]
            phase = context.positions[..., None].double() * rates
            return self._waves(phase[:, :, None], x.dtype)

        return context.once((self, d, x.dtype), make)

    def _waves(self, phase: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        times = 1.0 if self.scaling is None else self.scaling.amplitude
        return (times * phase.cos()).to(dtype), (times * phase.sin()).to(dtype)

    def _by(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        cos, sin = turn
        x, rest = (x, None) if self.d is None else (x[..., : self.d], x[..., self.d :])
        first, second = x.chunk(2, dim=-1) if self.pairs == "half" else (x[..., 0::2], x[..., 1::2])
        turned = pair_up(first * cos - second * sin, second * cos + first * sin, self.pairs)
        return turned if rest is None else torch.cat([turned, rest], dim=-1)

    def layout(self, query: Place, key: Place) -> PlaceLayout:
        """Queries and keys after turning."""

        def turned(source: Place) -> Recipe:
            def make(attn: Any, of: Reader) -> Tensor:  # noqa: ANN401 - the attention that has these
                rotary: Rotary = attn.positions
                x = of(source.point)
                return rotary._by(x, rotary._turn(x, of.context))

            return Recipe(make, needs=(source,))

        return {Place(Point.ROT_Q): turned(query), Place(Point.ROT_K): turned(key)}


@dataclass(frozen=True)
class ALiBi(Unturned):
    """−slope_h · |i − j|, with slopes 2^(−8h/n) (and BLOOM's rule for other head counts)."""

    lowers_scores = True
    n_heads: int = 1

    def slopes(self) -> Float[Tensor, " head"]:
        """One slope a head, in float64."""
        power = 2 ** floor(log2(self.n_heads))
        first = 2.0 ** (-8.0 / power * torch.arange(1, power + 1).double())
        odd = torch.arange(1, 1 + 2 * (self.n_heads - power), 2).double()
        return torch.cat([first, 2.0 ** (-4.0 / power * odd)])

    def bias(self, context: Context) -> Distances:
        """−slope · distance."""
        distance = key_less_query(context).abs().double()
        return -self.slopes().to(distance.device)[None, :, None, None] * distance[:, None]


class Ranges(nn.Module):
    """What was learned for each range of distances and head: T5's table, which layers share."""

    def __init__(self, n_buckets: int, n_heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_buckets, n_heads) * 0.1)


@dataclass(frozen=True)
class Buckets(Unturned):
    """+ table[range of j − i]: near distances one by one, farther ones in growing ranges.

    Attributes:
        table: what is added.
        max_distance: distances from here on share the last range.
        both_ways: whether keys behind a query have ranges of their own (in an encoder).
    """

    lowers_scores = True
    table: Ranges
    max_distance: int
    both_ways: bool

    def bias(self, context: Context) -> Distances:
        """The table's entry for each pair."""
        ranges = self.range_of(key_less_query(context))
        return self.table.weight[ranges].movedim(-1, 1)

    def range_of(self, distance: Int[Tensor, "batch query key"]) -> Int[Tensor, "batch query key"]:
        """Which range each distance (key less query) falls into."""
        n = self.table.weight.shape[0] // (2 if self.both_ways else 1)
        later = n * (distance > 0) if self.both_ways else torch.zeros_like(distance)
        far = distance.abs() if self.both_ways else (-distance).clamp(min=0)
        exact = n // 2
        # In float32, as the weights were trained: borders between ranges depend on it.
        beyond = (far.float() / exact).clamp(min=1).log() / log(self.max_distance / exact)
        wide = (exact + (beyond * (n - exact)).long()).clamp(max=n - 1)
        return later + torch.where(far < exact, far, wide)


def key_less_query(context: Context) -> Int[Tensor, "batch query key"]:
    """J − i, of one row if all are alike."""
    queries, keys = context.positions, context.key_positions
    if context.real is None:
        queries, keys = queries[:1], keys[:1]
    return keys[:, None, :] - queries[:, :, None]


def ranges_of(config: PositionsConfig, n_heads: int) -> Ranges | None:
    """The table that the layers of a stack share, if they do."""
    return Ranges(config.n_buckets, n_heads) if config.kind == "buckets" else None


def turning_of(
    config: PositionsConfig, n_heads: int, ranges: Ranges | None, *, both_ways: bool
) -> Unturned:
    """How attention knows positions under ``config``."""
    match config.kind:
        case "rotary":
            return Rotary(config.base, config.layout, config.d_rotary, config.scaling)
        case "alibi":
            return ALiBi(n_heads)
        case "buckets" if ranges is not None:
            return Buckets(ranges, config.max_distance, both_ways)
        case _:
            return Unturned()
