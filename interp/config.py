"""What describes a Transformer: a frozen tree of choices, one dataclass a part.

A :class:`Config` holds one or two stacks. A *decoder* sees earlier positions only, an *encoder*
sees all, and with both the decoder also attends to what the encoder gives out. Every choice here
becomes an object when the model is built; no forward asks a configuration anything.
"""

import json
from dataclasses import asdict, dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from interp.errors import InvalidConfig

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
NormKind = Literal["layernorm", "rmsnorm", "none"]
Placement = Literal["pre", "post"]
PositionKind = Literal["none", "learned", "sinusoidal", "rotary", "alibi"]
Layout = Literal["half", "interleaved"]

_Part = TypeVar("_Part")


def _positive(part: object, *names: str) -> None:
    for name in names:
        value = getattr(part, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidConfig(f"{name}={value!r} must be a whole number of at least 1.")


def _one_of(part: object, name: str, kind: Any) -> None:  # noqa: ANN401 - a Literal
    value, known = getattr(part, name), get_args(kind)
    if value not in known:
        raise InvalidConfig(f"{name}={value!r} is not known; it is one of {', '.join(known)}.")


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
    """

    n_heads: int
    d_head: int
    n_kv_heads: int | None = None
    bias_q: bool = True
    bias_k: bool = True
    bias_v: bool = True
    bias_o: bool = True
    scale: float | None = None

    def __post_init__(self) -> None:
        _positive(self, "n_heads", "d_head")
        if self.n_kv_heads is not None:
            _positive(self, "n_kv_heads")
            if self.n_heads % self.n_kv_heads:
                raise InvalidConfig(
                    f"n_heads={self.n_heads} query heads can't be shared evenly among "
                    f"n_kv_heads={self.n_kv_heads}; n_heads must be a multiple of it."
                )
        if self.scale is not None and not self.scale > 0:
            raise InvalidConfig(f"scale={self.scale}: scores are divided by it; it must be > 0.")

    @property
    def kv_heads(self) -> int:
        """How many key/value heads there are."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def divisor(self) -> float:
        """What scores are divided by."""
        return self.d_head**0.5 if self.scale is None else self.scale


@dataclass(frozen=True)
class MLPConfig:
    """One MLP.

    Attributes:
        d_mlp: neurons.
        activation: ``relu``, ``gelu`` (exact, by erf), ``gelu_tanh`` (GPT-2's), ``silu``.
        gated: whether post = act(x·W_gate) * (x·W_in) instead of act(x·W_in).
        bias_in: whether W_in (and W_gate) have a bias.
        bias_out: whether W_out has one.
    """

    d_mlp: int
    activation: Activation = "gelu"
    gated: bool = False
    bias_in: bool = True
    bias_out: bool = True

    def __post_init__(self) -> None:
        _positive(self, "d_mlp")
        _one_of(self, "activation", Activation)


@dataclass(frozen=True)
class NormConfig:
    """The norms of one stack.

    Attributes:
        kind: ``layernorm``, ``rmsnorm`` or ``none``.
        placement: ``pre``: x + f(norm(x)); ``post``: norm(x + f(x)).
        final: whether a last norm stands before the unembedding (or the decoder).
        gain: whether a norm multiplies by a learned gain.
        bias: whether it adds a learned bias (LayerNorm only).
        eps: added to the variance before the root.
    """

    kind: NormKind = "layernorm"
    placement: Placement = "pre"
    final: bool = True
    gain: bool = True
    bias: bool = True
    eps: float = 1e-5

    def __post_init__(self) -> None:
        _one_of(self, "kind", NormKind)
        _one_of(self, "placement", Placement)
        if self.kind == "rmsnorm" and self.bias:
            raise InvalidConfig("norm bias=True: an RMSNorm has no bias; say bias=False.")
        if self.kind == "none" and self.placement == "post":
            raise InvalidConfig(
                'norm placement="post" with kind="none": there is nothing to place.'
            )
        if not self.eps >= 0:
            raise InvalidConfig(f"norm eps={self.eps} must be >= 0.")


NO_NORM = NormConfig(kind="none", final=False)
"""No norms at all: x1 = x0 + H(x0), literally."""


@dataclass(frozen=True)
class PositionsConfig:
    """How a stack knows where a token stands.

    Attributes:
        kind: ``learned`` and ``sinusoidal`` are added to the embedding, ``rotary`` turns queries
            and keys, ``alibi`` lowers scores with distance, ``none`` is none.
        base: N of the wavelengths N^(2i/d) of sinusoidal and rotary positions.
        layout: where the pairs of a wavelength stand: ``half`` (i and i + d/2) or
            ``interleaved`` (2i and 2i + 1).
    """

    kind: PositionKind = "learned"
    base: float = 10_000.0
    layout: Layout = "half"

    def __post_init__(self) -> None:
        _one_of(self, "kind", PositionKind)
        _one_of(self, "layout", Layout)
        if not self.base > 1:
            raise InvalidConfig(f"positions base={self.base} must be > 1.")


@dataclass(frozen=True)
class StackConfig:
    """One tower of blocks.

    Attributes:
        n_layers: blocks.
        attention: the attention of each block (and the cross-attention, in a decoder of a pair).
        mlp: the MLP of each block; ``None`` makes the stack attention-only.
        norm: its norms.
        positions: its positions.
    """

    n_layers: int
    attention: AttentionConfig
    mlp: MLPConfig | None = None
    norm: NormConfig = NormConfig()
    positions: PositionsConfig = PositionsConfig()

    def __post_init__(self) -> None:
        _positive(self, "n_layers")
        if self.positions.kind == "rotary" and self.attention.d_head % 2:
            raise InvalidConfig(
                f"rotary positions turn pairs, but d_head={self.attention.d_head} is odd."
            )


@dataclass(frozen=True)
class TokensConfig:
    """The special tokens, and the one rule about them.

    Attributes:
        bos: id of the token that begins a text; ``None`` if the model has none.
        eos: id of the token that ends one; generation stops there.
        prepend_bos: the rule: whether a *text* gets ``bos`` in front, at every entry point alike.
            Token ids given as numbers are taken as they are.
        decoder_start: the token that a paired decoder starts from.
    """

    bos: int | None = None
    eos: int | None = None
    prepend_bos: bool = False
    decoder_start: int | None = None

    def __post_init__(self) -> None:
        if self.prepend_bos and self.bos is None:
            raise InvalidConfig("prepend_bos=True, but bos is None: say which token it is.")


@dataclass(frozen=True)
class Config:
    """A whole model.

    Attributes:
        d_model: width of the residual stream.
        d_vocab: number of tokens.
        n_ctx: longest sequence.
        decoder: the causal stack, or ``None``.
        encoder: the bidirectional stack, or ``None``.
        tied: whether W_U is the transpose of W_E.
        bias_u: whether the unembedding has a bias.
        tokens: special tokens and the BOS rule.
        name: what the model is called; only shown.
    """

    d_model: int
    d_vocab: int
    n_ctx: int
    decoder: StackConfig | None = None
    encoder: StackConfig | None = None
    tied: bool = False
    bias_u: bool = False
    tokens: TokensConfig = TokensConfig()
    name: str = ""

    def __post_init__(self) -> None:
        _positive(self, "d_model", "d_vocab", "n_ctx")
        if self.decoder is None and self.encoder is None:
            raise InvalidConfig("A model needs a decoder= or an encoder= stack; both are None.")
        for stack in (self.encoder, self.decoder):
            if stack and stack.positions.kind == "sinusoidal" and self.d_model % 2:
                raise InvalidConfig(
                    f"sinusoidal positions come in pairs, but d_model={self.d_model} is odd."
                )
        self._check_tokens()

    def _check_tokens(self) -> None:
        for label in ("bos", "eos", "decoder_start"):
            token = getattr(self.tokens, label)
            if token is not None and not 0 <= token < self.d_vocab:
                raise InvalidConfig(f"tokens.{label}={token} is outside 0..{self.d_vocab - 1}.")
        paired = self.decoder is not None and self.encoder is not None
        if self.tokens.decoder_start is not None and not paired:
            raise InvalidConfig("tokens.decoder_start is for an encoder–decoder; this is not one.")

    @property
    def stacks(self) -> dict[str, StackConfig]:
        """The stacks in the order in which they run."""
        pair = {"encoder": self.encoder, "decoder": self.decoder}
        return {name: stack for name, stack in pair.items() if stack is not None}

    def to_dict(self) -> dict[str, Any]:
        """Plain nested dictionaries, ready for JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """JSON text; :meth:`from_json` reads it back to an equal ``Config``."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Config":
        """The inverse of :meth:`to_dict`.

        Raises:
            InvalidConfig: an unknown, missing or ill-typed field, named with its path.
        """
        return _build(cls, values, "config")

    @classmethod
    def from_json(cls, text: str) -> "Config":
        """The inverse of :meth:`to_json`."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidConfig(f"The configuration is not JSON: {error}.") from error
        return _build(cls, values, "config")


def _build(kind: type[_Part], values: object, path: str) -> _Part:
    """Make the dataclass ``kind`` from nested dictionaries, refusing what does not fit."""
    if not isinstance(values, dict):
        raise InvalidConfig(f"{path} should be an object with fields, got {values!r}.")
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType] - a dataclass
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise InvalidConfig(f"{path} has no field {unknown[0]!r}; its fields: {', '.join(names)}.")
    read = {name: _value(hints[name], value, f"{path}.{name}") for name, value in values.items()}
    try:
        return kind(**read)
    except TypeError as error:
        raise InvalidConfig(f"{path}: {error}.") from error


def _value(hint: Any, value: object, path: str) -> object:  # noqa: ANN401 - a type hint
    """``value`` read as ``hint``: a dataclass, a Literal, a number, or one of these or None."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    (option,) = [option for option in options if option is not type(None)]
    if is_dataclass(option):
        return _build(option, value, path)  # pyright: ignore[reportArgumentType] - a class
    if get_origin(option) is Literal:
        return value  # checked by the part itself, which knows its own name for it
    exact = isinstance(value, option) and isinstance(value, bool) == (option is bool)
    if exact:
        return value
    if option is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    raise InvalidConfig(f"{path} should be of type {option.__name__}, got {value!r}.")
