"""The configuration of the parts of a block: attention, MLP, norms, positions."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from interp.config.checks import check_choice, check_positive, check_positive_integers
from interp.errors import InvalidConfig

Activation = Literal["relu", "gelu", "gelu_tanh", "gelu_bloom", "quick_gelu", "silu", "tanh"]
NormKind = Literal["layernorm", "rmsnorm", "none"]
Placement = Literal["pre", "post", "sandwich", "write", "stream", "parallel", "parallel_tied"]
PositionKind = Literal[
    "none", "learned", "sinusoidal", "rotary", "alibi", "buckets", "grid", "layer_grid"
]
ScalingKind = Literal["linear", "dynamic", "llama3", "yarn", "longrope"]
GRIDS = ("grid", "layer_grid")
"""Kinds of positions that are biases between the patches of an image."""
PairLayout = Literal["half", "interleaved"]
Span = Literal["head", "each_head", "heads"]


@dataclass(frozen=True)
class NormConfig:
    """The norms of one stack.

    Attributes:
        kind: ``layernorm``, ``rmsnorm`` or ``none``.
        placement: the step from the stream x, where f is attention or MLP:

            - ``pre``: x + f(norm(x)), as in GPT-2;
            - ``post``: norm(x + f(x)), as in the original Transformer;
            - ``sandwich``: x + norm(f(norm(x))), as in Gemma 2;
            - ``write``: x + norm(f(x)), as in OLMo 2;
            - ``stream``: y + f(y) with y = norm(x), an option of BLOOM;
            - ``parallel``: x + attention(norm(x)) + mlp(norm(x)), each with its own norm, as in
              GPT-NeoX;
            - ``parallel_tied``: the same with one norm for both, as in GPT-J.
        final: whether the output of the last block is normalized.
        gain: whether norms have a learned gain.
        bias: whether norms have a learned bias (LayerNorm only).
        eps: added to the variance before the square root.
        unit_offset: whether the gain is 1 + the learned weight, as in Gemma.
    """

    kind: NormKind = "layernorm"
    placement: Placement = "pre"
    final: bool = True
    gain: bool = True
    bias: bool = True
    eps: float = 1e-5
    unit_offset: bool = False

    def __post_init__(self) -> None:
        check_choice(self, "kind", NormKind)
        check_choice(self, "placement", Placement)
        if self.kind == "rmsnorm" and self.bias:
            raise InvalidConfig("norm bias=True, but an RMSNorm has no bias; set bias=False.")
        if self.kind == "none" and self.placement not in ("pre", "parallel"):
            raise InvalidConfig(
                f'norm placement="{self.placement}" needs a norm, but kind="none"; set '
                'placement="pre" or "parallel".'
            )
        if not self.eps >= 0:
            raise InvalidConfig(f"norm eps={self.eps} must be >= 0.")
        if self.unit_offset and (self.kind != "rmsnorm" or not self.gain):
            raise InvalidConfig('norm unit_offset=True needs kind="rmsnorm" and gain=True.')


NO_NORM = NormConfig(kind="none", final=False)
"""No norms: x1 = x0 + H(x0)."""


@dataclass(frozen=True)
class AttentionConfig:
    """Multi-head attention.

    Attributes:
        n_heads: number of query heads.
        d_head: dimension of a head; need not be d_model / n_heads.
        n_kv_heads: number of key/value heads, each shared by n_heads / n_kv_heads query heads;
            ``None`` means ``n_heads``.
        bias_q: whether queries have a bias; ``bias_k``, ``bias_v``, ``bias_o`` likewise.
        scale: divisor of the scores; ``None`` means √d_head.
        window: number of keys that a query attends to, including its own; in an encoder, on each
            side; ``None`` for all.
        bidirectional: whether a decoder's queries also attend to later keys, as an encoder's do.
        cap: soft-cap c: scores s become c·tanh(s / c) before the mask; ``None`` for none.
        qk_norm: norm of queries and keys before the rotation; ``None`` for none.
        qk_norm_over: the axes of this norm: ``head`` for each head, with one gain for all heads;
            ``each_head`` for each head, with a gain per head; ``heads`` for all heads together.
        normed: whether attention reads the stream through the block's norm; False needs norms with
            ``placement="pre"``, as in the first layer of ModernBERT.
        sinks: whether the softmax of each head includes a learned score that belongs to no key, so
            that the weights on keys sum to less than one (GPT-OSS).
        clip: bound to which queries, keys (after their norm) and values are clipped in absolute
            value; ``None`` for no clipping.
    """

    n_heads: int
    d_head: int
    n_kv_heads: int | None = None
    bias_q: bool = True
    bias_k: bool = True
    bias_v: bool = True
    bias_o: bool = True
    scale: float | None = None
    window: int | None = None
    bidirectional: bool = False
    cap: float | None = None
    qk_norm: NormConfig | None = None
    qk_norm_over: Span = "head"
    normed: bool = True
    sinks: bool = False
    clip: float | None = None

    def __post_init__(self) -> None:
        check_positive_integers(self, "n_heads", "d_head")
        check_choice(self, "qk_norm_over", Span)
        if self.n_kv_heads is not None:
            check_positive_integers(self, "n_kv_heads")
            if self.n_heads % self.n_kv_heads:
                raise InvalidConfig(
                    f"n_heads={self.n_heads} query heads can't share n_kv_heads="
                    f"{self.n_kv_heads} evenly; n_heads must be a multiple of n_kv_heads."
                )
        if self.window is not None:
            check_positive_integers(self, "window")
            if self.bidirectional:
                raise InvalidConfig(
                    f"window={self.window} counts earlier keys, but bidirectional=True; set one."
                )
        if self.scale is not None and not self.scale > 0:
            raise InvalidConfig(f"scale={self.scale} divides the scores and must be > 0.")
        check_positive(self, "cap")
        check_positive(self, "clip")
        kind = None if self.qk_norm is None else self.qk_norm.kind
        if self.qk_norm_over == "each_head" and kind != "layernorm":
            raise InvalidConfig('qk_norm_over="each_head" needs qk_norm= of kind="layernorm".')

    @cached_property
    def kv_heads(self) -> int:
        """Number of key/value heads."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def divisor(self) -> float:
        """The divisor of the scores."""
        return self.d_head**0.5 if self.scale is None else self.scale


@dataclass(frozen=True)
class ExpertsConfig:
    """A mixture of experts: a router assigns each token to a few of many MLPs.

    Attributes:
        n_experts: number of MLPs.
        n_chosen: number of experts per token, those with the highest router logits.
        renormalised: whether the weights of these experts are divided by their sum.
        bias_router: whether the router has a bias.
        d_shared: number of neurons of an additional gated MLP that is applied to every token; its
            output is multiplied by σ(x·w). ``None`` for none.
        margin: SparseMixer's routing instead: two experts, each with its share of a softmax over
            the experts whose router logits are nearly the largest, within this relative margin;
            ``None`` for a softmax over all experts.
    """

    n_experts: int
    n_chosen: int
    renormalised: bool = True
    bias_router: bool = False
    d_shared: int | None = None
    margin: float | None = None

    def __post_init__(self) -> None:
        check_positive_integers(self, "n_experts", "n_chosen")
        if self.d_shared is not None:
            check_positive_integers(self, "d_shared")
        if self.margin is not None and not (self.margin >= 0 and self.n_chosen == 2):  # noqa: PLR2004
            raise InvalidConfig(
                f"margin={self.margin} must be at least 0, and needs n_chosen=2, got "
                f"{self.n_chosen}."
            )
        if self.n_chosen > self.n_experts:
            raise InvalidConfig(
                f"n_chosen={self.n_chosen} must be at most n_experts={self.n_experts}."
            )


@dataclass(frozen=True)
class MLPConfig:
    """An MLP or a mixture of experts.

    Attributes:
        d_mlp: number of neurons (of each expert).
        activation: ``relu``, ``gelu`` (exact, with erf), ``gelu_tanh`` (as in GPT-2),
            ``gelu_bloom`` (``gelu_tanh`` with √(2/π) rounded to 0.79788456), ``quick_gelu``
            (x·σ(1.702 x)), ``silu`` or ``tanh``.
        gated: whether post = act(x·W_gate) * (x·W_in) instead of act(x·W_in).
        clamp: bound c of a gated MLP with post = act(min(gate, c)) * (1 + max(−c, min(pre, c))), as
            in GPT-OSS; ``None`` for none.
        bias_in: whether W_in (and W_gate) have a bias.
        bias_out: whether W_out has a bias.
        experts: the mixture of experts; ``None`` for a single MLP.
    """

    d_mlp: int
    activation: Activation = "gelu"
    gated: bool = False
    bias_in: bool = True
    bias_out: bool = True
    experts: ExpertsConfig | None = None
    clamp: float | None = None

    def __post_init__(self) -> None:
        check_positive_integers(self, "d_mlp")
        check_choice(self, "activation", Activation)
        check_positive(self, "clamp")
        for name in ("experts", "clamp"):
            if getattr(self, name) and not self.gated:
                raise InvalidConfig(f"mlp {name}= needs gated=True.")


@dataclass(frozen=True)
class ScalingConfig:
    """The scaling of rotary positions to a longer context than in training.

    Attributes:
        kind: ``linear`` (positions divided), ``dynamic`` (NTK-aware, by the length of the text),
            ``llama3`` (low frequencies divided), ``yarn`` (Peng et al. 2023), ``longrope`` (Ding
            et al. 2024: a divisor for each pair, for short and for long texts).
        factor: ratio of the contexts.
        original_ctx: length of the training context.
        low: ``llama3``: frequencies with wavelengths above original_ctx / low are divided by the
            factor.
        high: ``llama3``: frequencies with wavelengths below original_ctx / high are unchanged.
        beta_fast: ``yarn``: pairs with more rotations than this over the context are unchanged.
        beta_slow: ``yarn``: pairs with fewer rotations than this are divided by the factor.
        truncate: ``yarn``: whether the bounds of the range in between are rounded to whole pairs.
        short: ``longrope``: divisors of each pair's angle for up to ``original_ctx`` tokens.
        long: ``longrope``: divisors for longer texts.
        amplitude: factor of cosines and sines.
    """

    kind: ScalingKind
    factor: float = 1.0
    original_ctx: int = 1
    low: float = 1.0
    high: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()
    amplitude: float = 1.0

    def __post_init__(self) -> None:
        check_choice(self, "kind", ScalingKind)
        check_positive_integers(self, "original_ctx")
        check_positive(self, "factor")
        check_positive(self, "amplitude")
        if (self.kind == "longrope") != bool(self.short and self.long):
            raise InvalidConfig("scaling short= and long= are for longrope, which needs both.")
        if self.kind == "llama3" and not self.high > self.low > 0:
            raise InvalidConfig(f"llama3 needs 0 < low < high, got {self.low} and {self.high}.")


@dataclass(frozen=True)
class PositionsConfig:
    """The positions of a stack.

    Attributes:
        kind: ``learned`` and ``sinusoidal`` are added to the embedding; ``rotary`` rotates queries
            and keys; ``alibi`` adds a bias linear in the distance to the scores; ``buckets`` adds
            a learned relative bias for each bucket of distances (T5); ``grid`` adds one for each
            offset, in rows and columns, between two patches of an image (BEiT), and
            ``layer_grid`` likewise with other biases in each layer; ``none`` for no positions.
        base: base N of the wavelengths N^(2i/d) of sinusoidal and rotary positions.
        layout: dimensions of the i-th pair: ``half`` (i and i + d/2) or ``interleaved`` (2i and
            2i + 1).
        d_rotary: number of dimensions of a head that are rotated, starting with the first;
            ``None`` for all.
        scaling: scaling of rotary positions to longer contexts; ``None`` for none.
        n_buckets: number of buckets of distances.
        max_distance: distances of at least this are in the last bucket.
        bias_scale: factor of the biases of ``alibi``; ``None`` means 1.
        rounded: whether slopes and biases of ``alibi`` are rounded to bfloat16, as in Falcon.
        first: the number of the first sinusoidal position.
        learned: whether learned positions are added to the embedding beside the relative biases of
            ``buckets`` (as in MPNet), ``grid`` or ``layer_grid``.
    """

    kind: PositionKind = "learned"
    base: float = 10_000.0
    layout: PairLayout = "half"
    d_rotary: int | None = None
    scaling: ScalingConfig | None = None
    n_buckets: int = 32
    max_distance: int = 128
    bias_scale: float | None = None
    rounded: bool = False
    first: int = 0
    learned: bool = False

    def __post_init__(self) -> None:
        check_positive(self, "bias_scale")
        if (self.bias_scale or self.rounded) and self.kind != "alibi":
            raise InvalidConfig("positions bias_scale= and rounded= are for alibi.")
        check_choice(self, "kind", PositionKind)
        check_choice(self, "layout", PairLayout)
        check_positive_integers(self, "n_buckets", "max_distance")
        if self.d_rotary is not None:
            check_positive_integers(self, "d_rotary")
        if not self.base > 1:
            raise InvalidConfig(f"positions base={self.base} must be > 1.")
        if self.first and (self.kind != "sinusoidal" or self.first < 0):
            raise InvalidConfig(
                f"positions first={self.first} is for sinusoidal positions, and must be at least 0."
            )
        if self.learned and self.kind not in ("buckets", *GRIDS):
            raise InvalidConfig("positions learned=True is for buckets, grid and layer_grid.")
        if (self.d_rotary or self.scaling) and self.kind != "rotary":
            raise InvalidConfig("positions d_rotary= and scaling= are for rotary positions.")
        if self.kind == "buckets" and (
            self.n_buckets % 4 or 2 * self.max_distance <= self.n_buckets
        ):
            raise InvalidConfig(
                f"n_buckets={self.n_buckets} must be a multiple of 4 and less than twice "
                f"max_distance={self.max_distance}."
            )
