"""Points of a Transformer: every kind of tensor that can be read or replaced.

:class:`Point` lists them: ``for point in Point: print(point.describe())``. A :class:`Place` is a
point in one layer of one model (and in one stack or norm, if there are several). Hook names of
TransformerLens are accepted wherever a place is: ``"blocks.0.attn.hook_pattern"`` is
``("pattern", 0)``.
"""

import reprlib
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Literal

Region = Literal["entry", "block", "exit"]
"""Before the first block, in a block, or after the last one."""


@dataclass(frozen=True)
class PointSpec:
    """The properties of a point.

    Attributes:
        label: short name, as in ``cache["pattern", 0]``.
        axes: names of the tensor's axes.
        hook: TransformerLens name below ``blocks.{layer}.`` (or the whole name outside blocks).
        meaning: one line of documentation.
        region: the part of a stack that it is in.
        of_norm: whether it belongs to a block's norm, so that a place also has the norm's name.
        of_cross: whether it belongs to cross-attention.
        is_pattern: whether it is an attention pattern, whose rows sum to one (to less, with sinks).
    """

    label: str
    axes: tuple[str, ...]
    hook: str
    meaning: str
    region: Region = "block"
    of_norm: bool = False
    of_cross: bool = False
    is_pattern: bool = False


_STREAM = ("batch", "pos", "d_model")
_SCALE = ("batch", "pos", "one")
_HEADS = ("batch", "pos", "head", "d_head")
_HEAD_SCALE = ("batch", "pos", "head", "one")
_KV_HEAD_SCALE = ("batch", "pos", "kv_head", "one")
_KV_HEADS = ("batch", "pos", "kv_head", "d_head")
_SOURCE = ("batch", "source", "kv_head", "d_head")
_MATRIX = ("batch", "head", "query", "key")
_CROSS_MATRIX = ("batch", "head", "query", "source")
_RESULT = ("batch", "pos", "head", "d_model")
_NEURONS = ("batch", "pos", "d_mlp")
_EXPERTS = ("batch", "pos", "expert")
_EXPERT_NEURONS = ("batch", "pos", "expert", "d_mlp")
_FEATURES = ("batch", "pos", "feature")
_WRITTEN = ("batch", "pos", "written")


class Point(Enum):
    """A kind of tensor in the forward, in the order of the forward.

    Examples:
        >>> interp.Point.PATTERN.axes
        ('batch', 'head', 'query', 'key')
    """

    EMBED = PointSpec("embed", _STREAM, "hook_embed", "token embedding", "entry")
    POS_EMBED = PointSpec("pos_embed", _STREAM, "hook_pos_embed", "position embedding", "entry")
    TYPE_EMBED = PointSpec(
        "type_embed", _STREAM, "hook_token_type_embed", "token-type embedding", "entry"
    )
    EMBED_TOTAL = PointSpec(
        "embed_total",
        _STREAM,
        "embed.hook_total",
        "sum of the embeddings, before their norm",
        "entry",
    )
    EMBED_SCALE = PointSpec(
        "embed_scale", _SCALE, "embed.ln.hook_scale", "divisor of the embedding norm", "entry"
    )
    EMBED_NORMALIZED = PointSpec(
        "embed_normalized",
        _STREAM,
        "embed.ln.hook_normalized",
        "output of the embedding norm",
        "entry",
    )

    RESID_PRE = PointSpec("resid_pre", _STREAM, "hook_resid_pre", "the stream before a block")
    ATTN_IN = PointSpec(
        "attn_in", _STREAM, "hook_attn_in", "the stream as attention reads it, before its norm"
    )
    SCALE = PointSpec("scale", _SCALE, "hook_scale", "divisor of a norm", of_norm=True)
    NORMALIZED = PointSpec(
        "normalized", _STREAM, "hook_normalized", "output of a norm", of_norm=True
    )
    Q = PointSpec("q", _HEADS, "attn.hook_q", "queries")
    K = PointSpec("k", _KV_HEADS, "attn.hook_k", "keys (key/value heads)")
    V = PointSpec("v", _KV_HEADS, "attn.hook_v", "values (key/value heads)")
    Q_SCALE = PointSpec(
        "q_scale", _HEAD_SCALE, "attn.q_norm.hook_scale", "divisor of the norm of queries"
    )
    Q_NORMALIZED = PointSpec(
        "q_normalized", _HEADS, "attn.q_norm.hook_normalized", "queries, normalized or clipped"
    )
    K_SCALE = PointSpec(
        "k_scale", _KV_HEAD_SCALE, "attn.k_norm.hook_scale", "divisor of the norm of keys"
    )
    K_NORMALIZED = PointSpec(
        "k_normalized", _KV_HEADS, "attn.k_norm.hook_normalized", "keys, normalized or clipped"
    )
    ROT_Q = PointSpec("rot_q", _HEADS, "attn.hook_rot_q", "queries after rotary positions")
    ROT_K = PointSpec("rot_k", _KV_HEADS, "attn.hook_rot_k", "keys after rotary positions")
    SCORES = PointSpec("scores", _MATRIX, "attn.hook_attn_scores", "q·k / scale, -inf where masked")
    PATTERN = PointSpec(
        "pattern", _MATRIX, "attn.hook_pattern", "A, the softmax of scores", is_pattern=True
    )
    Z = PointSpec("z", _HEADS, "attn.hook_z", "A·v of each head")
    RESULT = PointSpec("result", _RESULT, "attn.hook_result", "z·W_O, the output of each head")
    ATTN_RAW = PointSpec("attn_raw", _STREAM, "hook_attn_raw", "output of attention, before a norm")
    ATTN_OUT = PointSpec("attn_out", _STREAM, "hook_attn_out", "what attention adds to the stream")
    RESID_MID = PointSpec("resid_mid", _STREAM, "hook_resid_mid", "the stream + attn_out")

    CROSS_ATTN_IN = PointSpec(
        "cross_attn_in",
        _STREAM,
        "hook_cross_attn_in",
        "the stream as cross-attention reads it for queries",
        of_cross=True,
    )
    CROSS_Q = PointSpec(
        "cross_q", _HEADS, "cross_attn.hook_q", "queries of cross-attention", of_cross=True
    )
    CROSS_K = PointSpec(
        "cross_k", _SOURCE, "cross_attn.hook_k", "keys, from the encoder's output", of_cross=True
    )
    CROSS_V = PointSpec(
        "cross_v", _SOURCE, "cross_attn.hook_v", "values, from the encoder's output", of_cross=True
    )
    CROSS_SCORES = PointSpec(
        "cross_scores",
        _CROSS_MATRIX,
        "cross_attn.hook_attn_scores",
        "scores over the source",
        of_cross=True,
    )
    CROSS_PATTERN = PointSpec(
        "cross_pattern",
        _CROSS_MATRIX,
        "cross_attn.hook_pattern",
        "attention over the source",
        of_cross=True,
        is_pattern=True,
    )
    CROSS_Z = PointSpec(
        "cross_z", _HEADS, "cross_attn.hook_z", "A·v of each cross-attention head", of_cross=True
    )
    CROSS_RESULT = PointSpec(
        "cross_result",
        _RESULT,
        "cross_attn.hook_result",
        "the output of each cross-attention head",
        of_cross=True,
    )
    CROSS_ATTN_OUT = PointSpec(
        "cross_attn_out",
        _STREAM,
        "hook_cross_attn_out",
        "what cross-attention adds to the stream",
        of_cross=True,
    )
    CROSS_RESID_MID = PointSpec(
        "cross_resid_mid",
        _STREAM,
        "hook_resid_mid_cross",
        "the stream + cross_attn_out",
        of_cross=True,
    )

    MLP_IN = PointSpec(
        "mlp_in", _STREAM, "hook_mlp_in", "the stream as the MLP reads it, before its norm"
    )
    GATE = PointSpec("gate", _NEURONS, "mlp.hook_gate", "x·W_gate, before the activation function")
    PRE = PointSpec("pre", _NEURONS, "mlp.hook_pre", "x·W_in, before the activation function")
    POST = PointSpec("post", _NEURONS, "mlp.hook_post", "activations of the neurons")
    ROUTER = PointSpec("router", _EXPERTS, "mlp.hook_router", "router logit of each expert")
    EXPERT_WEIGHTS = PointSpec(
        "expert_weights", _EXPERTS, "mlp.hook_expert_weights", "weight of each expert, or 0"
    )
    EXPERT_GATE = PointSpec(
        "expert_gate", _EXPERT_NEURONS, "mlp.hook_expert_gate", "x·W_gate of each expert"
    )
    EXPERT_PRE = PointSpec(
        "expert_pre", _EXPERT_NEURONS, "mlp.hook_expert_pre", "x·W_in of each expert"
    )
    EXPERT_POST = PointSpec(
        "expert_post",
        _EXPERT_NEURONS,
        "mlp.hook_expert_post",
        "activations of the neurons of each expert",
    )
    SHARED_WEIGHT = PointSpec(
        "shared_weight", _SCALE, "mlp.hook_shared_weight", "weight of the shared expert"
    )
    MLP_RAW = PointSpec("mlp_raw", _STREAM, "hook_mlp_raw", "output of the MLP, before a norm")
    MLP_OUT = PointSpec("mlp_out", _STREAM, "hook_mlp_out", "what the MLP adds to the stream")
    RESID_POST = PointSpec(
        "resid_post", _STREAM, "hook_resid_post", "the stream + the last sub-layer's output"
    )

    FEATURES = PointSpec(
        "features", _FEATURES, "hook_features", "activations of a dictionary's features"
    )
    FEATURES_ERROR = PointSpec(
        "features_error", _WRITTEN, "hook_features_error", "what a dictionary leaves out"
    )

    HEAD_SCALE = PointSpec(
        "head_scale",
        _SCALE,
        "mlm_head.ln.hook_scale",
        "divisor of the norm before a masked-language head",
        "exit",
    )
    HEAD_NORMALIZED = PointSpec(
        "head_normalized",
        _STREAM,
        "mlm_head.ln.hook_normalized",
        "output of the norm before a masked-language head",
        "exit",
    )
    HEAD_PRE = PointSpec(
        "head_pre", _STREAM, "mlm_head.hook_pre", "x·W + b of a masked-language head", "exit"
    )
    HEAD_POST = PointSpec(
        "head_post", _STREAM, "mlm_head.hook_post", "act(x·W + b) of a masked-language head", "exit"
    )
    FINAL_SCALE = PointSpec(
        "final_scale", _SCALE, "ln_final.hook_scale", "divisor of the final norm", "exit"
    )
    FINAL_NORMALIZED = PointSpec(
        "final_normalized", _STREAM, "ln_final.hook_normalized", "output of the final norm", "exit"
    )
    LOGITS = PointSpec(
        "logits", ("batch", "pos", "vocab"), "hook_logits", "one score per vocabulary token", "exit"
    )

    def __repr__(self) -> str:
        """``Point.PATTERN``."""
        return f"Point.{self.name}"

    @cached_property
    def label(self) -> str:
        """The short name, as in ``cache["pattern", 0]``."""
        return self.value.label

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of the tensor."""
        return self.value.axes

    @cached_property
    def in_block(self) -> bool:
        """Whether the point belongs to a layer (entry and exit points do not)."""
        return self.value.region == "block"

    @cached_property
    def is_matrix(self) -> bool:
        """Whether it is an attention matrix: scores or pattern, over queries and keys."""
        return "query" in self.value.axes

    @property
    def is_head_scale(self) -> bool:
        """Whether it is the divisor of a norm of queries or keys: one per head, or one for all."""
        return self.value.axes in (_HEAD_SCALE, _KV_HEAD_SCALE)

    def describe(self) -> str:
        """One line: label, axes, meaning, TransformerLens name."""
        axes = " ".join(self.axes)
        return f"{self.label:<16} [{axes}]  {self.value.meaning}  ({self.value.hook})"


_TAKES = {
    "position embeddings": (Point.POS_EMBED,),
    "token types": (Point.TYPE_EMBED,),
    "a norm of the embedding": (Point.EMBED_TOTAL, Point.EMBED_SCALE, Point.EMBED_NORMALIZED),
    "norms in the blocks": (Point.SCALE, Point.NORMALIZED),
    "norms of queries and keys": (
        *(Point.Q_SCALE, Point.Q_NORMALIZED),
        *(Point.K_SCALE, Point.K_NORMALIZED),
    ),
    "rotary positions": (Point.ROT_Q, Point.ROT_K),
    "a norm after attention": (Point.ATTN_RAW,),
    "a norm after the MLP": (Point.MLP_RAW,),
    "cross-attention": tuple(point for point in Point if point.value.of_cross),
    "an MLP after cross-attention": (Point.CROSS_RESID_MID,),
    "an MLP after attention, not beside it": (Point.RESID_MID,),
    "an MLP": (Point.MLP_IN, Point.MLP_OUT),
    "an MLP without experts, or a shared expert": (Point.PRE, Point.POST),
    "a gated MLP without experts, or a shared expert": (Point.GATE,),
    "a shared expert": (Point.SHARED_WEIGHT,),
    "a mixture of experts": (
        *(Point.ROUTER, Point.EXPERT_WEIGHTS),
        *(Point.EXPERT_GATE, Point.EXPERT_PRE, Point.EXPERT_POST),
    ),
    "a dictionary (interp.with_dictionaries)": (Point.FEATURES, Point.FEATURES_ERROR),
    "the head of a masked language model": (Point.HEAD_PRE, Point.HEAD_POST),
    "a norm before the head of a masked language model": (
        Point.HEAD_SCALE,
        Point.HEAD_NORMALIZED,
    ),
    "a norm after the last block": (Point.FINAL_SCALE, Point.FINAL_NORMALIZED),
    "an unembedding": (Point.LOGITS,),
}
"""The points of parts that not every architecture has, by a description of the part."""
PART_OF = {point: part for part, points in _TAKES.items() for point in points}
"""For a point that not every architecture has: a description of the part that it needs."""
STACKS = ("encoder", "decoder")
TOKEN_AXES = ("pos", "query", "key", "source")
"""Axes that count tokens; ``source`` counts those of the encoder."""


@dataclass(frozen=True)
class Place:
    """One point of one model, e.g. the pattern of layer 0.

    Attributes:
        point: the kind of tensor.
        layer: index of the block, from 0; ``None`` outside blocks.
        norm: ``"ln1"``, ``"ln2"``, … for the points of a block's norms; for the points of a
            dictionary, the point that it writes: ``"mlp_out"``.
        stack: ``"encoder"`` or ``"decoder"``; ``None`` in a model with a single stack.
    """

    point: Point
    layer: int | None = None
    norm: str | None = None
    stack: str | None = None

    def __repr__(self) -> str:
        """As written in ``cache[...]``: ``("pattern", 0)``, ``("scale", 4, "ln1", "encoder")``."""
        parts = [part for part in self.to_json() if part is not None]
        name = ", ".join(f'"{part}"' if isinstance(part, str) else str(part) for part in parts)
        return name if len(parts) == 1 else f"({name})"

    def to_json(self) -> list[str | int | None]:
        """``[label, layer, norm, stack]``."""
        return [self.point.label, self.layer, self.norm, self.stack]

    @classmethod
    def from_json(cls, values: object) -> "Place":
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: ``values`` was not written by :meth:`to_json`.
        """
        if isinstance(values, list) and len(values) == 4:  # noqa: PLR2004 - as written
            label, layer, norm, stack = values
            point = next((point for point in Point if point.label == label), None)
            is_layer = layer is None or type(layer) is int
            if point is not None and is_layer and _are_names(norm, stack):
                return cls(point, layer, norm, stack)
        raise ValueError(f"{reprlib.repr(values)} is not a place")


def _are_names(*values: object) -> bool:
    return all(value is None or isinstance(value, str) for value in values)


PlaceLike = Place | Point | str | tuple[object, ...]
"""Anything that refers to a place: ``("pattern", 0)``, a hook name, a :class:`Place`."""
