"""Attention whose heads are divided among ranks: H(x) = Σ_ranks Σ_h A_h(x) · x · S_h + b_O.

Rows of W_Q, W_K, W_V and columns of W_O are divided by head. Each rank computes z of its heads, and
the sum over ranks is the first of the two sums of a block. Queries, keys, values, patterns and z
are those of its heads, in what it records and in KV caches too; what is edited is joined for the
edit, which sees all heads (see :class:`~interp.tensor_parallel.parts.TapOfShare`).

Keys and values are divided by key/value head. With more ranks than those, ranks hold copies of
them, and the query heads of each are divided.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from interp.errors import InvalidInput
from interp.model import (
    Attention,
    Context,
    FixedKV,
    KeyHeads,
    KeysValues,
    Masking,
    PositionBias,
    PositionScheme,
    SinkSoftmax,
    Stream,
    Tap,
    untouched,
)
from interp.points import Place, Point
from interp.tensor_parallel.norms import is_joint, norm_of_share
from interp.tensor_parallel.parts import ShardedPart, Split, Splits, tap_of_share, with_local
from interp.tensor_parallel.ranks import Ranks, Shares


def head_shares(n_heads: int, kv_heads: int, size: int) -> tuple[Shares, Shares]:
    """The query heads and the key/value heads of each rank.

    Raises:
        InvalidInput: there are more ranks than heads, or they do not divide the query heads of
            each key/value head.
    """
    sharing = n_heads // kv_heads
    if size <= kv_heads:
        keys = Shares.even(kv_heads, size)
        return keys.times(sharing), keys
    copies = size // kv_heads
    if size % kv_heads or copies > sharing:
        larger = f", or a multiple of {kv_heads} up to {n_heads}" if sharing > 1 else ""
        raise InvalidInput(
            f"{size} ranks can't share {n_heads} heads with {kv_heads} key/value heads; take at "
            f"most {kv_heads} ranks{larger}."
        )
    of_rank = tuple(torch.tensor([rank // copies]) for rank in range(size))
    groups = (torch.arange(sharing).tensor_split(copies) for _ in range(kv_heads))
    queries = tuple(group * sharing + part for group, parts in enumerate(groups) for part in parts)
    return Shares(queries), Shares(of_rank)


@dataclass(frozen=True)
class OfHeads(PositionScheme):
    """The position scheme of some consecutive heads.

    Attributes:
        whole: the scheme of all heads.
        ranks: the ranks.
        first: the first head.
        stop: the head after the last one.
    """

    whole: PositionScheme
    ranks: Ranks
    first: int
    stop: int

    @property
    def has_bias(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether a bias is added to the scores."""
        return self.whole.has_bias

    def query(self, q: Tensor, context: Context, tap: Tap) -> Tensor:
        """Queries, rotated."""
        return self.whole.query(q, context, tap)

    def key(self, k: Tensor, context: Context, tap: Tap) -> Tensor:
        """Keys, rotated."""
        return self.whole.key(k, context, tap)

    def bias(self, context: Context) -> PositionBias | None:
        """The bias of these heads."""
        bias = self.whole.bias(context)
        return None if bias is None else self.ranks.copied(bias)[:, self.first : self.stop]


class SinksOfHeads(SinkSoftmax):
    """The softmax of some heads, each with its sink.

    Args:
        whole: the softmax of all heads.
        heads: the heads of each rank.
        ranks: the ranks.
    """

    def __init__(self, whole: SinkSoftmax, heads: Shares, ranks: Ranks) -> None:
        nn.Module.__init__(self)
        self.whole, self.heads, self.ranks = whole, heads, ranks

    @property
    def sinks(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The sinks of these heads."""
        return self.ranks.select(self.ranks.copied(self.whole.sinks), self.heads, 0)


class ShardedAttention(ShardedPart, Attention):
    """Attention with a share of the heads on each rank.

    Attributes:
        local: the attention of this rank's heads.
        heads: the query heads of each rank.
        keys: the key/value heads of each rank.
    """

    local: Attention
    heads: Shares
    keys: Shares

    def forward(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """H(x)."""
        axes = {"head": self.heads, "kv_head": self.keys}
        of_share = tap_of_share(tap, self._divided_points, axes, self.ranks)
        if self.is_cross and context.encoder_output is not None:
            context = context.with_encoder(self.ranks.copied(context.encoder_output))
        z = self.local.hidden(self.ranks.copied(x), context, of_share)
        return tap(self.points.out, self._sum(of_share(self.points.z, z), of_share))

    def fixed_kv(self, x: Stream, context: Context) -> FixedKV:
        """Keys and values of this rank's heads in all columns."""
        return self.local.fixed_kv(self.ranks.copied(x), context)

    def cached(self, k: KeyHeads, v: KeyHeads) -> dict[object, KeysValues]:
        """Keys and values of this rank's heads, which ``local`` reads."""
        k, v = (self.ranks.share(x, self.keys, 2) for x in (k, v))
        return {self.local: (k, v)}

    # ---- of all heads, as analyses and recipes compute them -----------------------------------

    def project(self, x: Stream, context: Context, tap: Tap) -> tuple[Tensor, KeyHeads, KeyHeads]:
        """Queries, keys and values of all heads."""
        at = self.points
        if not self.is_cross:
            q, k, v = self._split(self._joined(x, 0, self.heads.then(self.keys).then(self.keys)))
            return tap(at.q, q), tap(at.k, k), tap(at.v, v)

        def keys_and_values() -> KeysValues:
            if context.encoder_output is None:
                raise InvalidInput("Cross-attention needs the source: run model(source, target).")
            k, v = self._keys_and_values(context.encoder_output)
            return tap(at.k, k), tap(at.v, v)

        q = tap(at.q, self._joined(x, 0, self.heads).unflatten(-1, (-1, self.d_head)))
        return q, *keys_and_values()

    def write(self, z: Tensor, tap: Tap = untouched) -> Stream:
        """Σ_h z_h W_O + b_O."""
        if tap.must_form(self.points.result):
            return super().write(z, tap)
        return self._sum(self.ranks.share(z, self.heads, 2))

    def _sum(self, z: Tensor, tap: Tap = untouched) -> Stream:
        """Σ_ranks z W_O + b_O, where z is that of this rank's heads."""
        total = self.ranks.summed(self.local.write(z, tap))
        return total if self.b_O is None else total + self.b_O

    def _keys_and_values(self, x: Stream) -> KeysValues:
        joint = self._joined(x, len(self.heads.of_rank[self.ranks.rank]), self.keys.then(self.keys))
        k, v = joint.unflatten(-1, (-1, self.d_head)).chunk(2, dim=2)
        return k, v

    def _joined(self, x: Stream, first: int, shares: Shares) -> Tensor:
        """x·W + b of queries, keys or values of all heads, ``[batch pos width]``.

        Args:
            x: the stream.
            first: the first of the heads of ``weight_qkv`` of this rank that are computed.
            shares: the heads that each rank computes.
        """
        count = len(shares.of_rank[self.ranks.rank])
        rows = slice(first * self.d_head, (first + count) * self.d_head)
        bias = self.local.joint_bias()
        part = self.local.linear(
            self.ranks.copied(x),
            self.local.weight_qkv[rows],
            None if bias is None else bias[rows],
        )
        return self.ranks.joined(part, shares.times(self.d_head), -1)

    @property
    def _divided_points(self) -> set[Point]:
        """The points of tensors of each head."""
        points = {place.point for place in self.layout(Place(self.points.q))}
        joint = [norm for norm in (self.q_norm, self.k_norm) if is_joint(norm)]
        return points - {self.points.out} - {norm.points.scale for norm in joint}


def splits_of(attn: Attention, ranks: Ranks) -> Splits:
    """How the weights of an attention are divided."""
    heads, keys = head_shares(attn.n_heads, attn.kv_heads, ranks.size)
    rows, width = heads.then(keys).then(keys).times(attn.d_head), heads.times(attn.d_head)
    by_key = keys.times(attn.d_head)
    return {
        "weight_qkv": Split(0, rows),
        "weight_o": Split(1, width),
        "b_q": Split(0, width),
        "b_k": Split(0, by_key),
        "b_v": Split(0, by_key),
    }


def shard(attn: Attention, splits: Splits, ranks: Ranks) -> None:
    """Make an attention, whose weights are this rank's already, a :class:`ShardedAttention`."""
    heads, keys = head_shares(attn.n_heads, attn.kv_heads, ranks.size)
    part, local = with_local(attn, ShardedAttention, splits, ranks)
    part.heads, part.keys = heads, keys
    these = heads.of_rank[ranks.rank]
    local.n_heads, local.kv_heads = len(these), len(keys.of_rank[ranks.rank])
    local.positions = OfHeads(attn.positions, ranks, int(these[0]), int(these[-1]) + 1)
    local.masking = Masking(attn.masking.mask, local.positions)
    local.q_norm = norm_of_share(attn.q_norm, heads, ranks)
    local.k_norm = norm_of_share(attn.k_norm, keys, ranks)
    if isinstance(attn.softmax, SinkSoftmax):
        local.softmax = SinksOfHeads(attn.softmax, heads, ranks)
