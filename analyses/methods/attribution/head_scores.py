"""The scores of one head on one prompt, and queries and keys as sums of what writes them.

    q = R_i L_q(x_i W_Q + b_Q) / scale        k = R_j L_k(x_j W_K + b_K)        s = q·k

R rotates by the position (the identity without rotary positions). L is the norm of queries or keys
with its divisor fixed at the value from the run, which makes it linear; where a model clips, what
clipping adds is a term of its own. x is taken apart by :class:`StreamWalk` of
:mod:`analyses.methods.attribution.stream_terms`, so that q and k are sums of one vector for each
part, and s is the sum of the products of all pairs of vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.methods.attribution.feature_outputs import (
    Outputs,
    WrittenFeatures,
    places_of_features,
    written_features,
)
from analyses.methods.attribution.feature_terms import FeatureWalk, feature_walk
from analyses.methods.attribution.sparse_vectors import SparseVectors
from analyses.methods.attribution.stream_terms import (
    Part,
    ReadTerms,
    Split,
    StreamWalk,
    places_of_stream,
)
from analyses.methods.circuits import written_through
from analyses.methods.heads import AttentionName, Attentions, attentions_of
from interp.cache import Cache
from interp.errors import InvalidInput
from interp.integers import within
from interp.metrics import at_least_float32
from interp.model import (
    Attention,
    Batch,
    ClippedNorm,
    Network,
    Norm,
    ScaledNorm,
    Stack,
    Step,
    untouched,
)
from interp.points import Place, Point

Vectors = dict[Part, Float[Tensor, "_ d_head"]]
"""The part of queries or keys that each part of the model gives."""


@dataclass(frozen=True, eq=False)
class Side:
    """How the queries, or the keys, of a head are computed.

    Attributes:
        letter: ``Q`` or ``K``.
        stack: the stack that they are computed from.
        from_end: whether they read the stack's output, as keys of cross-attention do.
        point: the point of what is projected.
        scale: the point of the norm's divisor.
        norm: the norm of queries or keys.
        has_bias: whether the projection has a bias.
        index: index of the head among them.
    """

    letter: str
    stack: Stack
    from_end: bool
    point: Point
    scale: Point
    norm: Norm
    has_bias: bool
    index: int

    @property
    def scaled(self) -> Norm:
        """The norm without clipping."""
        return self.norm.norm if isinstance(self.norm, ClippedNorm) else self.norm

    def linear(self, x: Float[Tensor, "row head d_head"]) -> Float[Tensor, "row d_head"]:
        """Of projected vectors, what the norm makes of them without divisor and bias."""
        return written_through(self.norm, x)[:, self.index]

    def norm_bias(self, like: Float[Tensor, "head d_head"]) -> Float[Tensor, " d_head"] | None:
        """The bias of the norm, if it has one."""
        bias = self.scaled.bias if isinstance(self.scaled, ScaledNorm) else None
        return None if bias is None else bias.to(like).expand_as(like)[self.index]

    def clipped(self, x: Float[Tensor, "row head d_head"]) -> Float[Tensor, "row d_head"] | None:
        """What clipping adds to projected vectors; ``None`` if there is no clipping."""
        if not isinstance(self.norm, ClippedNorm):
            return None
        y = self.scaled.fused(x[None])[0]
        return at_least_float32(self.norm.clip(y) - y)[:, self.index]


@dataclass(frozen=True, eq=False)
class Head:
    """One head of a model.

    Attributes:
        model: the model.
        kind: which attention.
        layer: the head's layer.
        index: its index in the layer.
        step: the residual step of its attention.
        outputs: the dictionaries whose features are parts, by the place that they write.
    """

    model: Network
    kind: Attentions
    layer: int
    index: int
    step: Step
    outputs: Outputs = field(default_factory=dict[Place, WrittenFeatures])

    @classmethod
    def of(cls, model: Network, layer: int, head: int, name: AttentionName | None) -> "Head":
        """A head; negative indices count from the end.

        Raises:
            InvalidInput: there is no such layer or head, or ``name`` does not match the stacks.
        """
        kind = attentions_of(model, name)
        n_layers = len(kind.layers)
        layer = within(-n_layers, n_layers - 1, layer, "layer") % n_layers
        attn = kind.layers[layer]
        head = within(-attn.n_heads, attn.n_heads - 1, head, "head") % attn.n_heads
        steps = model.stacks[kind.query].block(layer).steps
        return cls(model, kind, layer, head, next(step for step in steps if step.f is attn))

    def with_features(self) -> "Head":
        """The same head, with the features of the model's dictionaries before it as parts.

        Raises:
            InvalidInput: the model has no dictionary before it, or two of one sub-layer.
        """
        last = self.query_stack.name_in_places
        outputs = {
            place: output
            for place, output in written_features(self.model).items()
            if self._may_read(place)
        }
        if not outputs:
            raise InvalidInput(
                f'by="feature" takes dictionaries of what {self.name} reads, which is written '
                f"before layer {self.layer}{f' of the {last}' if last else ''}; the model has none "
                "there."
            )
        return replace(self, outputs=outputs)

    def _may_read(self, place: Place) -> bool:
        """Whether a place is before the head, so that a run that stops after it records it."""
        if place.stack == self.query_stack.name_in_places:
            return self._is_before(place)
        return self.kind.is_cross and place.stack == self.key_stack.name_in_places

    def _is_before(self, place: Place) -> bool:
        order = list(self.model.layout)
        return order.index(place) < order.index(self.place(self.attn.points.q))

    @property
    def name(self) -> str:
        """The name, ``L1H4``, or ``cross.L1H4`` in an encoder–decoder."""
        return self.kind.head_name(self.layer, self.index)

    @property
    def attn(self) -> Attention:
        """The attention of its layer."""
        return self.kind.layers[self.layer]

    @property
    def kv_head(self) -> int:
        """The index of the key/value head that it uses."""
        return self.attn.kv_head(self.index)

    @property
    def query_stack(self) -> Stack:
        """The stack that queries are computed from."""
        return self.model.stacks[self.kind.query]

    @property
    def key_stack(self) -> Stack:
        """The stack that keys are computed from."""
        return self.model.stacks[self.kind.key]

    @property
    def stop_at_layer(self) -> int:
        """The layer of the last stack before which a run may end."""
        return self.layer + 1 if self.kind.query == len(self.model.stacks) - 1 else 0

    @property
    def places_of_scores(self) -> list[Place]:
        """The places that a run must record for the scores."""
        return [self.place(self.attn.points.q), self.place(self.attn.points.k)]

    @property
    def places(self) -> list[Place]:
        """The places that a run must record for the terms of the scores."""
        streams = places_of_stream(self.model, self.query_stack, self.layer + 1)
        if self.kind.is_cross:
            streams += places_of_stream(self.model, self.key_stack)
        norms = {Point.Q_SCALE, Point.K_SCALE}
        scales = [place for place in self.model.layout if place == self.place(place.point)]
        features = places_of_features(self.outputs)
        scales = [place for place in scales if place.point in norms]
        return list(dict.fromkeys([*streams, *self.places_of_scores, *scales, *features]))

    @property
    def query_side(self) -> Side:
        """How its queries are computed."""
        attn = self.attn
        return Side(
            "Q",
            self.query_stack,
            from_end=False,
            point=attn.points.q,
            scale=Point.Q_SCALE,
            norm=attn.q_norm,
            has_bias=attn.b_q is not None,
            index=self.index,
        )

    @property
    def key_side(self) -> Side:
        """How its keys are computed."""
        attn = self.attn
        return Side(
            "K",
            self.key_stack,
            from_end=self.kind.is_cross,
            point=attn.points.k,
            scale=Point.K_SCALE,
            norm=attn.k_norm,
            has_bias=attn.b_k is not None,
            index=self.kv_head,
        )

    def place(self, point: Point) -> Place:
        """A place of its attention."""
        return Place(point, self.layer, stack=self.query_stack.name_in_places)


class PromptScores:
    """The scores of a head on one prompt, without padding.

    Attributes:
        head: the head.
        scores: q·k / scale, before any soft-cap, without biases of positions and without the mask.
        bias: what relative biases or ALiBi add to the scores.
        visible: which keys each query may attend to.
        pattern: the attention of the head.
    """

    scores: Float[Tensor, "query key"]
    bias: Float[Tensor, "query key"]
    visible: Bool[Tensor, "query key"]
    pattern: Float[Tensor, "query key"]

    def __init__(self, head: Head, cache: Cache, batches: Sequence[Batch], row: int) -> None:
        self.head, self.cache, self.row = head, cache, row
        only_row = torch.tensor([row], device=batches[-1].ids.device)
        self._context = head.model.contexts([batch.rows(only_row) for batch in batches])[
            head.kind.query
        ]
        self.queries, self.keys = (
            batches[stack].is_real[row].nonzero()[:, 0]
            for stack in (head.kind.query, head.kind.key)
        )
        self._read(*(cache[place][only_row] for place in head.places_of_scores))

    def _read(
        self, q: Float[Tensor, "1 query head d"], k: Float[Tensor, "1 key kv_head d"]
    ) -> None:
        attn, index, context = self.head.attn, self.head.index, self._context
        q, k = attn.with_positions(q, k, context)
        full = attn.scores(q, k, context)
        pattern = attn.pattern(full, context)[0, index]
        query, key = (at_least_float32(x[0]) for x in (q[:, :, index], k[:, :, self.head.kv_head]))
        self._shape = full.shape[2:]
        self._query, self._key = query[self.queries], key[self.keys]
        self.scores = self._of_tokens(query @ key.mT / attn.divisor)
        self.pattern = self._of_tokens(at_least_float32(pattern))
        bias, visible = attn.positions.bias(context), attn.masking.visible(context)
        none = torch.zeros_like(full[0, 0])
        self.bias = self._of_tokens(none if bias is None else bias[0, index]).to(self.scores.dtype)
        self.visible = self._of_tokens(none == 0 if visible is None else visible[0, 0])

    def _of_tokens(self, whole: Tensor) -> Tensor:
        """The rows and columns of tokens, without padding."""
        return whole.expand(self._shape)[self.queries][:, self.keys]

    def ends(
        self, query: int, key: int
    ) -> tuple[Float[Tensor, " d_head"], Float[Tensor, " d_head"]]:
        """A query and a key as their score multiplies them: normed, clipped and rotated."""
        return self._query[query], self._key[key]

    def pattern_of(
        self, scores: Float[Tensor, "cell key"], queries: Int[Tensor, " cell"]
    ) -> Float[Tensor, "cell key"]:
        """The attention that some queries would have with other scores."""
        attn = self.head.attn
        full = self.masked(scores, queries).to(self.cache[self.head.places_of_scores[0]])
        rows = full.expand(1, attn.n_heads, -1, -1).contiguous()
        return at_least_float32(attn.softmax(rows)[0, self.head.index])

    def masked(
        self, scores: Float[Tensor, "cell key"], queries: Int[Tensor, " cell"]
    ) -> Float[Tensor, "cell key"]:
        """Scores of some queries after any soft-cap, with biases of positions and the mask."""
        capped = self.head.attn.soft_cap(scores) + self.bias[queries]
        return capped.masked_fill(~self.visible[queries], -torch.inf)

    def query_vectors(self, queries: Int[Tensor, " cell"], split: Split | None = None) -> Vectors:
        """The parts of the queries at some positions, divided by the scale of the scores.

        Args:
            queries: the positions.
            split: neurons that are parts of their own.
        """
        side = self.head.query_side
        rotation = self._rotation(side)[queries] / self.head.attn.divisor
        return self._vectors(side, self.queries[queries], rotation, split)

    def key_vectors(self, split: Split | None = None) -> Vectors:
        """The parts of the keys at all positions; see :meth:`query_vectors`."""
        side = self.head.key_side
        return self._vectors(side, self.keys, self._rotation(side), split)

    def sparse_vectors(self, letter: str, positions: Int[Tensor, " cell"]) -> SparseVectors:
        """The parts of queries or keys at some positions, features of dictionaries included.

        Args:
            letter: ``Q`` for queries, which are divided by the scale of the scores, or ``K``.
            positions: the positions.
        """
        is_query = letter == "Q"
        side = self.head.query_side if is_query else self.head.key_side
        columns = (self.queries if is_query else self.keys)[positions]
        rotation = self._rotation(side)[positions]
        rotation = rotation / self.head.attn.divisor if is_query else rotation
        walk = self._walk(side, columns)
        if not isinstance(walk, FeatureWalk):
            return SparseVectors.of(self._terms(side, columns, walk.terms()), (), rotation)
        beside, active = walk.terms_beside_features()
        return SparseVectors.of(self._terms(side, columns, beside), active, rotation)

    def directions_read(self, letter: str, query: int, key: int) -> Float[Tensor, " d_model"]:
        """What the normed stream at the query, or at the key, is multiplied by in their score.

        The other end, and the norm's divisor of queries or keys, are as in the run.

        Args:
            letter: ``Q`` for the stream at the query, ``K`` for that at the key.
            query: position of the query.
            key: position of the key.
        """
        is_query = letter == "Q"
        side = self.head.query_side if is_query else self.head.key_side
        at, other = (query, self._key[key]) if is_query else (key, self._query[query])
        columns = (self.queries if is_query else self.keys)[at : at + 1]
        read = self._rotation(side)[at] @ other * self._factor(side, columns)
        W = at_least_float32(self.head.attn.projection(side.point)[0])
        return side.linear(W.transpose(0, 1)) @ read / self.head.attn.divisor

    def _rotation(self, side: Side) -> Float[Tensor, "pos unit d_head"]:
        """The unit vectors of d_head, rotated to the position of each token."""
        attn, is_query = self.head.attn, side.letter == "Q"
        unit = torch.eye(attn.d_head).to(self.scores)
        units = unit.expand(1, self._shape[0 if is_query else 1], -1, -1)
        rotate = attn.positions.query if is_query else attn.positions.key
        return rotate(units, self._context, untouched)[0, self.queries if is_query else self.keys]

    def _factor(self, side: Side, columns: Int[Tensor, " cell"]) -> Float[Tensor, " cell"]:
        """1 / the divisor of the norm of queries or keys at some columns; 1 if there is none."""
        if not isinstance(side.scaled, ScaledNorm):
            return torch.ones(len(columns)).to(self.scores)
        scale = at_least_float32(self.cache[self.head.place(side.scale)][self.row, columns])
        return 1 / scale[:, min(side.index, scale.shape[1] - 1), 0]

    def _vectors(
        self,
        side: Side,
        columns: Int[Tensor, " cell"],
        rotation: Float[Tensor, "cell d_head d_rotated"],
        split: Split | None,
    ) -> Vectors:
        """The terms of queries or keys, rotated."""
        terms = self._terms(side, columns, self._walk(side, columns).terms(split))
        return {part: (read[:, None] @ rotation)[:, 0] for part, read in terms.items()}

    def neuron_terms(
        self, queries: Int[Tensor, " cell"], weights: Float[Tensor, "cell key"]
    ) -> tuple[dict[str, Float[Tensor, " neuron"]], ...]:
        """What each neuron adds to scores at the query and, in a second mapping, at the keys.

        Args:
            queries: the positions of queries.
            weights: the weight of the score of each key.

        Returns:
            For each MLP, the sum over cells of what its neurons add to the weighted scores.
        """
        both: list[dict[str, Tensor]] = []
        for side, at, other in (
            (self.head.query_side, queries, weights @ self._key),
            (self.head.key_side, torch.arange(len(self.keys)), weights.mT @ self._query[queries]),
        ):
            columns = (self.queries if side.letter == "Q" else self.keys)[at.to(self.keys.device)]
            rotation = self._rotation(side)[at] / self.head.attn.divisor
            walk = self._walk(side, columns)
            both.append(walk.neurons((rotation @ other[:, :, None])[:, :, 0]))
        return tuple(both)

    def _walk(self, side: Side, columns: Int[Tensor, " cell"]) -> StreamWalk:
        """Queries or keys of the head at some columns, pulled back to the embeddings."""
        head, rows = self.head, torch.full_like(columns, self.row)
        W = at_least_float32(head.attn.projection(side.point)[0])
        directions, factor = side.linear(W.transpose(0, 1)).mT[None], self._factor(side, columns)
        walk = (feature_walk(head.outputs) if head.outputs else StreamWalk)(
            side.stack, self.cache, rows, columns
        )
        if side.from_end:
            return walk.from_end(directions, factor)
        return walk.from_step(head.layer, head.step, directions, factor)

    def _terms(self, side: Side, columns: Int[Tensor, " cell"], terms: ReadTerms) -> ReadTerms:
        """The terms of queries or keys at some columns before they are rotated, constants last.

        Args:
            side: queries or keys.
            columns: the columns.
            terms: those of the stream.
        """
        head, rows = self.head, torch.full_like(columns, self.row)
        b = at_least_float32(head.attn.projection(side.point)[1])
        factor = self._factor(side, columns)
        constants = {
            f"b_{side.letter}": side.linear(b[None]) * factor[:, None] if side.has_bias else None,
            f"{side.letter.lower()}_norm.bias": side.norm_bias(b),
            f"{side.letter.lower()}_clip": side.clipped(
                self.cache[head.place(side.point)][rows, columns]
            ),
        }
        name = StreamWalk(side.stack, self.cache, rows, columns).name(head.layer, head.attn)
        for suffix, constant in constants.items():
            if constant is not None:
                part = Part(f"{name}.{suffix}", "bias", head.layer)
                terms[part] = constant.expand(len(columns), -1)
        return terms
