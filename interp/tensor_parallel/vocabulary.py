"""Embedding and unembedding whose vocabulary is divided among ranks.

    W_E[ids] = Σ_ranks (rows of this rank, or 0)        logits = the joined x·W_U of all ranks

Embeddings of tokens are small and are summed over ranks; logits are joined, as metrics read them.
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.model import Batch, Context, Logits, Stack, Stream, Tap, Unembedding, untouched
from interp.points import Point
from interp.tensor_parallel.parts import ShardedPart, Split, Splits, with_local
from interp.tensor_parallel.ranks import Ranks, Shares


class ShardedStack(ShardedPart, Stack):
    """A stack with a share of the rows of W_E on each rank.

    Attributes:
        local: has the rows of this rank as ``weight_e``.
    """

    local: Stack

    def embed(self, batch: Batch, context: Context, tap: Tap = untouched) -> Stream:
        """As :meth:`Stack.embed`, with W_E[ids] summed over the ranks."""
        x = tap(Point.EMBED, self._token_embeddings(batch, context))
        x = self.entry(x, batch, context, tap)
        x = self.types(x, batch, context, tap)
        return self.embed_projection(self.embed_norm(tap(Point.EMBED_TOTAL, x), tap))

    def _token_embeddings(self, batch: Batch, context: Context) -> Tensor:
        rows = self.local.weight_e
        if rows is None:
            return self.tokens(batch, context, None)
        # One more row of zeros stands for the tokens of other ranks.
        first, count = int(self.splits["weight_e"].shares.of_rank[self.ranks.rank][0]), len(rows)
        ids = batch.ids[:, context.offset :] - first
        is_own = (ids >= 0) & (ids < count)
        table = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
        embedded = self.ranks.summed(F.embedding(torch.where(is_own, ids, count), table))
        # Scales and projections of all ranks read them as a table with a row for each token.
        row_of = torch.zeros_like(batch.ids)
        row_of[:, context.offset :] = torch.arange(ids.numel(), device=ids.device).view_as(ids)
        return self.tokens(replace(batch, ids=row_of), context, embedded.flatten(0, 1))


class ShardedUnembedding(ShardedPart, Unembedding):
    """An unembedding with a share of the columns of W_U on each rank.

    Attributes:
        local: has the columns of this rank.
    """

    local: Unembedding

    def forward(self, x: Stream, tap: Tap = untouched) -> Logits:
        """``x @ W_U + b_U``."""
        read = self.ranks.copied(self.read(x))
        of_rank = self.linear(read, self.local.weight, self.local.b_U)
        logits = self.ranks.joined(of_rank, self.splits["weight"].shares, -1)
        return tap(Point.LOGITS, self.soft_cap(logits))

    def before_soft_cap(
        self, x: Stream, columns: Int[Tensor, " column"]
    ) -> Float[Tensor, "batch pos column"]:
        """``x @ W_U + b_U`` for some vocabulary columns."""
        first = int(self.splits["weight"].shares.of_rank[self.ranks.rank][0])
        of_rank = columns - first
        is_own = (of_rank >= 0) & (of_rank < len(self.local.weight))
        rows = of_rank.clamp(0, len(self.local.weight) - 1)
        bias = None if self.local.b_U is None else self.local.b_U[rows]
        values = F.linear(self.ranks.copied(self.read(x)), self.local.weight[rows], bias)
        return self.ranks.summed(values * is_own)


def splits_of(part: Stack | Unembedding, ranks: Ranks) -> Splits:
    """How the vocabulary of a whole stack or unembedding is divided; a small one is not."""
    names = ("weight", "b_U") if isinstance(part, Unembedding) else ("weight_e",)
    weight = getattr(part, names[0])
    if weight is None or len(weight) < ranks.size:
        return {}
    return dict.fromkeys(names, Split(0, Shares.even(len(weight), ranks.size)))


def shard(part: Stack | Unembedding, splits: Splits, ranks: Ranks) -> None:
    """Make a stack or an unembedding, whose weights are this rank's already, a sharded one."""
    if isinstance(part, Unembedding):
        with_local(part, ShardedUnembedding, splits, ranks)
        return
    _, local = with_local(part, ShardedStack, splits, ranks)
    for name in list(dict(local.named_children())):  # it only holds the rows of W_E
        delattr(local, name)
