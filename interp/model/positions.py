"""How does a model know where a token stands? By an entry, by turning, or by distance.

Entries are added to the embedding: learned (GPT-2) or sinusoidal (Vaswani et al. 2017, §3.5).
Turning rotates queries and keys, so that q_i·k_j depends on i − j (RoPE, Su et al. 2021).
Distance lowers the scores: ALiBi, slope · (j − i) (Press et al. 2022).
"""

from dataclasses import dataclass
from math import floor, log2
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.config import Layout, PositionsConfig
from interp.model.context import Context
from interp.model.recipe import Layout as PlaceLayout
from interp.model.recipe import Reader, Recipe
from interp.points import Place, Point
from interp.tap import Tap

Heads = Float[Tensor, "batch pos head d_head"]
KeyHeads = Float[Tensor, "batch key kv_head d_head"]
Stream = Float[Tensor, "batch pos d_model"]


def angles(positions: Tensor, d: int, base: float) -> Float[Tensor, "*positions d_half"]:
    """P / base^(2i/d), in float64: the angle of position p at wavelength i."""
    wavelengths = base ** (torch.arange(0, d, 2, device=positions.device).double() / d)
    return positions[..., None].double() / wavelengths


def pair_up(first: Tensor, second: Tensor, layout: Layout) -> Tensor:
    """Lay pairs out as (first half, second half) or alternating."""
    if layout == "half":
        return torch.cat([first, second], dim=-1)
    return torch.stack([first, second], dim=-1).flatten(-2)


class Entry(nn.Module):
    """No positions at the entry; the parent of those that there are."""

    def forward(self, x: Stream, context: Context, tap: Tap) -> Stream:  # noqa: ARG002
        """x, as it is."""
        return x

    def layout(self) -> PlaceLayout:
        """No places of its own."""
        return {}


class AddedEntry(Entry):
    """x + W_pos[position]; ``W_pos`` is ``[n_ctx d_model]``."""

    def forward(self, x: Stream, context: Context, tap: Tap) -> Stream:
        """X + W_pos[position]."""
        return x + tap(Point.POS_EMBED, self.at(context.positions))

    def at(self, positions: Tensor) -> Tensor:
        """W_pos[position]."""
        raise NotImplementedError

    def table(self) -> Tensor:
        """W_pos."""
        raise NotImplementedError

    def layout(self) -> PlaceLayout:
        """The position embedding, which follows from the positions alone."""

        def added(entry: AddedEntry, of: Reader) -> Tensor:
            return entry.at(of.context.positions)

        return {Place(Point.POS_EMBED): Recipe(added, part="entry")}


class LearnedEntry(AddedEntry):
    """A trained vector a position."""

    def __init__(self, n_ctx: int, d_model: int) -> None:
        super().__init__()
        self.W_pos = nn.Parameter(torch.randn(n_ctx, d_model) * 0.02)

    def at(self, positions: Tensor) -> Tensor:
        """W_pos[position]."""
        return self.W_pos[positions]

    def table(self) -> Tensor:
        """W_pos."""
        return self.W_pos


class SinusoidalEntry(AddedEntry):
    """Sine and cosine of the position at geometric wavelengths; nothing is trained."""

    like: Tensor

    def __init__(self, n_ctx: int, d_model: int, config: PositionsConfig) -> None:
        super().__init__()
        self.n_ctx, self.d_model = n_ctx, d_model
        self.base = config.base
        self.pairs: Layout = config.layout
        # Holds nothing, but moves with the model: what type the waves have and where they are.
        self.register_buffer("like", torch.empty(0), persistent=False)

    def at(self, positions: Tensor) -> Tensor:
        """The waves at ``positions``, computed in float64 whatever the model's type."""
        phase = angles(positions, self.d_model, self.base)
        return pair_up(phase.sin(), phase.cos(), self.pairs).to(self.like.dtype)

    def table(self) -> Tensor:
        """The waves at every position."""
        return self.at(torch.arange(self.n_ctx, device=self.like.device))


def entry_of(config: PositionsConfig, n_ctx: int, d_model: int) -> Entry:
    """The entry that ``config`` describes."""
    match config.kind:
        case "learned":
            return LearnedEntry(n_ctx, d_model)
        case "sinusoidal":
            return SinusoidalEntry(n_ctx, d_model, config)
        case _:
            return Entry()


@dataclass(frozen=True)
class Unturned:
    """Attention that knows nothing of positions; the parent of those that do."""

    query: Point = Point.Q
    key: Point = Point.K
    lowers_scores: bool = False

    def turn(self, q: Heads, k: KeyHeads, context: Context, tap: Tap) -> tuple[Heads, KeyHeads]:  # noqa: ARG002
        """Queries and keys, as they are."""
        return q, k

    def turned(self, x: Tensor, positions: Tensor) -> Tensor:  # noqa: ARG002
        """``x`` as it looks from ``positions``: the same."""
        return x

    def bias(self, context: Context) -> Float[Tensor, "#batch head query key"] | None:  # noqa: ARG002
        """What is added to the scores: nothing."""
        return None

    def layout(self) -> PlaceLayout:
        """No places of its own."""
        return {}


@dataclass(frozen=True)
class Rotary(Unturned):
    """Each pair of dimensions turns by position / base^(2i/d_head)."""

    query: Point = Point.ROT_Q
    key: Point = Point.ROT_K
    base: float = 10_000.0
    pairs: Layout = "half"

    def turn(self, q: Heads, k: KeyHeads, context: Context, tap: Tap) -> tuple[Heads, KeyHeads]:
        """R(i)·q_i and R(j)·k_j."""
        return (
            tap(self.query, self._by(q, self._angles(q, context))),
            tap(self.key, self._by(k, self._angles(k, context))),
        )

    def turned(
        self, x: Float[Tensor, "... d_head"], positions: Tensor
    ) -> Float[Tensor, "... d_head"]:
        """R(position)·x for ``x`` of any leading shape that ``positions`` broadcasts to."""
        phase = angles(positions, x.shape[-1], self.base)
        return self._by(x, (phase.cos().to(x.dtype), phase.sin().to(x.dtype)))

    def _angles(self, x: Heads, context: Context) -> tuple[Tensor, Tensor]:
        def make() -> tuple[Tensor, Tensor]:
            phase = angles(context.positions, x.shape[-1], self.base)[:, :, None]
            return phase.cos().to(x.dtype), phase.sin().to(x.dtype)

        return context.once((self, x.shape[-1], x.dtype), make)

    def _by(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        cos, sin = turn
        first, second = x.chunk(2, dim=-1) if self.pairs == "half" else (x[..., 0::2], x[..., 1::2])
        return pair_up(first * cos - second * sin, second * cos + first * sin, self.pairs)

    def layout(self) -> PlaceLayout:
        """Queries and keys after turning."""

        def turned(point: Point) -> Recipe:
            def make(attn: Any, of: Reader) -> Tensor:  # noqa: ANN401 - the attention that has these
                rotary: Rotary = attn.positions
                x = of(point)
                return rotary._by(x, rotary._angles(x, of.context))

            return Recipe(make, needs=(Place(point),))

        return {Place(self.query): turned(Point.Q), Place(self.key): turned(Point.K)}


@dataclass(frozen=True)
class ALiBi(Unturned):
    """−slope_h · |i − j|, with slopes 2^(−8h/n) (and BLOOM's rule for other head counts)."""

    lowers_scores: bool = True
    n_heads: int = 1

    def slopes(self) -> Float[Tensor, " head"]:
        """One slope a head, in float64."""
        power = 2 ** floor(log2(self.n_heads))
        first = 2.0 ** (-8.0 / power * torch.arange(1, power + 1).double())
        odd = torch.arange(1, 1 + 2 * (self.n_heads - power), 2).double()
        return torch.cat([first, 2.0 ** (-4.0 / power * odd)])

    def bias(self, context: Context) -> Float[Tensor, "#batch head query key"]:
        """−slope · distance."""
        queries, keys = context.positions, context.key_positions
        if context.real is None:
            queries, keys = queries[:1], keys[:1]
        distance = (queries[:, :, None] - keys[:, None, :]).abs().double()
        return -self.slopes().to(keys.device)[None, :, None, None] * distance[:, None]


def turning_of(config: PositionsConfig, n_heads: int) -> Unturned:
    """How attention knows positions under ``config``."""
    match config.kind:
        case "rotary":
            return Rotary(base=config.base, pairs=config.layout)
        case "alibi":
            return ALiBi(n_heads=n_heads)
        case _:
            return Unturned()
