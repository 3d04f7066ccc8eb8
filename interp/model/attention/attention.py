"""Attention: H(x) = Σ_h A_h(x) · x · S_h, and the biases.

A_h = softmax_rows(x Y_h xᵀ / scale + M), S_h = W_V W_O and Y_h = W_Q W_Kᵀ of rank ≤ d_head
(Vaswani et al. 2017; Elhage et al. 2021). With biases:

    scores_h = (x W_Q + b_Q)(x W_K + b_K)ᵀ / scale + M
    H(x)     = Σ_h A_h x S_h + Σ_h b_V W_O + b_O          (the rows of A sum to one)

A configuration may normalize queries and keys (Henry et al. 2020), clip queries, keys and values,
rotate queries and keys by their positions, and soft-cap scores before M is added. The point ``v``
and the KV cache hold values before they are clipped.

With sinks, the softmax has one more column, which belongs to no key; the rows of A then sum to less
than one, and b_V contributes Σ_h (A_h 1) b_V W_O.

Two kernels compute z = A·v. The fused kernel never forms A; it is used unless scores or pattern are
edited or differentiated, or scores are soft-capped or have sinks, which it cannot compute. It has
no forward-mode derivative: under ``torch.func.jvp`` and in a dual level of
``torch.autograd.forward_ad`` the explicit kernel is used, which needs memory for A.
"""

from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.config import AttentionConfig
from interp.model.attention.mask import Mask, Masking
from interp.model.attention.weights import HeadWeights
from interp.model.context import Context, KeysValues
from interp.model.kv_cache import FixedKV
from interp.model.norm import KEYS, QUERIES
from interp.model.norm_kinds import Clip, head_norm
from interp.model.positions.scheme import PositionScheme
from interp.model.recipe import STORED, Layout, Reader, Recipe, owned
from interp.model.shapes import Heads, KeyHeads, Matrix, Stream
from interp.model.tap import Tap, untouched
from interp.points import Place, Point


@dataclass(frozen=True)
class AttentionPoints:
    """The points of an attention; by default those of self-attention."""

    q: Point = Point.Q
    k: Point = Point.K
    v: Point = Point.V
    scores: Point = Point.SCORES
    pattern: Point = Point.PATTERN
    z: Point = Point.Z
    result: Point = Point.RESULT
    out: Point = Point.ATTN_OUT


SELF = AttentionPoints()


class Attention(HeadWeights):
    """H(x) = Σ_h A_h(x) · x · S_h, with A_h = softmax(x Y_h xᵀ / scale + M)."""

    is_cross = False
    """Whether keys and values come from another stack."""
    mixes_positions = True

    def __init__(
        self,
        config: AttentionConfig,
        d_model: int,
        mask: Mask,
        positions: PositionScheme,
        points: AttentionPoints = SELF,
    ) -> None:
        super().__init__(config, d_model, positions)
        self.points = points
        self.divisor = config.divisor
        self.masking = Masking(mask, positions)
        self.soft_cap = soft_cap_of(config.cap)
        self.softmax = softmax_of(self.n_heads, sinks=config.sinks)
        self.clip = NoClip() if config.clip is None else Clip(config.clip)
        self.q_norm = head_norm(config, self.n_heads, QUERIES)
        self.k_norm = head_norm(config, self.kv_heads, KEYS)

    # ---- the forward -------------------------------------------------------------------------

    def forward(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """H(x)."""
        return self.output(self.hidden(x, context, tap), tap)

    def hidden(self, x: Stream, context: Context, tap: Tap = untouched) -> Heads:
        """z = A·v of each head."""
        q, k, v = self.project(x, context, tap)
        q, k = self.with_positions(q, k, context, tap)
        k, v = self.extend_kv(k, v, context)
        return self.mix(q, k, v, context, tap)

    def output(self, hidden: Heads, tap: Tap = untouched) -> Stream:
        """Σ_h z_h W_O + b_O, where z is ``hidden``."""
        return tap(self.points.out, self.write(tap(self.points.z, hidden), tap))

    @property
    def hidden_point(self) -> Point:
        """The point of z."""
        return self.points.z

    def project(self, x: Stream, context: Context, tap: Tap) -> tuple[Heads, KeyHeads, KeyHeads]:  # noqa: ARG002
        """Queries, keys and values, computed by one product."""
        q, k, v = self._split(self.linear(x, self.weight_qkv, self.joint_bias()))
        return tap(self.points.q, q), tap(self.points.k, k), tap(self.points.v, v)

    def project_head(self, point: Point, head: int, x: Stream) -> Float[Tensor, "batch pos d_head"]:
        """Queries, keys or values of one (key/value) head, as selected by ``point``."""
        W, b = self.projection(point)
        return x @ W[head] + b[head]

    def projection(
        self, point: Point
    ) -> tuple[Float[Tensor, "heads d_model d_head"], Float[Tensor, "heads d_head"]]:
        """Weights and biases of queries, keys or values, as selected by ``point``."""
        at = self.points
        return {
            at.q: (self.W_Q, self.b_Q),
            at.k: (self.W_K, self.b_K),
            at.v: (self.W_V, self.b_V),
        }[point]

    def with_positions(
        self, q: Heads, k: KeyHeads, context: Context, tap: Tap = untouched
    ) -> tuple[Heads, KeyHeads]:
        """Queries and keys as the scores read them: normalized and clipped, then rotated."""
        q, k = self.q_norm(q, tap), self.k_norm(k, tap)
        return self.positions.query(q, context, tap), self.positions.key(k, context, tap)

    def extend_kv(self, k: KeyHeads, v: KeyHeads, context: Context) -> tuple[Tensor, Tensor]:
        """Keys and values of all columns, given those of the computed columns."""
        return context.kv_cache.extend(self, k, v)

    def fixed_kv(self, x: Stream, context: Context) -> FixedKV:
        """Keys and values of all columns, given the attention's input at the computed columns."""
        bias, first = self.joint_bias(), self.n_heads * self.d_head
        joint = self.linear(x, self.weight_qkv[first:], None if bias is None else bias[first:])
        k, v = joint.unflatten(-1, (-1, self.d_head)).chunk(2, dim=2)
        k = self.positions.key(self.k_norm(k), context, untouched)
        return FixedKV(self, *self.extend_kv(k, v, context), context.kv_cache)

    def cached(self, k: KeyHeads, v: KeyHeads) -> dict[object, KeysValues]:
        """Keys and values as a KV cache has them, by the part that reads them there."""
        return {self: (k, v)}

    def mix(
        self, q: Heads, k: KeyHeads, v: KeyHeads, context: Context, tap: Tap = untouched
    ) -> Heads:
        """z = A·v, by the fused kernel unless scores or pattern must be formed."""
        must_form = tap.must_form(self.points.scores, self.points.pattern) or in_forward_mode()
        if self.soft_cap.is_fused and self.softmax.is_fused and not must_form:
            return self.fused(q, k, v, context)
        formed = self.scores(q, k, context)
        scores = tap(self.points.scores, formed)
        # Scores that were not edited are already masked; masking such a large matrix is slow.
        pattern = self.softmax(scores) if scores is formed else self.pattern(scores, context)
        return self.weigh(tap(self.points.pattern, pattern), v)

    def write(self, z: Heads, tap: Tap = untouched) -> Stream:
        """Σ_h z_h W_O + b_O."""
        if not tap.must_form(self.points.result):
            return self.linear(z.flatten(2), self.weight_o, self.b_O)
        written = tap(self.points.result, self.result(z)).sum(2)
        return written if self.b_O is None else written + self.b_O

    # ---- parts of the forward, also used to derive tensors from a cache ----------------------

    def scores(self, q: Heads, k: KeyHeads, context: Context) -> Matrix:
        """(q / scale)·k, soft-capped, + M."""
        scores = einsum(
            q / self.divisor,
            self.each_query(k),
            "batch query head d, batch key head d -> batch head query key",
        )
        return self.masking.add(self.soft_cap(scores), context)

    def pattern(self, scores: Matrix, context: Context) -> Matrix:
        """A: the softmax over keys. Masked entries stay masked, whatever their scores are."""
        visible = self.masking.visible(context)
        masked = scores if visible is None else scores.masked_fill(~visible, -torch.inf)
        return self.softmax(masked)

    def weigh(self, pattern: Matrix, v: KeyHeads) -> Heads:
        """A·v."""
        return einsum(
            pattern,
            self.values(v),
            "batch head query key, batch key head d -> batch query head d",
        )

    def values(self, v: KeyHeads) -> Float[Tensor, "batch key head d_head"]:
        """Values as each head reads them: clipped, and repeated for heads that share them."""
        return self.each_query(self.clip(v))

    def result(self, z: Heads) -> Float[Tensor, "batch pos head d_model"]:
        """z·W_O: the output of each head."""
        return einsum(z, self.W_O, "batch pos head d, head d d_model -> batch pos head d_model")

    def fused(self, q: Heads, k: KeyHeads, v: KeyHeads, context: Context) -> Heads:
        """A·v without forming A (scaled_dot_product_attention)."""
        z = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            self.clip(v).transpose(1, 2),
            scale=1 / self.divisor,
            enable_gqa=self.kv_heads != self.n_heads,
            attn_mask=self.masking.fused(q.dtype, context),
            is_causal=self.masking.is_causal(context),
        )
        return z.transpose(1, 2)

    def joint_bias(self) -> Tensor | None:
        """Biases of queries, keys and values in one vector; ``None`` if there are none."""
        biases = (self.b_q, self.b_k, self.b_v)
        if all(bias is None for bias in biases):
            return None
        sizes = [heads * self.d_head for heads in (self.n_heads, self.kv_heads, self.kv_heads)]
        zeros = self.weight_qkv.new_zeros
        return torch.cat(
            [zeros(n) if bias is None else bias for bias, n in zip(biases, sizes, strict=True)]
        )

    def A(self, x: Float[Tensor, "*batch pos d_model"]) -> Float[Tensor, "*batch head query key"]:
        """The pattern for ``x``, the attention's own input (after its norm), without padding."""
        stream = x if x.ndim == 3 else x[None]  # noqa: PLR2004 - batch pos d_model
        context = Context.plain(stream)
        q, k, _ = self.project(stream, context, untouched)
        q, k = self.with_positions(q, k, context)
        pattern = self.pattern(self.scores(q, k, context), context)
        return pattern if x.ndim == 3 else pattern[0]  # noqa: PLR2004

    def _split(self, qkv: Float[Tensor, "batch pos width"]) -> tuple[Tensor, ...]:
        heads = qkv.unflatten(-1, (-1, self.d_head))
        return heads.split([self.n_heads, self.kv_heads, self.kv_heads], dim=2)

    # ---- places -------------------------------------------------------------------------------

    @property
    def _normalized(self) -> tuple[Place, Place]:
        """The places of queries and keys before they are rotated."""
        return self.q_norm.output(Place(self.points.q)), self.k_norm.output(Place(self.points.k))

    @property
    def _scored(self) -> tuple[Place, Place]:
        """The places of queries and keys as the scores read them."""
        *_, query, key = *self._normalized, *self.positions.layout(*self._normalized)
        return query, key

    @property
    def kv_points(self) -> tuple[Point, Point]:
        """The points of the keys and values that other columns attend to."""
        return self._scored[1].point, self.points.v

    def layout(self, source: Place) -> Layout:  # noqa: ARG002 - q, k and v are stored
        """Its places in the order of the forward, each with its recipe."""
        at, (query, key) = self.points, self._scored

        def scores(attn: Attention, of: Reader) -> Tensor:
            return attn.scores(of(query.point), of(key.point), of.context)

        def pattern(attn: Attention, of: Reader) -> Tensor:
            if of.is_scratch(at.scores):  # masked already, and free to be overwritten
                return attn.softmax(of(at.scores), in_place=True)
            return attn.pattern(of(at.scores), of.context)

        def result(attn: Attention, of: Reader) -> Tensor:
            return attn.result(of(at.z))

        return {
            Place(at.q): STORED,
            Place(at.k): STORED,
            Place(at.v): STORED,
            **owned("q_norm", self.q_norm.layout(Place(at.q))),
            **owned("k_norm", self.k_norm.layout(Place(at.k))),
            **self.positions.layout(*self._normalized),
            Place(at.scores): Recipe(scores, (query, key), absent_when_fused=True),
            Place(at.pattern): Recipe(pattern, (Place(at.scores),), absent_when_fused=True),
            Place(at.z): STORED,
            Place(at.result): Recipe(result, (Place(at.z),), absent_when_fused=True),
            Place(at.out): Recipe(lambda attn, of: attn.write(of(at.z)), (Place(at.z),)),
        }


def in_forward_mode() -> bool:
    """Whether forward-mode derivatives may be needed: in a dual level, which jvp also enters."""
    # PyTorch has no public function for this.
    return forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]


# ---- softmax, soft-cap and clipping -------------------------------------------------------------


class Softmax(nn.Module):
    """exp(s) / Σ_keys exp(s), row by row; the base class of :class:`SinkSoftmax`."""

    is_fused = True
    """Whether fused attention computes it."""

    def forward(self, scores: Matrix, *, in_place: bool = False) -> Matrix:
        """The weights on keys, computed in float32 for half-precision scores."""
        return softmax_rows(scores, in_place=in_place)


class SinkSoftmax(Softmax):
    """exp(s) / (exp(sink) + Σ_keys exp(s)), row by row, with a sink for each head.

    A sink is a learned score that belongs to no key: a head that finds nothing to attend to gives
    it most of its weight and writes little (Miller 2023, "Attention is off by one"; GPT-OSS, 2025).
    """

    is_fused = False

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.sinks = nn.Parameter(torch.zeros(n_heads))

    def forward(self, scores: Matrix, *, in_place: bool = False) -> Matrix:  # noqa: ARG002
        """The weights on keys."""
        return softmax_rows(torch.cat([scores, self.column(scores)], -1))[..., :-1]

    def column(self, scores: Matrix) -> Float[Tensor, "batch head query one"]:
        """The sinks as one more column of scores."""
        batch, _, n_query, _ = scores.shape
        return self.sinks.to(scores.dtype)[:, None, None].expand(batch, -1, n_query, 1)


def softmax_of(n_heads: int, *, sinks: bool) -> Softmax:
    """The softmax of a configuration."""
    return SinkSoftmax(n_heads) if sinks else Softmax()


def softmax_rows(scores: Matrix, *, in_place: bool = False) -> Matrix:
    """exp(s) / Σ_keys exp(s), row by row, computed in float32 for half-precision scores."""
    if scores.dtype in (torch.float16, torch.bfloat16):
        return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)
    return torch.softmax(scores, -1, out=scores) if in_place else scores.softmax(-1)


class NoSoftCap:
    """x ↦ x: scores or logits that are not capped."""

    is_fused = True
    """Whether fused attention computes it."""

    def __call__(self, x: Tensor) -> Tensor:
        """x, unchanged."""
        return x


@dataclass(frozen=True)
class SoftCap:
    """x ↦ cap · tanh(x / cap), between −cap and cap, of scores or logits (Gemma 2, 2024)."""

    is_fused = False
    cap: float

    def __call__(self, x: Tensor) -> Tensor:
        """``cap * tanh(x / cap)``."""
        return self.cap * (x / self.cap).tanh()


def soft_cap_of(cap: float | None) -> SoftCap | NoSoftCap:
    """The soft-cap of a configuration; the identity if ``cap`` is ``None``."""
    return NoSoftCap() if cap is None else SoftCap(cap)


class NoClip:
    """x ↦ x: values that are not clipped; :class:`~interp.model.norm_kinds.Clip` clips them."""

    def __call__(self, x: Tensor) -> Tensor:
        """x, unchanged."""
        return x
