"""The configuration of the whole model: its stacks, the unembedding, special tokens."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

from interp.config.checks import check_choice, check_positive, check_positive_integers
from interp.config.parts import Activation, NormConfig
from interp.config.pooler import AttentionPoolerConfig
from interp.config.short import settings, short_repr
from interp.config.stack import StackConfig
from interp.errors import InvalidConfig
from interp.io import VERSION, Table, build, parse_json, without_version

NEWEST: Final = 1
"""The version of the JSON form. Files of older versions are read; newer ones are refused."""


@dataclass(frozen=True)
class HeadConfig:
    """The layer before the unembedding of a masked language model: norm(act(x·W + b)).

    Attributes:
        activation: as in :class:`MLPConfig`.
        norm: the norm after the activation.
        bias: whether there is a bias b.
        after_norm: whether x is the output of the last norm (ModernBERT) instead of the last
            stream.
        width: width of its output; ``None`` means d_model.
    """

    activation: Activation = "gelu"
    norm: NormConfig = NormConfig()
    bias: bool = True
    after_norm: bool = False
    width: int | None = None

    def __post_init__(self) -> None:
        check_choice(self, "activation", Activation)
        if self.width is not None:
            check_positive_integers(self, "width")


@dataclass(frozen=True)
class TokensConfig:
    """The special tokens, and whether they are added to texts.

    Attributes:
        bos: id of the token at the beginning of a text; ``None`` if the model has none.
        eos: id of the token at the end of a text, at which generation stops.
        stop: ids of further tokens at which generation stops, such as the end of a turn in a chat.
        prepend_bos: whether ``bos`` is added before a text, in every function that takes a text.
            Token ids are used unchanged.
        decoder_start: first token of every text for the decoder of an encoder–decoder.
        append_eos: whether ``eos`` is added after a text, in every function that takes a text;
            never to a text for the decoder of an encoder–decoder.
        mask: id of the mask token, which replaces a token to be predicted in a masked language
            model.
        after_eos: ids of tokens that follow an ``eos`` added to a text, such as the token of its
            language.
    """

    bos: int | None = None
    eos: int | None = None
    prepend_bos: bool = False
    decoder_start: int | None = None
    append_eos: bool = False
    mask: int | None = None
    stop: tuple[int, ...] = ()
    after_eos: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.prepend_bos and self.bos is None:
            raise InvalidConfig("prepend_bos=True, but bos is None: pass the id of the BOS token.")
        if self.append_eos and self.eos is None:
            raise InvalidConfig("append_eos=True, but eos is None: pass the id of the EOS token.")
        if self.after_eos and not self.append_eos:
            raise InvalidConfig(f"after_eos={self.after_eos} needs append_eos=True.")


@dataclass(frozen=True)
class Config:
    """The configuration of a model.

    Attributes:
        d_model: width of the residual stream.
        d_vocab: size of the vocabulary (for a model of images: number of classes, or dimension of
            its embedding).
        n_ctx: maximum sequence length.
        decoder: the causal stack (unless its attention is ``bidirectional``), or ``None``.
        encoder: the bidirectional stack, or ``None``.
        tied: whether W_U is the transpose of W_E.
        bias_u: whether the unembedding has a bias.
        unembeds: whether there is an unembedding; a model without one returns its last stream.
        n_classes: number of classes of a classifier of texts or tokens, or dimension of an
            embedding of texts; ``None`` if the logits are those of tokens.
        head: layer before the unembedding of a masked language model or a classifier.
        pooler: whether ``model.pooler`` computes tanh(x·W + b) of the first token's stream.
        attention_pooler: configuration of ``model.pooler`` if it computes one vector from the
            whole stream by attention.
        d_unembed: width of the input of the unembedding (or of the output of a model without one),
            if the stream is first projected to it.
        logit_scale: factor of the stream before the unembedding.
        logit_cap: soft-cap c: logits l become c·tanh(l / c).
        shared: whether both stacks of an encoder–decoder share one token embedding.
        d_vocab_source: size of the encoder's vocabulary, if it differs from the decoder's.
        tokens: special tokens, and whether they are added to texts.
        name: name of the model, for display.

    Examples:
        >>> interp.load("python-2l").config
        Config(d_model=256, d_vocab=512, n_ctx=256, decoder=StackConfig(n_layers=2,
        attention=AttentionConfig(n_heads=8, d_head=32, bias_o=False),
        positions=PositionsConfig(kind='rotary')), tokens=TokensConfig(bos=0, prepend_bos=True),
        name='python-2l')
    """

    d_model: int
    d_vocab: int
    n_ctx: int
    decoder: StackConfig | None = None
    encoder: StackConfig | None = None
    tied: bool = False
    bias_u: bool = False
    unembeds: bool = True
    n_classes: int | None = None
    head: HeadConfig | None = None
    pooler: bool = False
    attention_pooler: AttentionPoolerConfig | None = None
    d_unembed: int | None = None
    logit_scale: float | None = None
    logit_cap: float | None = None
    shared: bool = False
    d_vocab_source: int | None = None
    tokens: TokensConfig = TokensConfig()
    name: str = ""

    def __post_init__(self) -> None:
        check_positive_integers(self, "d_model", "d_vocab", "n_ctx")
        check_positive(self, "logit_scale")
        check_positive(self, "logit_cap")
        if self.decoder is None and self.encoder is None:
            raise InvalidConfig("A model needs a decoder= or an encoder= stack, but both are None.")
        for stack in self.stacks.values():
            self._check_stack(stack)
        self._check_exit()
        self._check_tokens()

    def _check_stack(self, stack: StackConfig) -> None:
        if stack.embedding.patches is not None and stack is self.decoder:
            raise InvalidConfig(
                "patches= are for an encoder: attention between patches is bidirectional."
            )
        if stack.positions.kind == "sinusoidal" and self.d_model % 2:
            raise InvalidConfig(
                f"sinusoidal positions need pairs of dimensions, but d_model={self.d_model} is odd."
            )
        patches = stack.embedding.patches
        if patches is not None and patches.n_patches + patches.n_special != self.n_ctx:
            raise InvalidConfig(
                f"n_ctx={self.n_ctx}, but an image has {patches.n_patches} patches and "
                f"{patches.n_special} special tokens; n_ctx must be their sum."
            )
        if self.encoder is not None:
            self._check_encoder(self.encoder)
        if self.encoder is not None and self.decoder is not None:
            self._check_pair(self.decoder)

    def _check_encoder(self, encoder: StackConfig) -> None:
        """Check that no setting of attention is for decoders only."""
        attentions = [layer.attention for layer in encoder.layer_kinds]
        if any(attention.bidirectional for attention in attentions):
            raise InvalidConfig(
                "attention bidirectional= is for a decoder; an encoder's always is."
            )

    def _check_pair(self, decoder: StackConfig) -> None:
        """Check that the decoder may have cross-attention."""
        if decoder.norm.placement not in ("pre", "post"):
            raise InvalidConfig(
                f'placement="{decoder.norm.placement}" is for a decoder alone; one with an encoder '
                'needs "pre" or "post".'
            )
        if decoder.residual_scale is not None:
            raise InvalidConfig("residual_scale= is for a decoder without an encoder.")
        attentions = [layer.attention for layer in decoder.layer_kinds]
        if any(
            attention.window
            or attention.cap
            or attention.qk_norm
            or attention.sinks
            or attention.clip
            for attention in attentions
        ):
            raise InvalidConfig(
                "attention window=, cap=, qk_norm=, sinks= and clip= are for a decoder alone, not "
                "for one with an encoder."
            )

    def _check_exit(self) -> None:
        last = list(self.stacks.values())[-1]
        if self.d_unembed is not None:
            check_positive_integers(self, "d_unembed")
        stored = last.embedding.width or last.embedding.sum_width or self.d_model
        reads = self.unembed_width
        if self.tied and reads != stored:
            raise InvalidConfig(
                f"tied=True, but W_U would read {reads} dimensions, and W_E has another width."
            )
        if self.tied and last.embedding.patches:
            raise InvalidConfig("tied=True, but a model of images has no token embedding.")
        self._check_logits(last)

    def _check_logits(self, last: StackConfig) -> None:
        """Check that the settings of the unembedding are compatible."""
        if self.n_classes is not None:
            check_positive_integers(self, "n_classes")
            if self.tied:
                raise InvalidConfig(
                    "tied=True, but W_E embeds tokens, and n_classes= are not tokens."
                )
        self._check_mean_pooling(last)
        if self.pooler and self.attention_pooler is not None:
            raise InvalidConfig("pooler=True and attention_pooler= can't be combined; set one.")
        if self.head is not None and last.norm.final != self.head.after_norm:
            raise InvalidConfig(
                "head= replaces the last norm: set norm final=False; or reads its output: set head "
                "after_norm=True and norm final=True."
            )
        if self.d_unembed is not None and self.head is not None and self.head.width is not None:
            raise InvalidConfig("d_unembed= and head width= can't be combined.")
        if self.d_unembed is not None and self.logit_scale is not None:
            raise InvalidConfig("d_unembed= and logit_scale= can't be combined.")
        names = ("tied", "bias_u", "n_classes", "head", "logit_cap", "logit_scale")
        for name in (name for name in names if getattr(self, name) and not self.unembeds):
            raise InvalidConfig(f"unembeds=False, but {name}= is set, which needs logits.")

    def _check_mean_pooling(self, last: StackConfig) -> None:
        """Check that the vector of an image can be the mean of its patches."""
        patches = last.embedding.patches
        if patches is None or not patches.mean_pooled:
            return
        if self.head is not None or self.pooler or self.attention_pooler is not None:
            raise InvalidConfig("mean_pooled=True can't be combined with head= or a pooler.")
        if last.norm.kind == "none" or (self.unembeds and not last.norm.final):
            raise InvalidConfig(
                "mean_pooled=True normalizes the mean of the patches: the norm needs another kind "
                'than "none", and final=True if there are logits.'
            )

    def _check_tokens(self) -> None:
        for label in ("bos", "eos", "decoder_start", "mask", "stop", "after_eos"):
            value = getattr(self.tokens, label)
            for token in value if isinstance(value, tuple) else (value,):
                if token is not None and not 0 <= token < self.d_vocab:
                    raise InvalidConfig(f"tokens.{label}={token} is outside 0..{self.d_vocab - 1}.")
        if len(self.stacks) > 1:
            if self.shared and self.d_vocab_source not in (None, self.d_vocab):
                raise InvalidConfig("shared=True, so d_vocab_source must be None or d_vocab.")
            return
        pairs_only = {
            "tokens.decoder_start": self.tokens.decoder_start is not None,
            "shared": self.shared,
            "d_vocab_source": self.d_vocab_source is not None,
        }
        for name in (name for name, is_set in pairs_only.items() if is_set):
            raise InvalidConfig(f"{name} is for an encoder–decoder, but there is one stack.")

    def __repr__(self) -> str:
        """The constructor call, without fields that have their default values."""
        return short_repr(self)

    def _repr_html_(self) -> str:
        return Table(f"Config {self.name}", ("field", "value"), list(settings(self))).to_html()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its JSON form."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @cached_property
    def stacks(self) -> Mapping[str, StackConfig]:
        """The stacks by name, in the order in which they run."""
        pair = {"encoder": self.encoder, "decoder": self.decoder}
        return {name: stack for name, stack in pair.items() if stack is not None}

    @property
    def is_causal(self) -> bool:
        """Whether tokens attend to no later ones, so that the model can predict the next token."""
        return self.decoder is not None and not any(
            layer.attention.bidirectional for layer in self.decoder.layer_kinds
        )

    @cached_property
    def n_logits(self) -> int:
        """Number of logits at each position: one for each class, or for each token."""
        return self.d_vocab if self.n_classes is None else self.n_classes

    @property
    def unembed_width(self) -> int:
        """Width of the input of the unembedding's matrix."""
        after_head = None if self.head is None else self.head.width
        return self.d_unembed or after_head or self.d_model

    def vocabulary_of(self, stack: str) -> int:
        """Size of the vocabulary that a stack reads."""
        only = len(self.stacks) == 1 or stack != "encoder"
        return self.d_vocab if only or self.d_vocab_source is None else self.d_vocab_source

    def to_dict(self) -> dict[str, Any]:
        """Nested dictionaries that can be written as JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """JSON text, from which :meth:`from_json` builds an equal ``Config``."""
        return json.dumps({VERSION: NEWEST, **self.to_dict()}, indent=2) + "\n"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Config":
        """The inverse of :meth:`to_dict`; accepts the version that :meth:`to_json` adds.

        Raises:
            InvalidConfig: a field is unknown, missing or of the wrong type, or the version of the
                format is newer than this package.
        """
        return build(cls, without_version(values, NEWEST, "config"), "config")

    @classmethod
    def from_json(cls, text: str) -> "Config":
        """The inverse of :meth:`to_json`.

        Raises:
            InvalidConfig: as for :meth:`from_dict`; or the text is not JSON.
        """
        try:
            values = parse_json(text)
        except ValueError as error:
            raise InvalidConfig(f"The configuration is not JSON: {error}.") from error
        return build(cls, without_version(values, NEWEST, "config"), "config")
