"""Cross-attention: queries from the decoder's stream, keys and values from the encoder's output."""

from torch import Tensor

from interp.config import AttentionConfig
from interp.errors import InvalidInput
from interp.model.attention.attention import Attention, AttentionPoints
from interp.model.attention.mask_kinds import AcrossStacks
from interp.model.context import Context
from interp.model.positions.scheme import NoPositions
from interp.model.shapes import Heads, KeyHeads, Stream
from interp.model.tap import Tap
from interp.points import Point

CROSS = AttentionPoints(
    Point.CROSS_Q,
    Point.CROSS_K,
    Point.CROSS_V,
    Point.CROSS_SCORES,
    Point.CROSS_PATTERN,
    Point.CROSS_Z,
    Point.CROSS_RESULT,
    Point.CROSS_ATTN_OUT,
)


class CrossAttention(Attention):
    """Σ_h A_h · y · S_h for the encoder's output y, with A_h = softmax(x Y_h yᵀ / scale + M)."""

    is_cross = True

    def __init__(self, config: AttentionConfig, d_model: int) -> None:
        super().__init__(config, d_model, AcrossStacks(), NoPositions(), CROSS)

    def project(self, x: Stream, context: Context, tap: Tap) -> tuple[Heads, KeyHeads, KeyHeads]:
        """Queries of ``x``; keys and values of the encoder's output, computed once per source."""
        n = self.n_heads * self.d_head
        bias = self.joint_bias()
        q_bias, kv_bias = (None, None) if bias is None else (bias[:n], bias[n:])

        def keys_and_values() -> tuple[KeyHeads, KeyHeads]:
            joint = self.linear(self._encoder_output(context), self.weight_qkv[n:], kv_bias)
            k, v = joint.unflatten(-1, (-1, self.d_head)).chunk(2, dim=2)
            return tap(self.points.k, k), tap(self.points.v, v)

        q = self.linear(x, self.weight_qkv[:n], q_bias).unflatten(-1, (-1, self.d_head))
        q = tap(self.points.q, q)
        return q, *context.kv_cache.fixed(self, keys_and_values)

    def extend_kv(self, k: KeyHeads, v: KeyHeads, context: Context) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """The keys and values of the source, which do not grow."""
        return k, v

    def _encoder_output(self, context: Context) -> Stream:
        if context.encoder_output is None:
            raise InvalidInput("Cross-attention needs the source: run model(source, target).")
        return context.encoder_output
