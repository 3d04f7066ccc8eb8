"""Where in a Transformer can a tensor be read or replaced?

:class:`Point` is the list of them: ``for point in Point: print(point.describe())``. A
:class:`Place` is a point in one layer of one model (and, where a model has two stacks or a block
several norms, which one). The names in use since TransformerLens are understood everywhere:
``"blocks.0.attn.hook_pattern"`` is ``("pattern", 0)``.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class PointSpec(NamedTuple):
    """What the documentation of one point says."""

    label: str
    axes: tuple[str, ...]
    hook: str
    meaning: str


_STREAM = ("batch", "pos", "d_model")
_HEADS = ("batch", "pos", "head", "d_head")
_KEYS = ("batch", "key", "head", "d_head")
_SQUARE = ("batch", "head", "query", "key")
_WRITES = ("batch", "pos", "head", "d_model")
_NEURONS = ("batch", "pos", "d_mlp")
_SCALE = ("batch", "pos", "one")
_HEAD_SCALE = ("batch", "pos", "head", "one")
_EXPERTS = ("batch", "pos", "expert")
_EACH = ("batch", "pos", "expert", "d_mlp")


class Point(Enum):
    """A kind of place: its label, axes, field name and meaning.

    The order is the order of the forward. ``hook`` is the TransformerLens name below
    ``blocks.{layer}.`` (or at the top for the entry and the exit).
    """

    EMBED = PointSpec("embed", _STREAM, "hook_embed", "token embedding")
    POS_EMBED = PointSpec("pos_embed", _STREAM, "hook_pos_embed", "position embedding added to it")
    TYPE_EMBED = PointSpec(
        "type_embed", _STREAM, "hook_token_type_embed", "embedding of the token's type added to it"
    )
    EMBED_TOTAL = PointSpec(
        "embed_total", _STREAM, "embed.hook_total", "their sum, which the embedding's norm reads"
    )
    EMBED_SCALE = PointSpec(
        "embed_scale", _SCALE, "embed.ln.hook_scale", "divisor of the embedding's norm"
    )
    EMBED_NORMALIZED = PointSpec(
        "embed_normalized", _STREAM, "embed.ln.hook_normalized", "the embedding's norm's output"
    )

    RESID_PRE = PointSpec("resid_pre", _STREAM, "hook_resid_pre", "the stream entering a block")
    ATTN_IN = PointSpec("attn_in", _STREAM, "hook_attn_in", "what attention reads, before its norm")
    SCALE = PointSpec("scale", _SCALE, "hook_scale", "what a norm divides by")
    NORMALIZED = PointSpec("normalized", _STREAM, "hook_normalized", "what a norm gives out")
    Q = PointSpec("q", _HEADS, "attn.hook_q", "queries")
    K = PointSpec("k", _HEADS, "attn.hook_k", "keys (key/value heads)")
    V = PointSpec("v", _HEADS, "attn.hook_v", "values (key/value heads)")
    Q_SCALE = PointSpec(
        "q_scale", _HEAD_SCALE, "attn.q_norm.hook_scale", "divisor of queries' norm"
    )
    Q_NORMALIZED = PointSpec(
        "q_normalized", _HEADS, "attn.q_norm.hook_normalized", "queries after their norm"
    )
    K_SCALE = PointSpec("k_scale", _HEAD_SCALE, "attn.k_norm.hook_scale", "divisor of keys' norm")
    K_NORMALIZED = PointSpec(
        "k_normalized", _HEADS, "attn.k_norm.hook_normalized", "keys after their norm"
    )
    ROT_Q = PointSpec("rot_q", _HEADS, "attn.hook_rot_q", "queries after rotary positions")
    ROT_K = PointSpec("rot_k", _HEADS, "attn.hook_rot_k", "keys after rotary positions")
    SCORES = PointSpec("scores", _SQUARE, "attn.hook_attn_scores", "q·k / scale, -inf where masked")
    PATTERN = PointSpec("pattern", _SQUARE, "attn.hook_pattern", "A, the softmax of scores")
    Z = PointSpec("z", _HEADS, "attn.hook_z", "A·v per head")
    RESULT = PointSpec("result", _WRITES, "attn.hook_result", "z·W_O, what each head writes")
    ATTN_RAW = PointSpec(
        "attn_raw", _STREAM, "hook_attn_raw", "what attention gives to the norm of what it writes"
    )
    ATTN_OUT = PointSpec("attn_out", _STREAM, "hook_attn_out", "what attention writes")
    RESID_MID = PointSpec("resid_mid", _STREAM, "hook_resid_mid", "the stream + attn_out")

    CROSS_ATTN_IN = PointSpec(
        "cross_attn_in", _STREAM, "hook_cross_attn_in", "what cross-attention reads for its queries"
    )
    CROSS_Q = PointSpec("cross_q", _HEADS, "cross_attn.hook_q", "queries of cross-attention")
    CROSS_K = PointSpec("cross_k", _KEYS, "cross_attn.hook_k", "keys, from the encoder")
    CROSS_V = PointSpec("cross_v", _KEYS, "cross_attn.hook_v", "values, from the encoder")
    CROSS_SCORES = PointSpec(
        "cross_scores", _SQUARE, "cross_attn.hook_attn_scores", "scores over the source"
    )
    CROSS_PATTERN = PointSpec(
        "cross_pattern", _SQUARE, "cross_attn.hook_pattern", "attention over the source"
    )
    CROSS_Z = PointSpec("cross_z", _HEADS, "cross_attn.hook_z", "A·v per head of cross-attention")
    CROSS_RESULT = PointSpec(
        "cross_result", _WRITES, "cross_attn.hook_result", "what each cross head writes"
    )
    CROSS_ATTN_OUT = PointSpec(
        "cross_attn_out", _STREAM, "hook_cross_attn_out", "what cross-attention writes"
    )
    CROSS_RESID_MID = PointSpec(
        "cross_resid_mid", _STREAM, "hook_resid_mid_cross", "the stream + cross_attn_out"
    )

    MLP_IN = PointSpec("mlp_in", _STREAM, "hook_mlp_in", "what the MLP reads, before its norm")
    GATE = PointSpec("gate", _NEURONS, "mlp.hook_gate", "x·W_gate before its activation")
    PRE = PointSpec("pre", _NEURONS, "mlp.hook_pre", "x·W_in before the activation")
    POST = PointSpec("post", _NEURONS, "mlp.hook_post", "the neurons' activations")
    ROUTER = PointSpec("router", _EXPERTS, "mlp.hook_router", "logits of each expert")
    EXPERT_WEIGHTS = PointSpec(
        "expert_weights", _EXPERTS, "mlp.hook_expert_weights", "of each expert, 0 if not chosen"
    )
    EXPERT_GATE = PointSpec("expert_gate", _EACH, "mlp.hook_expert_gate", "x·W_gate of each expert")
    EXPERT_PRE = PointSpec("expert_pre", _EACH, "mlp.hook_expert_pre", "x·W_in of each expert")
    EXPERT_POST = PointSpec(
        "expert_post", _EACH, "mlp.hook_expert_post", "the neurons' activations in each expert"
    )
    MLP_RAW = PointSpec(
        "mlp_raw", _STREAM, "hook_mlp_raw", "what the MLP gives to the norm of what it writes"
    )
    MLP_OUT = PointSpec("mlp_out", _STREAM, "hook_mlp_out", "what the MLP writes")
    RESID_POST = PointSpec("resid_post", _STREAM, "hook_resid_post", "the stream + the last write")

    HEAD_PRE = PointSpec(
        "head_pre", _STREAM, "mlm_head.hook_pre", "x·W + b of a masked model's head"
    )
    HEAD_POST = PointSpec("head_post", _STREAM, "mlm_head.hook_post", "the same, activated")
    FINAL_SCALE = PointSpec("final_scale", _SCALE, "ln_final.hook_scale", "final norm's divisor")
    FINAL_NORMALIZED = PointSpec(
        "final_normalized", _STREAM, "ln_final.hook_normalized", "the final norm's output"
    )
    LOGITS = PointSpec("logits", ("batch", "pos", "vocab"), "hook_logits", "one score a token")

    @property
    def label(self) -> str:
        """The short name, as in ``cache["pattern", 0]``."""
        return self.value.label

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of the tensor found here."""
        return self.value.axes

    @property
    def in_block(self) -> bool:
        """Whether the point belongs to a layer (the entry and the exit do not)."""
        return self not in ENTRY | EXIT

    def describe(self) -> str:
        """One line: label, axes, meaning, the TransformerLens name."""
        axes = " ".join(self.axes)
        return f"{self.label:<16} [{axes}]  {self.value.meaning}  ({self.value.hook})"


ENTRY = frozenset(
    {
        Point.EMBED,
        Point.POS_EMBED,
        Point.TYPE_EMBED,
        Point.EMBED_TOTAL,
        Point.EMBED_SCALE,
        Point.EMBED_NORMALIZED,
    }
)
"""Points before the first block."""
EXIT = frozenset(
    {Point.HEAD_PRE, Point.HEAD_POST, Point.FINAL_SCALE, Point.FINAL_NORMALIZED, Point.LOGITS}
)
"""Points behind the last."""
STACKS = ("encoder", "decoder")


@dataclass(frozen=True)
class Place:
    """One point of one model, e.g. the pattern of layer 0.

    Attributes:
        point: which tensor.
        layer: the block, from 0; ``None`` at the entry and the exit.
        norm: ``"ln1"``, ``"ln2"``, … for the points of a block's norms.
        stack: ``"encoder"`` or ``"decoder"``; ``None`` in a model that has only one stack.
    """

    point: Point
    layer: int | None = None
    norm: str | None = None
    stack: str | None = None

    def __str__(self) -> str:
        """As it is written in ``cache[...]``: ``pattern,0`` or ``encoder.scale,4,ln1``."""
        parts = [self.point.label, self.layer, self.norm]
        name = ",".join(str(part) for part in parts if part is not None)
        return f"{self.stack}.{name}" if self.stack else name

    def to_json(self) -> list[str | int | None]:
        """``[label, layer, norm, stack]``."""
        return [self.point.label, self.layer, self.norm, self.stack]


PlaceLike = Place | Point | str | tuple[object, ...]
"""What names a place: ``("pattern", 0)``, a hook name, a :class:`Place`."""
