"""What describes the parts of a block: its attention, its MLP, its norms, its positions."""

from dataclasses import dataclass
from typing import Literal

from interp.config.checks import one_of, positive, positive_number
from interp.errors import InvalidConfig

Activation = Literal["relu", "gelu", "gelu_tanh", "gelu_bloom", "quick_gelu", "silu", "tanh"]
NormKind = Literal["layernorm", "rmsnorm", "none"]
Placement = Literal["pre", "post", "sandwich", "write", "stream", "parallel", "parallel_tied"]
PositionKind = Literal["none", "learned", "sinusoidal", "rotary", "alibi", "buckets"]
ScalingKind = Literal["linear", "dynamic", "llama3", "yarn", "longrope"]
Layout = Literal["half", "interleaved"]
Span = Literal["head", "heads"]


@dataclass(frozen=True)
class NormConfig:
    """The norms of one stack.

    Attributes:
        kind: ``layernorm``, ``rmsnorm`` or ``none``.
        placement: what a step does with the stream x, and f its attention or MLP:

            - ``pre``: x + f(norm(x)), as GPT-2;
            - ``post``: norm(x + f(x)), as the original Transformer;
            - ``sandwich``: x + norm(f(norm(x))), as Gemma 2;
            - ``write``: x + norm(f(x)), as OLMo 2;
            - ``stream``: y + f(y) with y = norm(x), as BLOOM if it is told so;
            - ``parallel``: x + attention(norm(x)) + mlp(norm(x)), each with its own norm, as
              GPT-NeoX;
            - ``parallel_tied``: the same with one norm for both, as GPT-J.
        final: whether a last norm stands before the unembedding (or the decoder).
        gain: whether a norm multiplies by a learned gain.
        bias: whether it adds a learned bias (LayerNorm only).
        eps: added to the variance before the root.
        unit_offset: whether the gain is 1 + what is learned, as in Gemma.
    """

    kind: NormKind = "layernorm"
    placement: Placement = "pre"
    final: bool = True
    gain: bool = True
    bias: bool = True
    eps: float = 1e-5
    unit_offset: bool = False

    def __post_init__(self) -> None:
        one_of(self, "kind", NormKind)
        one_of(self, "placement", Placement)
        if self.kind == "rmsnorm" and self.bias:
            raise InvalidConfig("norm bias=True: an RMSNorm has no bias; say bias=False.")
        if self.kind == "none" and self.placement not in ("pre", "parallel"):
            raise InvalidConfig(
                f'norm placement="{self.placement}" with kind="none": there is nothing to place.'
            )
        if not self.eps >= 0:
            raise InvalidConfig(f"norm eps={self.eps} must be >= 0.")
        if self.unit_offset and (self.kind != "rmsnorm" or not self.gain):
            raise InvalidConfig("norm unit_offset=True is for the gain of an RMSNorm.")


NO_NORM = NormConfig(kind="none", final=False)
"""No norms at all: x1 = x0 + H(x0), literally."""


@dataclass(frozen=True)
class AttentionConfig:
    """One multi-head attention.

    Attributes:
        n_heads: query heads.
        d_head: dimensions of a head; need not be d_model / n_heads.
        n_kv_heads: key/value heads, each shared by n_heads / n_kv_heads query heads; ``None``
            means as many as query heads.
        bias_q: whether queries have a bias; ``bias_k``, ``bias_v``, ``bias_o`` likewise.
        scale: what scores are divided by; ``None`` means sqrt(d_head).
        window: a query sees so many keys, its own among them; ``None`` means all (before it).
        cap: scores s become cap·tanh(s / cap) before the mask; ``None`` leaves them.
        qk_norm: a norm of queries and keys before their positions; ``None`` has none.
        qk_norm_over: whether it goes over each ``head`` or over all ``heads`` together.
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
    cap: float | None = None
    qk_norm: NormConfig | None = None
    qk_norm_over: Span = "head"

    def __post_init__(self) -> None:
        positive(self, "n_heads", "d_head")
        one_of(self, "qk_norm_over", Span)
        if self.n_kv_heads is not None:
            positive(self, "n_kv_heads")
            if self.n_heads % self.n_kv_heads:
                raise InvalidConfig(
                    f"n_heads={self.n_heads} query heads can't be shared evenly among "
                    f"n_kv_heads={self.n_kv_heads}; n_heads must be a multiple of it."
                )
        if self.window is not None:
            positive(self, "window")
        if self.scale is not None and not self.scale > 0:
            raise InvalidConfig(f"scale={self.scale}: scores are divided by it; it must be > 0.")
        positive_number(self, "cap")

    @property
    def kv_heads(self) -> int:
        """How many key/value heads there are."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def divisor(self) -> float:
        """What scores are divided by."""
        return self.d_head**0.5 if self.scale is None else self.scale


@dataclass(frozen=True)
class ExpertsConfig:
    """A mixture of experts: a router gives each token to a few of many MLPs.

    Attributes:
        n_experts: how many MLPs there are.
        n_chosen: to how many of them a token goes: those with the highest router logits.
        renormalised: whether the weights of the chosen are divided by their sum.
    """

    n_experts: int
    n_chosen: int
    renormalised: bool = True

    def __post_init__(self) -> None:
        positive(self, "n_experts", "n_chosen")
        if self.n_chosen > self.n_experts:
            raise InvalidConfig(
                f"n_chosen={self.n_chosen} experts can't be chosen of n_experts={self.n_experts}."
            )


@dataclass(frozen=True)
class MLPConfig:
    """One MLP.

    Attributes:
        d_mlp: neurons (of each expert, if there are several).
        activation: ``relu``, ``gelu`` (exact, by erf), ``gelu_tanh`` (GPT-2's), ``gelu_bloom``
            (the same with √(2/π) rounded to 0.79788456), ``quick_gelu`` (x·σ(1.702 x)), ``silu``,
            ``tanh``.
        gated: whether post = act(x·W_gate) * (x·W_in) instead of act(x·W_in).
        bias_in: whether W_in (and W_gate) have a bias.
        bias_out: whether W_out has one.
        experts: the mixture, if it is one.
    """

    d_mlp: int
    activation: Activation = "gelu"
    gated: bool = False
    bias_in: bool = True
    bias_out: bool = True
    experts: ExpertsConfig | None = None

    def __post_init__(self) -> None:
        positive(self, "d_mlp")
        one_of(self, "activation", Activation)
        if self.experts and (not self.gated or self.bias_in or self.bias_out):
            raise InvalidConfig("experts= are for MLPs with gated=True and without biases.")


@dataclass(frozen=True)
class ScalingConfig:
    """How rotary positions were stretched to a longer context than they were trained on.

    Attributes:
        kind: ``linear`` (positions divided), ``dynamic`` (NTK-aware, by the text's length),
            ``llama3`` (slow turns slowed), ``yarn`` (Peng et al. 2023), ``longrope`` (Ding et al.
            2024: a factor a pair, short or long by the text's length).
        factor: how many times longer.
        original_ctx: the context trained on.
        low: ``llama3``: wavelengths over original_ctx / low are divided by the factor.
        high: ``llama3``: those under original_ctx / high are left alone.
        beta_fast: ``yarn``: pairs that turn more often than this over the context are left alone.
        beta_slow: ``yarn``: those that turn less often are divided by the factor.
        truncate: ``yarn``: whether the bounds between are rounded to whole pairs.
        short: ``longrope``: divisors of each pair's angle up to ``original_ctx`` tokens.
        long: ``longrope``: the same for longer texts.
        amplitude: what cosines and sines are multiplied by.
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
        one_of(self, "kind", ScalingKind)
        positive(self, "original_ctx")
        positive_number(self, "factor")
        positive_number(self, "amplitude")
        if (self.kind == "longrope") != bool(self.short and self.long):
            raise InvalidConfig("scaling short= and long= are for longrope, which needs both.")
        if self.kind == "llama3" and not self.high > self.low > 0:
            raise InvalidConfig(f"llama3 needs 0 < low < high, got {self.low} and {self.high}.")


@dataclass(frozen=True)
class PositionsConfig:
    """How a stack knows where a token stands.

    Attributes:
        kind: ``learned`` and ``sinusoidal`` are added to the embedding, ``rotary`` turns queries
            and keys, ``alibi`` lowers scores with distance, ``buckets`` adds to scores what was
            learned for each range of distances (T5), ``none`` is none.
        base: N of the wavelengths N^(2i/d) of sinusoidal and rotary positions.
        layout: where the pairs of a wavelength stand: ``half`` (i and i + d/2) or
            ``interleaved`` (2i and 2i + 1).
        d_rotary: how many dimensions of a head turn, the first ones; ``None`` means all.
        scaling: how rotary positions were stretched; ``None`` if they were not.
        n_buckets: ranges of distances.
        max_distance: distances from here on share the last range.
    """

    kind: PositionKind = "learned"
    base: float = 10_000.0
    layout: Layout = "half"
    d_rotary: int | None = None
    scaling: ScalingConfig | None = None
    n_buckets: int = 32
    max_distance: int = 128

    def __post_init__(self) -> None:
        one_of(self, "kind", PositionKind)
        one_of(self, "layout", Layout)
        positive(self, "n_buckets", "max_distance")
        if self.d_rotary is not None:
            positive(self, "d_rotary")
        if not self.base > 1:
            raise InvalidConfig(f"positions base={self.base} must be > 1.")
        if (self.d_rotary or self.scaling) and self.kind != "rotary":
            raise InvalidConfig("positions d_rotary= and scaling= are for rotary positions.")
        if self.kind == "buckets" and (
            self.n_buckets % 4 or 2 * self.max_distance <= self.n_buckets
        ):
            raise InvalidConfig(
                f"n_buckets={self.n_buckets} must be a multiple of 4 and less than twice "
                f"max_distance={self.max_distance}."
            )
