"""Repeated random tokens, and the cells where heads of a known role attend.

    repeated      BOS x x         unrepeated      BOS x y         all tokens of x and y distinct

A role is a set of cells (query i, key j): j = i − 1 for previous-token heads, j = i + 1 − n·|x| for
induction heads, j = i − n·|x| for duplicate-token heads (Olsson et al. 2022, "In-context Learning
and Induction Heads"; Wang et al. 2022, "Interpretability in the Wild").
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InvalidInput
from interp.integers import as_seed, at_least
from interp.model import Batch, Network

HALF, SHORTEST = 60, 3
"""Number of tokens that are repeated: the default's upper limit, and the minimum."""
FARTHEST = 8
"""Largest distance between query and key of the roles by offset."""
NEIGHBOURS = {-1: "previous-token", 1: "next-token"}
SINKS = ("bos-sink", "first-position-sink")
"""Attention to the first position, by whether BOS stands there."""
Cells = Bool[Tensor, "query key"]


@dataclass(frozen=True, eq=False)
class RepeatedRows:
    """Rows of repeated random tokens.

    Attributes:
        repeated: BOS (if texts of this model begin with it), then x, repeated.
        unrepeated: BOS, then x, then other tokens instead of its repetitions.
        start: number of tokens before x.
        half: number of tokens in x.
    """

    repeated: Batch
    unrepeated: Batch
    start: int
    half: int

    @property
    def again(self) -> slice:
        """The columns of the repetitions of x."""
        return slice(self.start + self.half, None)

    def rows(self, chosen: Int[Tensor, " row"]) -> "RepeatedRows":
        """The chosen rows."""
        return replace(
            self, repeated=self.repeated.rows(chosen), unrepeated=self.unrepeated.rows(chosen)
        )

    def cells(self, *, bidirectional: bool) -> dict[str, Cells]:
        """The cells of each role; they may include keys that a query can't see.

        The first token is a key of ``bos-sink`` only (``first-position-sink`` without BOS), since
        heads attend to it when they find nothing else. Bidirectional attention has no
        ``induction``, which predicts next tokens.
        """
        n = self.repeated.ids.shape[1]
        query, key = torch.arange(n)[:, None], torch.arange(n)[None]
        apart, first = key - query, max(self.start, 1)
        random = (query >= first) & (key >= first)
        near = range(1, min(FARTHEST, self.half - 2) + 1)
        offsets = [sign * by for by in near for sign in ((-1, 1) if bidirectional else (-1,))]
        pairs = {NEIGHBOURS.get(by, f"offset {by:+d}"): (apart == by) & random for by in offsets}
        pairs[SINKS[0] if self.start else SINKS[1]] = ((key == 0) & (query > 1)).expand(n, n)
        copies = (apart % self.half == 0) & (apart != 0)
        pairs["duplicate-token"] = copies & random & (bidirectional | (apart < 0))
        if not bidirectional:
            after = ((apart - 1) % self.half == 0) & (apart < 0)
            pairs["induction"] = after & random & (key > self.start)
        return pairs


def repeated_rows(
    model: Network,
    ids: Int[Tensor, " token"],
    *,
    half: int | None = None,
    rows: int = 32,
    repeats: int = 2,
    seed: int = 0,
) -> RepeatedRows:
    """Draw rows of repeated tokens, and rows of as many unrepeated ones.

    Args:
        model: a model that reads tokens, with a single stack.
        ids: distinct token ids to draw from.
        half: number of tokens that are repeated; by default 60, or as many as the context and
            ``ids`` allow.
        rows: number of rows.
        repeats: number of times that a row has these tokens.
        seed: seed of the draws.

    Raises:
        InvalidInput: fewer than one row, two repeats or three tokens to repeat; or more tokens than
            the context or ``ids`` allow.
    """
    repeats, rows, seed = at_least(2, repeats, "repeats"), at_least(1, rows, "rows"), as_seed(seed)
    special = model.config.tokens
    bos = [special.bos] if special.prepend_bos and special.bos is not None else []
    n_ctx = model.config.n_ctx - len(bos)
    most = min(n_ctx, len(ids)) // repeats
    half = min(HALF, most) if half is None else at_least(SHORTEST, half, "half")
    if not SHORTEST <= half <= most:
        raise InvalidInput(
            f"Rows of {repeats} × {half} tokens can't be drawn: at least {SHORTEST} are repeated, "
            f"all tokens of an unrepeated row are distinct, and there are {len(ids)} of them and "
            f"room for {n_ctx} in the context, so half={most} is the most."
        )
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(ids), generator=generator) for _ in range(rows)]
    drawn = torch.stack([ids[order[: repeats * half]] for order in orders])
    start = torch.tensor(bos, dtype=torch.long).expand(rows, -1)
    repeated = torch.cat([start, drawn[:, :half].repeat(1, repeats)], 1)
    unrepeated = torch.cat([start, drawn], 1)
    return RepeatedRows(model.batch(repeated), model.batch(unrepeated), len(bos), half)
