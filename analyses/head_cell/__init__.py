"""How does a head compute one cell? Its score, its weight and what it writes, step by step.

    s = Σ_i q_i k_i / scale        A = exp(s) / Σ_j exp(s_j)        A · v W_O

q and k are the query and the key as the score multiplies them: after their norms, if there are any,
and rotated to their positions. A soft-cap and biases of positions (ALiBi, relative) follow; the
softmax of the row of visible keys gives the weight of the key. The weight times its value, through
W_O, is what the head writes at the query for this key; the sum over keys is all that it writes
(Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits").

Tokens are those whose logits the written vector raises and lowers most, through the norms behind it
without their divisors: these only set the scale of all logits.
"""

from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.head_cell.computed import labels_of, parts_of, row_of, tokens_of
from analyses.methods.attribution import Head, PromptScores
from analyses.methods.finite import check_finite_weights, check_no_nan
from analyses.methods.heads import AttentionName
from analyses.results import (
    Bars,
    Curve,
    Curves,
    Drawing,
    Result,
    fixed,
    number,
    percent,
    rounding,
    signed,
)
from interp import Transformer, run
from interp.errors import InvalidInput
from interp.execution import Provenance
from interp.integers import as_integer, at_least
from interp.metrics import at_least_float32

TOP = 6
"""Tokens that are named on each side, unless ``top`` says otherwise."""
LOGITS = "logits × divisors of norms"
PARTS = ("content", "rotation", "soft-cap", "position bias")


@dataclass(frozen=True, eq=False, repr=False)
class HeadCell(Result):
    """One cell of a head's pattern, step by step.

    Scores are in nats of log attention, vectors in units of activations.

    Attributes:
        query_vector: the query as the score multiplies it: normed and rotated.
        key_vector: the key, likewise.
        terms: what the score is the sum of: the content, which is q·k / scale before q and k are
            rotated; what the rotation, the soft-cap and the bias of positions add.
        scores: the scores of all keys, with soft-cap and bias; −∞ where a key is masked.
        sink: the score of the sink, which belongs to no key; NaN if there is none.
        pattern: the softmax of the scores: the weight of each key.
        value_vector: the value of the key, clipped if the model clips it.
        written: A·v W_O: what the head writes at the query for this key.
        written_norms: the norm of the same vector for each key.
        stream_norm: the norm of the stream that the head reads at the query.
        logit_ids: ids of the tokens whose logits ``written`` raises most, then of those that it
            lowers most; none if no unembedding reads it by linear maps and norms alone.
        token_labels: their labels.
        token_logits: what is added to their logits, beyond the mean over all tokens, without the
            divisors of later norms.
        query: position of the query.
        key: position of the key.
        query_token: label of the query's token.
        key_tokens: labels of the tokens of all keys.
        divisor: the scale of the scores, √d_head in most models.
        name: the head.
        provenance: model and tokens that the numbers depend on.
    """

    query_vector: Float[Tensor, " d_head"]
    key_vector: Float[Tensor, " d_head"]
    terms: Float[Tensor, " part"]
    scores: Float[Tensor, " key"]
    sink: float
    pattern: Float[Tensor, " key"]
    value_vector: Float[Tensor, " d_head"]
    written: Float[Tensor, " d_model"]
    written_norms: Float[Tensor, " key"]
    stream_norm: float
    logit_ids: Int[Tensor, " token"]
    token_labels: tuple[str, ...]
    token_logits: Float[Tensor, " token"]
    query: int
    key: int
    query_token: str
    key_tokens: tuple[str, ...]
    divisor: float
    name: str
    provenance: Provenance

    @property
    def products(self) -> Float[Tensor, " d_head"]:
        """q_i k_i / scale, in nats; their sum is content and rotation."""
        return self.query_vector * self.key_vector / self.divisor

    @property
    def weight(self) -> float:
        """The attention to the key."""
        return float(self.pattern[self.key])

    @property
    def share(self) -> float:
        """The norm of what is written, as a share of that of the stream at the query."""
        return float(self.written_norms[self.key]) / (self.stream_norm or nan)

    @property
    def error(self) -> float:
        """The difference between the sum of the parts and the recorded score, in nats."""
        return abs(float(self.terms.sum() - self.scores[self.key]))

    def to_frame(self) -> pd.DataFrame:
        """One row per dimension of the head.

        Columns:
            dimension: its index.
            query_vector, key_vector, product: the query, the key, and q_i k_i / scale in nats.
            value_vector, weighted_value: the value, and the attention times the value.
        """
        columns = {
            "query_vector": self.query_vector,
            "key_vector": self.key_vector,
            "product": self.products,
            "value_vector": self.value_vector,
            "weighted_value": self.value_vector * self.weight,
        }
        numbers = {name: values.double().numpy() for name, values in columns.items()}
        return pd.DataFrame({"dimension": range(len(self.query_vector)), **numbers})

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        return {
            "parts": self.to_part_frame(),
            "keys": self.to_key_frame(),
            "tokens": self.to_token_frame(),
        }

    def to_part_frame(self) -> pd.DataFrame:
        """One row per part of the score: part, effect (in nats)."""
        return pd.DataFrame({"part": PARTS, "effect": self.terms.double().numpy()})

    def to_key_frame(self) -> pd.DataFrame:
        """One row per visible key.

        Columns:
            key, key_token: its position and its token.
            score, pattern: its score, in nats, and its weight.
            written_norm: the norm of what the head writes for it.
        """
        visible = self._visible
        numbers = {
            "score": self.scores,
            "pattern": self.pattern,
            "written_norm": self.written_norms,
        }
        return pd.DataFrame(
            {
                "key": visible,
                "key_token": [self.key_tokens[key] for key in visible],
                **{name: values[visible].double().numpy() for name, values in numbers.items()},
            }
        )

    def to_token_frame(self) -> pd.DataFrame:
        """One row per token: token, effect (added to its logit, beyond the mean of all tokens)."""
        effect = self.token_logits.double().numpy()
        return pd.DataFrame({"token": self.token_labels, "effect": effect})

    def drawing(self) -> Drawing:
        """See :meth:`drawings`: the products of query and key."""
        return self.drawings()["products"]

    def drawings(self) -> dict[str, Drawing]:
        """The steps: products, parts of the score, softmax, value, tokens."""
        drawings: dict[str, Drawing] = {
            "products": self._by_dimension(
                f"1. {self._where}: products of query and key, by dimension",
                {"q, k": [self._curve("q", self.query_vector), self._curve("k", self.key_vector)]},
                {
                    "q_i k_i / scale": [self._curve("product", self.products)],
                    "sum up to i": [self._curve("sum", self.products.cumsum(0))],
                },
            ),
            "score": self._score(),
            "row": self._row(),
            "value": self._by_dimension(
                f"4. {self._where}: the value of the key, and its weighted part",
                {
                    "v, A · v": [
                        self._curve("v", self.value_vector),
                        self._curve("A · v", self.value_vector * self.weight),
                    ]
                },
                {},
            ),
        }
        if self.token_labels:
            title = f"5. {self._where}: what is written, as tokens that it raises and lowers"
            drawings["tokens"] = _bars(title, self.token_labels, [*self.token_logits], LOGITS)
        return drawings

    def formulas(self) -> dict[str, str]:
        """The formula of each of the :meth:`drawings`, with its numbers."""
        dot, scale = self.products.sum() * self.divisor, number(self.divisor, 3)
        added = [
            f"{signed(value, 3)} ({name})"
            for name, value in zip(PARTS, self.terms.tolist(), strict=True)
            if abs(value) > self._noise
        ]
        score = fixed(self.scores[self.key], 3)
        return {
            "products": f"q·k = Σ_i q_i k_i = {fixed(dot, 3)}; divided by the scale {scale}: "
            f"{fixed(self.products.sum(), 3)} nats",
            "score": f"s = {' '.join(added) or '0'} = {score} nats",
            "row": f"A = exp(s) / Σ_j exp(s_j) = {fixed(self.weight, 3)} of key {self._key}, among "
            f"{len(self._visible)} visible keys{self._of_sink}",
            "value": f"A · v: {fixed(self.weight, 3)} times the value of key {self._key}",
            "tokens": f"A · v W_O has norm {fixed(self.written_norms[self.key], 3)}, "
            f"{percent(self.share)} of that of the stream at the query",
        }

    def summary(self) -> str:
        """The cell, and the formula of each step with its numbers."""
        up, down = self._tokens
        named = [f"raises {', '.join(up)}; lowers {', '.join(down)}"] if up else []
        return "\n".join([self.headline(), *self.formulas().values(), *named])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        ends = f"from query {self.query} {self.query_token} to key {self._key}"
        numbers = f"score {fixed(self.scores[self.key], 2)}, attention {fixed(self.weight, 2)}"
        return f"{self.name} {ends}: {numbers}, writes {percent(self.share)} of the stream's norm"

    # ---- labels and figures ------------------------------------------------------------------

    @property
    def _noise(self) -> float:
        return rounding(self.products, self.provenance.dtype)

    @property
    def _visible(self) -> list[int]:
        return (self.scores > -torch.inf).nonzero()[:, 0].tolist()

    @property
    def _where(self) -> str:
        return f"{self.name} from query {self.query} to key {self.key}"

    @property
    def _key(self) -> str:
        return f"{self.key} {self.key_tokens[self.key]}"

    @property
    def _of_sink(self) -> str:
        """What belongs to no key, if there is a sink."""
        rest = 1 - float(self.pattern.sum())
        return "" if isnan(self.sink) else f"; the sink takes {fixed(rest, 3)}"

    @property
    def _tokens(self) -> tuple[list[str], list[str]]:
        """The tokens that are raised, and those that are lowered."""
        half = len(self.token_labels) // 2
        return [*self.token_labels[:half]], [*self.token_labels[half:]]

    def _curve(self, name: str, values: Float[Tensor, " d_head"]) -> Curve:
        return Curve(name, range(len(values)), values.double().tolist())

    def _by_dimension(
        self, title: str, vectors: dict[str, list[Curve]], numbers: dict[str, list[Curve]]
    ) -> Curves:
        """Curves over the dimensions: vectors, and numbers in nats."""
        units = [*("activation" for _ in vectors), *("nats" for _ in numbers)]
        panels = {**vectors, **numbers}
        return Curves(panels, title=title, axis="dimension of the head", units=units)

    def _score(self) -> Bars:
        """The parts of the score that the model has, and their sum."""
        parts = {
            name: value
            for name, value in zip(PARTS, self.terms, strict=True)
            if name == PARTS[0] or abs(value) > self._noise
        }
        title = f"2. {self._where}: the score"
        return _bars(title, [*parts, "score"], [*parts.values(), self.terms.sum()])

    def _row(self) -> Curves:
        """Scores and weights of the visible keys."""
        visible = self._visible
        panels = {
            title: [Curve(title, visible, values[visible].double().tolist())]
            for title, values in (("score", self.scores), ("attention", self.pattern))
        }
        return Curves(
            panels,
            title=f"3. {self.name}: the scores of query {self.query}, and their softmax",
            axis="key",
            units=("nats", "weight"),
            marked=(self.key,),
        )


def _bars(
    title: str, labels: tuple[str, ...] | list[str], values: list[Tensor], unit: str = "nats"
) -> Bars:
    lengths = torch.stack(values).double()
    none = torch.full_like(lengths, torch.nan)
    return Bars(lengths, none, none, title=title, labels=labels, unit=unit)


@torch.no_grad()
def head_cell(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompt: Any,  # noqa: ANN401 - what model.check reads
    layer: int,
    head: int,
    *,
    query: int = -1,
    key: int | None = None,
    attention: AttentionName | None = None,
    top: int = TOP,
) -> HeadCell:
    """Compute one cell of a head's pattern step by step.

    Args:
        model: the model.
        prompt: one text, its token ids, an image or a batch of one row; ``(source, target)`` for an
            encoder–decoder.
        layer: the head's layer; negative values count from the end.
        head: the head's index (with grouped heads, that of the query head); negative values count
            from the end.
        query: the position of the query; negative ones count from the end.
        key: the position of the key; ``None`` for the one that the query attends to most.
        attention: for an encoder–decoder, ``"encoder"``, ``"decoder"`` or ``"cross"``.
        top: number of tokens that are raised most, and of those that are lowered most.

    Raises:
        InvalidInput: several prompts were given; there is no such layer, head, query or key; or the
            key is masked.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> analyses.head_cell(model, "abcab", layer=1, head=0, query=4)
        HeadCell(L1H0 from query 4 a to key 2 b: score 102.00, attention 1.00, writes 58 % of the
        stream's norm)
    """
    check_finite_weights(model)
    top = at_least(1, top, "top")
    cell_head = Head.of(model, layer, head, attention)
    batches = model.batches(prompt)
    if len(batches[0].ids) != 1:
        raise InvalidInput(f"A cell is of one prompt; got {len(batches[0].ids)} prompts.")
    kind = cell_head.kind
    n_queries, n_keys = (int(batches[at].is_real.sum()) for at in (kind.query, kind.key))
    query = _position(query, n_queries, "query")
    key = None if key is None else _position(key, n_keys, "key")
    attn, points = cell_head.attn, cell_head.attn.points
    reads = cell_head.place(cell_head.step.points.reads)
    places = [cell_head.place(point) for point in (points.q, points.k, points.v, points.scores)]
    record = [*places, cell_head.place(points.pattern), reads]
    cache = run(model, *batches, record=record, stop_at_layer=cell_head.stop_at_layer).cache
    check_no_nan(model, batches, *(cache[place] for place in places))
    scores = PromptScores(cell_head, cache, batches, 0)
    row = scores.pattern[query].masked_fill(~scores.visible[query], -1.0)
    key = int(row.argmax()) if key is None else key
    if not bool(scores.visible[query, key]):
        raise InvalidInput(f"Key {key} is masked for query {query}, so it has no score.")
    q, k = scores.ends(query, key)
    values = at_least_float32(attn.values(cache[places[2]])[0, scores.keys, cell_head.index])
    weights = row_of(cell_head, cache, scores, query, points.pattern)
    W_O = at_least_float32(attn.W_O[cell_head.index])
    by_key = (weights[:, None] * values) @ W_O
    stream = at_least_float32(cache[reads][0, scores.queries[query]])
    tokens = tokens_of(cell_head, model, weights[key] * values[key], attention, top)
    sinks = getattr(attn.softmax, "sinks", None)
    return HeadCell(
        query_vector=q.cpu(),
        key_vector=k.cpu(),
        terms=parts_of(cell_head, cache, scores, query, key).cpu(),
        scores=row_of(cell_head, cache, scores, query, points.scores)
        .masked_fill(~scores.visible[query], -torch.inf)
        .cpu(),
        sink=nan if sinks is None else float(sinks[cell_head.index]),
        pattern=weights.cpu(),
        value_vector=values[key].cpu(),
        written=by_key[key].cpu(),
        written_norms=by_key.norm(dim=-1).cpu(),
        stream_norm=float(stream.norm()),
        logit_ids=tokens[0],
        token_labels=tokens[1],
        token_logits=tokens[2],
        query=query,
        key=key,
        query_token=labels_of(model, kind.query, batches[kind.query])[query],
        key_tokens=labels_of(model, kind.key, batches[kind.key]),
        divisor=float(attn.divisor),
        name=cell_head.name,
        provenance=Provenance.of(model, *batches),
    )


def _position(value: object, n: int, name: str) -> int:
    """A position among ``n`` tokens.

    Raises:
        InvalidInput: it is none.
    """
    position = as_integer(value)
    if position is None or not -n <= position < n:
        raise InvalidInput(f"{name}={value!r} should be a position from {-n} to {n - 1}.")
    return position % n
