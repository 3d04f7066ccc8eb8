"""What does attention write? H(x) = Σ_h A_h(x) · x · S_h, and the biases.

A_h = softmax_rows(x Y_h xᵀ / scale + M), S_h = W_V W_O and Y_h = W_Q W_Kᵀ of rank ≤ d_head
(Elhage et al. 2021; Vaswani et al. 2017). With biases, told exactly:

    scores_h = (x W_Q + b_Q)(x W_K + b_K)ᵀ / scale
    H(x)     = Σ_h A_h x S_h + Σ_h b_V W_O + b_O          (the rows of A sum to one)

Two kernels compute z = A·v. The fused one never forms A; it is taken unless somebody edits
scores or pattern, or wants their gradient. Queries, keys and values come from one product:
their weights are stored as one matrix [heads·d_head, d_model], and ``W_Q [head d_model d_head]``
and so on are views of it.
"""

from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.config import AttentionConfig
from interp.errors import InvalidInput
from interp.factored import Factored
from interp.model.context import Context
from interp.model.mask import Mask
from interp.model.mlp import bias_of, matrix
from interp.model.positions import Unturned
from interp.model.recipe import KEPT, Layout, Reader, Recipe
from interp.points import Place, Point
from interp.tap import Tap, untouched

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


class Attention(nn.Module):
    """H(x) = Σ_h A_h(x) · x · S_h, with A_h = softmax(x Y_h xᵀ / scale + M)."""

    points = AttentionPoints()

    def __init__(
        self,
        config: AttentionConfig,
        d_model: int,
        mask: Mask,
        positions: Unturned,
    ) -> None:
        super().__init__()
        self.n_heads, self.kv_heads, self.d_head = config.n_heads, config.kv_heads, config.d_head
        self.divisor = config.divisor
        self.mask, self.positions = mask, positions
        d_query, d_key = self.n_heads * self.d_head, self.kv_heads * self.d_head
        self.weight_qkv = matrix(d_query + 2 * d_key, d_model)
        self.weight_o = matrix(d_model, d_query)
        self.b_q = bias_of(d_query, config.bias_q)
        self.b_k = bias_of(d_key, config.bias_k)
        self.b_v = bias_of(d_key, config.bias_v)
        self.b_O = bias_of(d_model, config.bias_o)

    # ---- the forward -------------------------------------------------------------------------

    def forward(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """H(x)."""
        q, k, v = self.project(x, context, tap)
        q, k = self.positions.turn(q, k, context, tap)
        k, v = self.recall(k, v, context)
        z = tap(self.points.z, self.mix(q, k, v, context, tap))
        return tap(self.points.out, self.write(z, tap))

    def project(self, x: Stream, context: Context, tap: Tap) -> tuple[Heads, KeyHeads, KeyHeads]:  # noqa: ARG002
        """Queries, keys and values, by one product."""
        at = self.points
        q, k, v = self._split(F.linear(x, self.weight_qkv, self._joint_bias()))
        return tap(at.q, q), tap(at.k, k), tap(at.v, v)

    def recall(self, k: KeyHeads, v: KeyHeads, context: Context) -> tuple[Tensor, Tensor]:
        """Keys and values of these columns and of those read before."""
        return context.past.extend(self, k, v)

    def mix(
        self, q: Heads, k: KeyHeads, v: KeyHeads, context: Context, tap: Tap = untouched
    ) -> Heads:
        """A·v, by the kernel that forms no more than is wanted."""
        if not tap.forms(self.points.scores, self.points.pattern):
            return self.fused(q, k, v, context)
        scores = tap(self.points.scores, self.scores(q, k, context))
        pattern = tap(self.points.pattern, self.pattern(scores, context))
        return self.weigh(pattern, v)

    def write(self, z: Heads, tap: Tap = untouched) -> Stream:
        """Σ_h z_h W_O + b_O."""
        if not tap.forms(self.points.result):
            return F.linear(z.flatten(2), self.weight_o, self.b_O)
        written = tap(self.points.result, self.result(z)).sum(2)
        return written if self.b_O is None else written + self.b_O

    # ---- its pieces, which deriving from a cache uses too ------------------------------------

    def scores(self, q: Heads, k: KeyHeads, context: Context) -> Square:
        """(q·k) / scale + bias of the positions, −inf where masked."""
        scores = einsum(
            q, self._each(k), "batch query head d, batch key head d -> batch head query key"
        )
        return self._added(scores / self.divisor, context)

    def pattern(self, scores: Square, context: Context) -> Square:
        """A: the softmax over keys. What is masked stays masked, whatever became of its score."""
        visible = self._visible(context)
        masked = scores if visible is None else scores.masked_fill(~visible, -torch.inf)
        wide = torch.float32 if scores.dtype in (torch.float16, torch.bfloat16) else None
        return masked.softmax(-1, dtype=wide).to(scores.dtype)

    def weigh(self, pattern: Square, v: KeyHeads) -> Heads:
        """A·v."""
        return einsum(
            pattern, self._each(v), "batch head query key, batch key head d -> batch query head d"
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
            attn_mask=self._fused_mask(q.dtype, context),
            is_causal=self._is_triangle(context),
        )
        return z.transpose(1, 2)

    # ---- attention as the mathematics has it --------------------------------------------------

    def A(self, x: Float[Tensor, "*batch pos d_model"]) -> Float[Tensor, "*batch head query key"]:
        """The pattern that attention forms on ``x``, what its norm gives it; no padding."""
        stream = x if x.ndim == 3 else x[None]  # noqa: PLR2004 - batch pos d_model
        context = Context.plain(stream)
        q, k, _ = self.project(stream, context, untouched)
        q, k = self.positions.turn(q, k, context, untouched)
        pattern = self.pattern(self.scores(q, k, context), context)
        return pattern if x.ndim == 3 else pattern[0]  # noqa: PLR2004

    def S(self, head: int) -> Factored:
        """W_V W_O of one head: what moves, if it is attended to. d_model × d_model, factored."""
        return Factored(self.W_V[self._group(head)], self.W_O[head])

    def Y(self, head: int, offset: int = 0) -> Factored:
        """W_Q W_Kᵀ of one head: what attends to what. d_model × d_model, factored.

        Args:
            head: which head.
            offset: query position less key position; matters with rotary positions alone.
        """
        W_Q, W_K = self.W_Q[head], self.W_K[self._group(head)]
        turned = self.positions.turned(W_K, torch.tensor(-offset, device=W_K.device))
        return Factored(W_Q, turned.mT)

    @property
    def written_always(self) -> Float[Tensor, " d_model"]:
        """Σ_h b_V W_O + b_O: what H writes whatever x, as the rows of A sum to one."""
        constant = einsum(
            self._each(self.b_V, axis=0), self.W_O, "head d, head d d_model -> d_model"
        )
        return constant if self.b_O is None else constant + self.b_O

    # ---- weights as views --------------------------------------------------------------------

    @property
    def W_Q(self) -> Float[Tensor, "head d_model d_head"]:
        """Query weights (a view)."""
        return self._rows(0, self.n_heads)

    @property
    def W_K(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """Key weights (a view)."""
        return self._rows(self.n_heads, self.kv_heads)

    @property
    def W_V(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """Value weights (a view)."""
        return self._rows(self.n_heads + self.kv_heads, self.kv_heads)

    @property
    def W_O(self) -> Float[Tensor, "head d_head d_model"]:
        """Output weights (a view)."""
        return rearrange(self.weight_o, "d_model (head d) -> head d d_model", head=self.n_heads)

    @property
    def b_Q(self) -> Float[Tensor, "head d_head"]:
        """Query biases, zeros if there are none."""
        return self._bias(self.b_q, self.n_heads)

    @property
    def b_K(self) -> Float[Tensor, "kv_head d_head"]:
        """Key biases, zeros if there are none."""
        return self._bias(self.b_k, self.kv_heads)

    @property
    def b_V(self) -> Float[Tensor, "kv_head d_head"]:
        """Value biases, zeros if there are none."""
        return self._bias(self.b_v, self.kv_heads)

    def _rows(self, first: int, n: int) -> Float[Tensor, "head d_model d_head"]:
        rows = self.weight_qkv[first * self.d_head : (first + n) * self.d_head]
        return rearrange(rows, "(head d) d_model -> head d_model d", head=n)

    def _bias(self, bias: Tensor | None, n: int) -> Float[Tensor, "head d_head"]:
        if bias is None:
            return self.weight_qkv.new_zeros(n, self.d_head)
        return bias.view(n, self.d_head)

    def _joint_bias(self) -> Tensor | None:
        if self.b_q is None and self.b_k is None and self.b_v is None:
            return None
        return torch.cat([self.b_Q.flatten(), self.b_K.flatten(), self.b_V.flatten()])

    def _split(self, qkv: Float[Tensor, "batch pos width"]) -> tuple[Tensor, ...]:
        heads = qkv.unflatten(-1, (-1, self.d_head))
        return heads.split([self.n_heads, self.kv_heads, self.kv_heads], dim=2)

    def _group(self, head: int) -> int:
        if not 0 <= head < self.n_heads:
            raise InvalidInput(f"Head {head}: this attention has heads 0..{self.n_heads - 1}.")
        return head * self.kv_heads // self.n_heads

    def _each(self, x: Tensor, axis: int = 2) -> Tensor:
        """Key/value heads, each repeated for the query heads that share it."""
        if self.kv_heads == self.n_heads:
            return x
        return x.repeat_interleave(self.n_heads // self.kv_heads, dim=axis)

    # ---- masks and biases, made once a run ----------------------------------------------------

    def _visible(self, context: Context) -> Tensor | None:
        return context.once(self.mask, lambda: self.mask.visible(context))

    def _distance(self, dtype: torch.dtype, context: Context) -> Tensor | None:
        def make() -> Tensor | None:
            bias = self.positions.bias(context)
            return None if bias is None else bias.to(dtype)

        return context.once(("bias", self.positions, dtype), make)

    def _added(self, scores: Square, context: Context) -> Square:
        bias, visible = self._distance(scores.dtype, context), self._visible(context)
        scores = scores if bias is None else scores + bias
        return scores if visible is None else scores.masked_fill(~visible, -torch.inf)

    def _is_triangle(self, context: Context) -> bool:
        """Whether the mask is one that the fused kernel knows by heart."""
        whole = context.offset == 0 and context.real is None
        return whole and self.mask.is_causal and not self.positions.lowers_scores

    def _fused_mask(self, dtype: torch.dtype, context: Context) -> Tensor | None:
        """Mask and distance bias in one tensor; ``None`` if the kernel needs none."""
        if self._is_triangle(context):
            return None

        def make() -> Tensor | None:
            bias, visible = self._distance(dtype, context), self._visible(context)
            if bias is None or visible is None:
                return visible if bias is None else bias
            return bias.masked_fill(~visible, -torch.inf)

        return context.once(("fused", self.mask, self.positions, dtype), make)

    # ---- where its tensors are ----------------------------------------------------------------

    def layout(self, source: Place) -> Layout:  # noqa: ARG002 - q, k and v are kept
        """Its places in the order of the forward, and how each follows from those before."""
        at, positions = self.points, self.positions
        query, key = (at.q, at.k) if not positions.layout() else (positions.query, positions.key)

        def scores(attn: Attention, of: Reader) -> Tensor:
            return attn.scores(of(query), of(key), of.context)

        def pattern(attn: Attention, of: Reader) -> Tensor:
            return attn.pattern(of(at.scores), of.context)

        return {
            Place(at.q): KEPT,
            Place(at.k): KEPT,
            Place(at.v): KEPT,
            **positions.layout(),
            Place(at.scores): Recipe(scores, (Place(query), Place(key)), on_demand=True),
            Place(at.pattern): Recipe(pattern, (Place(at.scores),), on_demand=True),
            Place(at.z): KEPT,
            Place(at.result): Recipe(
                lambda attn, of: attn.result(of(at.z)), (Place(at.z),), on_demand=True
            ),
            Place(at.out): Recipe(lambda attn, of: attn.write(of(at.z)), (Place(at.z),)),
        }


class CrossAttention(Attention):
    """Queries from the decoder's stream, keys and values from what the encoder gave out."""

    points = CROSS

    def project(self, x: Stream, context: Context, tap: Tap) -> tuple[Heads, KeyHeads, KeyHeads]:
        """Queries of ``x``; keys and values of the memory, computed once a source."""
        n = self.n_heads * self.d_head
        bias = self._joint_bias()
        q_bias, kv_bias = (None, None) if bias is None else (bias[:n], bias[n:])

        def keys_and_values() -> tuple[KeyHeads, KeyHeads]:
            joint = F.linear(self._memory(context), self.weight_qkv[n:], kv_bias)
            k, v = joint.unflatten(-1, (-1, self.d_head)).chunk(2, dim=2)
            return tap(self.points.k, k), tap(self.points.v, v)

        q = F.linear(x, self.weight_qkv[:n], q_bias).unflatten(-1, (-1, self.d_head))
        q = tap(self.points.q, q)
        return q, *context.past.once(self, keys_and_values)

    def recall(self, k: KeyHeads, v: KeyHeads, context: Context) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """The source's, which do not grow."""
        return k, v

    def _memory(self, context: Context) -> Stream:
        if context.memory is None:
            raise InvalidInput("Cross-attention needs the source: run model(source, target).")
        return context.memory
