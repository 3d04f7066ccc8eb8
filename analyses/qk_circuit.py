"""Which tokens does a head attend to, by content and by offset? Its QK circuit, from weights alone.

    score(query, key) = (x_query W_Q + b_Q) R (x_key W_K + b_K)ᵀ / scale,   x = norm(W_E[token])

x is the token's embedding alone, without a position (optionally with the output of the first MLP
added), after the norm that the head reads through; norms of queries and keys are applied too. R
rotates by the offset (query position − key position) where positions are rotary (Elhage et al.
2021, "A Mathematical Framework for Transformer Circuits"). Scores are in nats of log attention,
before any soft-cap. Scores by content have their mean over all keys subtracted, which no softmax
depends on. Beside each stands its mean over all queries, and the part due to b_Q and the bias of
the norm alone.

Scores by offset are those of the first positions, averaged over all pairs of tokens, with the
embeddings of positions, rotations and biases (ALiBi, T5) that the model has. Singular vectors are
those of W_Q R W_Kᵀ / scale, read through W_E on both sides (Millidge and Black 2022). Heads after
the first layer mostly read what other parts wrote, which no embedding shows: an induction head
matches what a previous-token head has written, see :func:`analyses.composition`.
"""

from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.circuits import (
    Side,
    SingularTokens,
    TokenCircuits,
    TokenList,
    TopTokens,
    given_tokens,
    singular_tokens,
    strongest,
    top_tokens,
)
from analyses.methods.finite import check_finite_weights
from analyses.methods.heads import AttentionName
from analyses.results import Curve, Curves, Drawing, Progress, Result, fixed, plotted
from interp import Transformer
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import at_least, within
from interp.linalg import LowRank

COMPONENTS = 8
"""Singular vectors that are reported."""
SHORTEST = 2
"""The fewest positions with offsets to compare."""
COLUMNS = ("query_token", "key_token")


@dataclass(frozen=True, eq=False, repr=False)
class QKCircuit(Result):
    """Which tokens a head attends to.

    Attributes:
        name: the head's name.
        keys: for queries, the keys with the highest scores.
        queries: for keys, the queries with the highest scores.
        key_bias: the part of each score in ``keys`` that is due to b_Q; NaN where a norm of queries
            follows it.
        query_bias: the same for each key in ``queries``.
        spread: standard deviation of scores by content over all pairs.
        offset: query position − key position of the scores by content; ``None`` where positions are
            not rotary.
        offsets: values of query position − key position; empty for cross-attention.
        by_offset: mean score at each offset, minus the mean over all offsets.
        singular: the largest singular vectors.
        first_mlp: whether the output of the first MLP is added to embeddings.
        provenance: the model that the numbers depend on.
    """

    name: str
    keys: TopTokens
    queries: TopTokens
    key_bias: Float[Tensor, "query k"]
    query_bias: Float[Tensor, " key"]
    spread: float
    offset: int | None
    offsets: Int[Tensor, " offset"]
    by_offset: Float[Tensor, " offset"]
    singular: SingularTokens
    first_mlp: bool
    provenance: Provenance

    def to_frame(self) -> pd.DataFrame:
        """One row per token and rank, in both directions.

        Columns:
            direction: ``keys`` of a query, or ``queries`` of a key.
            query_token, key_token: the two tokens.
            rank: from 1.
            score: in nats, minus its mean over all keys.
            control: the mean of these scores of the key over all queries.
            bias: the part of the control due to b_Q; NaN where a norm of queries follows it.
        """
        query, key = COLUMNS
        keys = self.keys.frame(query, key, "score").assign(
            direction="keys", bias=self.key_bias.flatten().numpy()
        )
        bias = self.query_bias.repeat_interleave(self.queries.top.shape[1])
        queries = self.queries.frame(key, query, "score").assign(
            direction="queries", bias=bias.numpy()
        )
        columns = ["direction", query, key, "rank", "score", "control", "bias"]
        return pd.concat([keys, queries], ignore_index=True)[columns]

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        return {"singular_vectors": self.to_singular_frame(), "offsets": self.to_offset_frame()}

    def to_offset_frame(self) -> pd.DataFrame:
        """One row per offset.

        Columns:
            offset: query position − key position.
            score: mean over all pairs of tokens, minus the mean over all offsets, in nats.
        """
        return pd.DataFrame({"offset": self.offsets.tolist(), "score": self.by_offset.numpy()})

    def to_singular_frame(self) -> pd.DataFrame:
        """One row per singular vector, end and rank: the tokens that queries and keys read there.

        Columns:
            component, singular_value: the singular vector, largest value first.
            end: + or -.
            rank: from 1.
            query_token, query_token_reading: a token, and its normalized embedding along the
                vector.
            key_token, key_token_reading: likewise.
        """
        return self.singular.frame(*COLUMNS)

    def drawing(self, direction: str = "keys") -> Drawing:
        """Heatmap of the scores by rank, with tokens in the cells.

        Args:
            direction: ``keys`` of each query, or ``queries`` of each key.

        Raises:
            InvalidInput: another direction.
        """
        if direction not in ("keys", "queries"):
            raise InvalidInput(f"direction={shorten(direction)} should be keys or queries.")
        at = "" if self.offset is None else f" at offset {self.offset}"
        of = self.keys if direction == "keys" else self.queries
        token, top = ("query", "key") if direction == "keys" else ("key", "query")
        return of.drawing(
            title=f"{self.name}: {direction} with the highest scores, by {token}{at}",
            token=token,
            top=top,
            unit="nats",
        )

    figure = plotted(drawing)

    def offset_drawing(self) -> Drawing:
        """The mean score by offset.

        Raises:
            InvalidInput: cross-attention has no offsets.
        """
        if not len(self.offsets):
            raise InvalidInput("Queries and keys of cross-attention have no offset in common.")
        line = Curve(self.name, self.offsets.tolist(), self.by_offset.tolist())
        return Curves(
            {"score": [line]},
            title=f"{self.name}: mean score by offset, over all pairs of tokens",
            axis="query position − key position",
            units=["nats"],
        )

    offset_figure = plotted(offset_drawing)

    def drawings(self) -> dict[str, Drawing]:
        """See :meth:`Result.drawings`."""
        by_offset = {"offsets": self.offset_drawing()} if len(self.offsets) else {}
        return {"keys": self.drawing("keys"), **by_offset, "queries": self.drawing("queries")}

    def summary(self, top: int = 5) -> str:
        """Content against offset, up to ``top`` queries with their keys, and singular vectors."""
        top = at_least(1, top, "top")
        return "\n".join(
            [
                self.headline(),
                "query → keys with the highest scores, in nats above the mean key",
                *self.keys.lines(top),
                "singular vectors: tokens of queries → tokens of keys",
                *self.singular.lines(),
            ]
        )

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        mlp = ", embeddings behind the first MLP" if self.first_mlp else ""
        at = "" if self.offset is None else f" at offset {self.offset}"
        return (
            f"QK circuit of {self.name} in {self.provenance.model}{mlp}: scores vary by "
            f"{fixed(self.spread, 2)} nats with content (sd){at}{self._offset_text()}"
        )

    def _offset_text(self) -> str:
        """By how much scores vary with the offset, and where they are highest."""
        if not len(self.offsets):
            return ""
        best = int(self.offsets[self.by_offset.argmax()])
        return f", {fixed(self.by_offset.std(), 2)} with the offset (highest at {best})"


@torch.no_grad()
def qk(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    layer: int,
    head: int,
    tokens: TokenList | None = None,
    *,
    offset: int = 1,
    positions: int = 32,
    top: int = 10,
    attention: AttentionName | None = None,
    first_mlp: bool = False,
    progress: Progress | None = None,
) -> QKCircuit:
    """Find which tokens a head attends to, from the weights alone.

    Gains and biases of norms and the biases of queries and keys are applied, with the divisor of
    the norm for the token alone.

    Args:
        model: a model of tokens.
        layer: the head's layer; negative values count from the end.
        head: the head's index (with grouped heads, that of the query head); negative values count
            from the end.
        tokens: ids, or texts of one token each, used both as queries and as keys. By default those
            with the highest scores in the whole circuit.
        offset: query position − key position of scores by content, with rotary positions.
        positions: number of first positions whose scores by offset are averaged, up to the model's
            context.
        top: number of tokens to report beside each; and number of ``tokens`` by default.
        attention: for an encoder–decoder, ``"encoder"``, ``"decoder"`` or ``"cross"``, whose
            queries are tokens of the decoder and keys tokens of the encoder.
        first_mlp: whether to add the output of the first MLP to embeddings.
        progress: called with ``(tokens searched, tokens in total)`` while the highest scores of
            the whole circuit are searched for; then with ``(positions done, positions)``.

    Raises:
        InvalidInput: no such layer or head, ``top`` below 1, fewer than two positions, an offset
            outside the context, or ``first_mlp`` where none comes before the head.
        InvalidTokens: ``tokens`` are not single tokens of the vocabulary.

    Examples:
        >>> analyses.qk(interp.load("induction-by-hand"), layer=0, head=0)
        QKCircuit(QK circuit of L0H0 in induction-by-hand: scores vary by 0.00 nats with content
        (sd), 17.68 with the offset (highest at 1))
    """
    check_finite_weights(model)
    positions, top = at_least(SHORTEST, positions, "positions"), at_least(1, top, "top")
    farthest = max(1, model.n_ctx - 1)
    offset = within(-farthest, farthest, offset, "offset")
    circuits = TokenCircuits.of(model, layer, head, attention, first_mlp=first_mlp)
    query, key = (Side.of_stack(model, stack) for stack in (circuits.query, circuits.key))
    q = circuits.rotated(circuits.queries(query.ids), 0)
    k = circuits.rotated(circuits.keys(key.ids), -offset)
    mean_key = k.mean(0)
    whole = LowRank(q, (k - mean_key).T)
    if tokens is None:
        best, attended = strongest(whole, top, progress)
        queries, keys = query.some(query.ids[best]), key.some(key.ids[attended])
    else:
        ids = given_tokens(tokens, query, key)
        queries, keys = query.some(ids), key.some(ids)

    def centred(ids: Tensor) -> Tensor:
        return circuits.rotated(circuits.keys(ids), -offset) - mean_key

    mean_query, chosen_q = q.mean(0), circuits.rotated(circuits.queries(queries.ids), 0)
    top_keys = top_tokens(
        LowRank(chosen_q, whole.right), queries, key, (mean_query @ whole.right)[None], top
    )
    chosen = centred(keys.ids)
    bias = circuits.query_bias()
    offsets, by_offset = _by_offset(circuits, query.ids, min(positions, model.n_ctx), progress)
    return QKCircuit(
        circuits.name,
        top_keys,
        top_tokens(LowRank(chosen, q.T), keys, query, (chosen @ mean_query)[:, None], top),
        (centred(top_keys.top.flatten().to(q.device)) @ bias).view(top_keys.top.shape).cpu(),
        (chosen @ bias).cpu(),
        float(((q.T @ q / len(q)) * (whole.right @ whole.right.T / len(k))).sum().sqrt()),
        offset if circuits.is_rotary else None,
        offsets,
        by_offset,
        _singular(circuits, offset, (query, key), top),
        first_mlp,
        Provenance.of(model),
    )


def _by_offset(
    circuits: TokenCircuits, ids: Int[Tensor, " token"], n: int, progress: Progress | None
) -> tuple[Int[Tensor, " offset"], Float[Tensor, " offset"]]:
    """The offsets that the head can attend to in ``n`` positions, and the mean score at each."""
    if circuits.query is not circuits.key:
        return torch.empty(0, dtype=torch.long), torch.empty(0)
    scores = circuits.mean_scores(ids, n, progress).cpu()
    visible = {
        by: diagonal[diagonal.isfinite()]
        for by in range(1 - n, n)
        for diagonal in [scores.diagonal(-by)]
    }
    means = {by: nats.mean() for by, nats in visible.items() if len(nats)}
    mean_scores = torch.stack(list(means.values()))
    return torch.tensor(list(means)), mean_scores - mean_scores.mean()


def _singular(
    circuits: TokenCircuits, offset: int, sides: tuple[Side, Side], k: int
) -> SingularTokens:
    """The singular vectors of W_Q R W_Kᵀ / scale, read through the embedding."""
    query, key = sides
    left, values, right = circuits.weights.Y(offset)[circuits.head].svd()
    of_queries = circuits.read_queries(query.ids, left[:, :COMPONENTS])
    of_keys = circuits.read_keys(key.ids, right[:COMPONENTS].T)
    scaled = values[:COMPONENTS] / circuits.weights.attn.divisor
    return singular_tokens(scaled, (query, of_queries), (key, of_keys), k)
