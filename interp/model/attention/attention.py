"""What does attention write? H(x) = Σ_h A_h(x) · x · S_h, and the biases.

A_h = softmax_rows(x Y_h xᵀ / scale + M), S_h = W_V W_O and Y_h = W_Q W_Kᵀ of rank ≤ d_head
(Elhage et al. 2021; Vaswani et al. 2017). With biases, told exactly:

    scores_h = (x W_Q + b_Q)(x W_K + b_K)ᵀ / scale
    H(x)     = Σ_h A_h x S_h + Σ_h b_V W_O + b_O          (the rows of A sum to one)

Where a model says so, queries and keys are normed first (Henry et al. 2020), turned by their
positions, and scores are capped before the mask.

Two kernels compute z = A·v. The fused one never forms A; it is taken unless somebody edits
scores or pattern, or wants their gradient (or scores are capped, which it does not know).
"""

from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.config import AttentionConfig
from interp.model.attention.mask import Mask
from interp.model.attention.masking import Masking
from interp.model.attention.weights import HeadWeights
from interp.model.context import Context
from interp.model.norm import KEYS, QUERIES, Norm, NormPoints, norm_of
from interp.model.positions.positions import Unturned
from interp.model.recipe import KEPT, Layout, Reader, Recipe, owned
from interp.model.soft_cap import cap_of
from interp.model.tap import Tap, untouched
from interp.points import Place, Point

Stream = Float[Tensor, "batch pos d_model"]
Heads = Float[Tensor, "batch pos head d_head"]
KeyHeads = Float[Tensor, "batch key kv_head d_head"]
Square = Float[Tensor, "batch head query key"]


@dataclass(frozen=True)
class AttentionPoints:
    """Which places an attention taps: a block's own, or those of its cross-attention."""

    q: Point = Point.Q
    k: Point = Point.K
    v: Point = Point.V
    scores: Point = Point.SCORES
    pattern: Point = Point.PATTERN
    z: Point = Point.Z
    result: Point = Point.RESULT
    out: Point = Point.ATTN_OUT


PLAIN = AttentionPoints()


class Attention(HeadWeights):
    """H(x) = Σ_h A_h(x) · x · S_h, with A_h = softmax(x Y_h xᵀ / scale + M)."""

    looks_across = False
    """Whether keys and values are another stack's."""

    def __init__(
        self,
        config: AttentionConfig,
        d_model: int,
        mask: Mask,
        positions: Unturned,
        points: AttentionPoints = PLAIN,
    ) -> None:
        super().__init__(config, d_model, positions)
        self.points = points
        self.divisor = config.divisor
        self.masking = Masking(mask, positions)
        self.cap = cap_of(config.cap)
        self.q_norm = head_norm(config, self.n_heads, QUERIES)
        self.k_norm = head_norm(config, self.kv_heads, KEYS)

    # ---- the forward -------------------------------------------------------------------------

    def forward(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """H(x)."""
        return self.outer(self.inner(x, context, tap), tap)

    def inner(self, x: Stream, context: Context, tap: Tap = untouched) -> Heads:
        """A·v of each head."""
        q, k, v = self.project(x, context, tap)
        q, k = self.meeting(q, k, context, tap)
        k, v = self.recall(k, v, context)
        return self.mix(q, k, v, context, tap)

    def outer(self, inner: Heads, tap: Tap = untouched) -> Stream:
        """Σ_h z_h W_O + b_O."""
        return tap(self.points.out, self.write(tap(self.points.z, inner), tap))

    @property
    def between(self) -> Point:
        """What the heads say: z."""
        return self.points.z

    @property
    def recalled(self) -> tuple[Point, Point]:
        """Where the keys and values are that other columns look at."""
        return self._meeting[1].point, self.points.v

    def project(self, x: Stream, context: Context, tap: Tap) -> tuple[Heads, KeyHeads, KeyHeads]:  # noqa: ARG002
        """Queries, keys and values, by one product."""
        at = self.points
        q, k, v = self._split(self.linear(x, self.weight_qkv, self.joint_bias()))
        return tap(at.q, q), tap(at.k, k), tap(at.v, v)

    def meeting(
        self, q: Heads, k: KeyHeads, context: Context, tap: Tap = untouched
    ) -> tuple[Heads, KeyHeads]:
        """Queries and keys as they meet: normed, then turned."""
        q, k = self.q_norm(q, tap), self.k_norm(k, tap)
        return self.positions.query(q, context, tap), self.positions.key(k, context, tap)

    def recall(self, k: KeyHeads, v: KeyHeads, context: Context) -> tuple[Tensor, Tensor]:
        """Keys and values of these columns and of those read before."""
        return context.past.extend(self, k, v)

    def remember(self, x: Stream, context: Context) -> tuple[Tensor, Tensor]:
        """Keys and values that the columns of ``x`` give to others, and of those read before."""
        bias, first = self.joint_bias(), self.n_heads * self.d_head
        joint = self.linear(x, self.weight_qkv[first:], None if bias is None else bias[first:])
        k, v = joint.unflatten(-1, (-1, self.d_head)).chunk(2, dim=2)
        return self.recall(self.positions.key(self.k_norm(k), context, untouched), v, context)

    def mix(
        self, q: Heads, k: KeyHeads, v: KeyHeads, context: Context, tap: Tap = untouched
    ) -> Heads:
        """A·v, by the kernel that forms no more than is wanted."""
        if self.cap.fuses and not tap.forms(self.points.scores, self.points.pattern):
            return self.fused(q, k, v, context)
        formed = self.scores(q, k, context)
        scores = tap(self.points.scores, formed)
        # Scores that nobody changed are masked; a matrix this large is not masked twice.
        pattern = softmax_rows(scores) if scores is formed else self.pattern(scores, context)
        return self.weigh(tap(self.points.pattern, pattern), v)

    def write(self, z: Heads, tap: Tap = untouched) -> Stream:
        """Σ_h z_h W_O + b_O."""
        if not tap.forms(self.points.result):
            return self.linear(z.flatten(2), self.weight_o, self.b_O)
        written = tap(self.points.result, self.result(z)).sum(2)
        return written if self.b_O is None else written + self.b_O

    # ---- its pieces, which deriving from a cache uses too ------------------------------------

    def scores(self, q: Heads, k: KeyHeads, context: Context) -> Square:
        """(q / scale)·k, capped, + bias of the positions, −inf where masked."""
        scores = einsum(
            q / self.divisor,
            self.each_query(k),
            "batch query head d, batch key head d -> batch head query key",
        )
        return self.masking.add(self.cap(scores), context)

    def pattern(self, scores: Square, context: Context) -> Square:
        """A: the softmax over keys. What is masked stays masked, whatever became of its score."""
        visible = self.masking.visible(context)
        masked = scores if visible is None else scores.masked_fill(~visible, -torch.inf)
        return softmax_rows(masked)

    def weigh(self, pattern: Square, v: KeyHeads) -> Heads:
        """A·v."""
        return einsum(
            pattern,
            self.each_query(v),
            "batch head query key, batch key head d -> batch query head d",
        )

    def result(self, z: Heads) -> Float[Tensor, "batch pos head d_model"]:
        """z·W_O: what each head writes."""
        return einsum(z, self.W_O, "batch pos head d, head d d_model -> batch pos head d_model")

    def fused(self, q: Heads, k: KeyHeads, v: KeyHeads, context: Context) -> Heads:
        """A·v without forming A (scaled_dot_product_attention)."""
        z = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            scale=1 / self.divisor,
            enable_gqa=self.kv_heads != self.n_heads,
            attn_mask=self.masking.fused(q.dtype, context),
            is_causal=self.masking.is_triangle(context),
        )
        return z.transpose(1, 2)

    def A(self, x: Float[Tensor, "*batch pos d_model"]) -> Float[Tensor, "*batch head query key"]:
        """The pattern that attention forms on ``x``, what its norm gives it; no padding."""
        stream = x if x.ndim == 3 else x[None]  # noqa: PLR2004 - batch pos d_model
        context = Context.plain(stream)
        q, k, _ = self.project(stream, context, untouched)
        pattern = self.pattern(self.scores(*self.meeting(q, k, context), context), context)
        return pattern if x.ndim == 3 else pattern[0]  # noqa: PLR2004

    @property
    def _normed(self) -> tuple[Place, Place]:
        """Where queries and keys are found before they turn."""
        return self.q_norm.output(Place(self.points.q)), self.k_norm.output(Place(self.points.k))

    @property
    def _meeting(self) -> tuple[Place, Place]:
        """Where queries and keys are found as they meet: normed and turned."""
        *_, query, key = *self._normed, *self.positions.layout(*self._normed)
        return query, key

    def _split(self, qkv: Float[Tensor, "batch pos width"]) -> tuple[Tensor, ...]:
        heads = qkv.unflatten(-1, (-1, self.d_head))
        return heads.split([self.n_heads, self.kv_heads, self.kv_heads], dim=2)

    # ---- where its tensors are ----------------------------------------------------------------

    def layout(self, source: Place) -> Layout:  # noqa: ARG002 - q, k and v are kept
        """Its places in the order of the forward, and how each follows from those before."""
        at, (query, key) = self.points, self._meeting

        def scores(attn: Attention, of: Reader) -> Tensor:
            return attn.scores(of(query.point), of(key.point), of.context)

        def pattern(attn: Attention, of: Reader) -> Tensor:
            if of.derives(at.scores):  # masked, and nobody else's: the rows can change in place
                return softmax_rows(of(at.scores), in_place=True)
            return attn.pattern(of(at.scores), of.context)

        return {
            Place(at.q): KEPT,
            Place(at.k): KEPT,
            Place(at.v): KEPT,
            **owned("q_norm", self.q_norm.layout(Place(at.q))),
            **owned("k_norm", self.k_norm.layout(Place(at.k))),
            **self.positions.layout(*self._normed),
            Place(at.scores): Recipe(scores, (query, key), on_demand=True),
            Place(at.pattern): Recipe(pattern, (Place(at.scores),), on_demand=True),
            Place(at.z): KEPT,
            Place(at.result): Recipe(
                lambda attn, of: attn.result(of(at.z)), (Place(at.z),), on_demand=True
            ),
            Place(at.out): Recipe(lambda attn, of: attn.write(of(at.z)), (Place(at.z),)),
        }


def head_norm(config: AttentionConfig, n: int, points: NormPoints) -> Norm:
    """The norm of queries or keys: of each head, or of all ``n`` together."""
    if config.qk_norm is None:
        return Norm()
    shape = (config.d_head,) if config.qk_norm_over == "head" else (n, config.d_head)
    return norm_of(config.qk_norm, *shape, points=points)


def softmax_rows(scores: Square, *, in_place: bool = False) -> Square:
    """exp(s) / Σ_keys exp(s), row by row; of half-precision scores, computed in float32."""
    if scores.dtype in (torch.float16, torch.bfloat16):
        return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)
    return torch.softmax(scores, -1, out=scores) if in_place else scores.softmax(-1)
