"""What describes the whole model: its stacks, what comes behind them, its tokens."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from interp.config.checks import one_of, positive, positive_number
from interp.config.from_dict import build
from interp.config.parts import Activation, NormConfig
from interp.config.stack import StackConfig
from interp.errors import InvalidConfig


@dataclass(frozen=True)
class HeadConfig:
    """What a masked language model does before the unembedding: norm(act(x·W + b)).

    Attributes:
        activation: as of an MLP.
        norm: its norm.
    """

    activation: Activation = "gelu"
    norm: NormConfig = NormConfig()

    def __post_init__(self) -> None:
        one_of(self, "activation", Activation)


@dataclass(frozen=True)
class TokensConfig:
    """The special tokens, and the one rule about them.

    Attributes:
        bos: id of the token that begins a text; ``None`` if the model has none.
        eos: id of the token that ends one; generation stops there.
        prepend_bos: the rule: whether a *text* gets ``bos`` in front, at every entry point alike.
            Token ids given as numbers are taken as they are.
        decoder_start: the token that a paired decoder starts from; any text for it does.
        append_eos: whether a text gets ``eos`` behind it, by the same rule as ``bos`` before it;
            a text for a paired decoder stays open.
    """

    bos: int | None = None
    eos: int | None = None
    prepend_bos: bool = False
    decoder_start: int | None = None
    append_eos: bool = False

    def __post_init__(self) -> None:
        if self.prepend_bos and self.bos is None:
            raise InvalidConfig("prepend_bos=True, but bos is None: say which token it is.")
        if self.append_eos and self.eos is None:
            raise InvalidConfig("append_eos=True, but eos is None: say which token it is.")


@dataclass(frozen=True)
class Config:
    """A whole model.

    Attributes:
        d_model: width of the residual stream.
        d_vocab: number of tokens (or of classes, that an image may belong to).
        n_ctx: longest sequence.
        decoder: the causal stack, or ``None``.
        encoder: the bidirectional stack, or ``None``.
        tied: whether W_U is the transpose of W_E.
        bias_u: whether the unembedding has a bias.
        unembeds: whether there is an unembedding; without one a model gives out its last stream.
        n_classes: number of classes that the logits tell apart, if those are not the tokens.
        head: what comes before the unembedding of a masked language model or a classifier.
        pooler: whether ``model.pooler`` makes tanh(x·W + b) of the first token's stream.
        d_unembed: width that the unembedding reads, if a matrix brings the stream to it.
        logit_scale: what the stream is multiplied by before the unembedding.
        logit_cap: logits l become cap·tanh(l / cap).
        shared: whether both stacks of a pair have one token embedding.
        d_vocab_source: number of the encoder's tokens, if it reads others than the decoder.
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
    unembeds: bool = True
    n_classes: int | None = None
    head: HeadConfig | None = None
    pooler: bool = False
    d_unembed: int | None = None
    logit_scale: float | None = None
    logit_cap: float | None = None
    shared: bool = False
    d_vocab_source: int | None = None
    tokens: TokensConfig = TokensConfig()
    name: str = ""

    def __post_init__(self) -> None:
        positive(self, "d_model", "d_vocab", "n_ctx")
        positive_number(self, "logit_scale")
        positive_number(self, "logit_cap")
        if self.decoder is None and self.encoder is None:
            raise InvalidConfig("A model needs a decoder= or an encoder= stack; both are None.")
        for stack in self.stacks.values():
            self._check_stack(stack)
        self._check_exit()
        self._check_tokens()

    def _check_stack(self, stack: StackConfig) -> None:
        if stack.embedding.patches is not None and stack is self.decoder:
            raise InvalidConfig("patches= are for an encoder: an image is seen as a whole.")
        if stack.positions.kind == "sinusoidal" and self.d_model % 2:
            raise InvalidConfig(
                f"sinusoidal positions come in pairs, but d_model={self.d_model} is odd."
            )
        patches = stack.embedding.patches
        if patches is not None and patches.n_patches + patches.n_special != self.n_ctx:
            raise InvalidConfig(
                f"n_ctx={self.n_ctx}, but the image gives {patches.n_patches} patches and "
                f"{patches.n_special} special tokens."
            )

        if self.encoder is not None and any(
            self.encoder.of_layer(n).attention.window for n in range(self.encoder.n_layers)
        ):
            raise InvalidConfig("attention window= is for a decoder, which sees what was before.")
        if self.encoder is not None and self.decoder is not None:
            self._check_pair(self.decoder)

    def _check_pair(self, decoder: StackConfig) -> None:
        """Make sure that a decoder is of a kind that can also attend to an encoder."""
        if decoder.norm.placement not in ("pre", "post"):
            raise InvalidConfig(
                f'placement="{decoder.norm.placement}" is for a decoder alone; one that attends to '
                'an encoder takes "pre" or "post".'
            )
        every = [decoder.of_layer(layer).attention for layer in range(decoder.n_layers)]
        if any(own.window or own.cap or own.qk_norm for own in every):
            raise InvalidConfig(
                "attention window=, cap= and qk_norm= are for a decoder alone, not for one that "
                "attends to an encoder."
            )

    def _check_exit(self) -> None:
        last = list(self.stacks.values())[-1]
        if self.d_unembed is not None:
            positive(self, "d_unembed")
        reads = self.d_unembed or self.d_model
        if self.tied and reads != (last.embedding.width or self.d_model):
            raise InvalidConfig(f"tied=True: W_U would read {reads} dimensions, W_E has others.")
        if self.tied and last.embedding.patches:
            raise InvalidConfig("tied=True: an image has no tokens whose embedding could be used.")
        self._check_logits(last)

    def _check_logits(self, last: StackConfig) -> None:
        """Make sure that what is told of logits can be had together."""
        if self.n_classes is not None:
            positive(self, "n_classes")
            if self.tied:
                raise InvalidConfig("tied=True: W_E tells tokens apart, not n_classes= of texts.")
        if self.head is not None and last.norm.final:
            raise InvalidConfig("head= stands where the last norm would; say norm final=False.")
        if self.d_unembed is not None and self.logit_scale is not None:
            raise InvalidConfig("d_unembed= and logit_scale= can't be had together.")
        told = (
            *(self.tied, self.bias_u, self.n_classes, self.head),
            *(self.logit_cap, self.logit_scale, self.d_unembed),
        )
        if not self.unembeds and any(told):
            raise InvalidConfig("unembeds=False: there are no logits to tie, bias or cap.")

    def _check_tokens(self) -> None:
        for label in ("bos", "eos", "decoder_start"):
            token = getattr(self.tokens, label)
            if token is not None and not 0 <= token < self.d_vocab:
                raise InvalidConfig(f"tokens.{label}={token} is outside 0..{self.d_vocab - 1}.")
        if len(self.stacks) > 1:
            if self.shared and self.d_vocab_source not in (None, self.d_vocab):
                raise InvalidConfig("shared=True: both stacks read the same d_vocab tokens.")
            return
        pairs_only = {
            "tokens.decoder_start": self.tokens.decoder_start is not None,
            "shared": self.shared,
            "d_vocab_source": self.d_vocab_source is not None,
        }
        for name in (name for name, told in pairs_only.items() if told):
            raise InvalidConfig(f"{name} is for an encoder–decoder; this is not one.")

    @property
    def stacks(self) -> dict[str, StackConfig]:
        """The stacks in the order in which they run."""
        pair = {"encoder": self.encoder, "decoder": self.decoder}
        return {name: stack for name, stack in pair.items() if stack is not None}

    @property
    def n_logits(self) -> int:
        """How many scores the unembedding gives out: one a class, or one a token."""
        return self.d_vocab if self.n_classes is None else self.n_classes

    def vocabulary_of(self, stack: str) -> int:
        """How many tokens a stack reads."""
        only = len(self.stacks) == 1 or stack != "encoder"
        return self.d_vocab if only or self.d_vocab_source is None else self.d_vocab_source

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
        return build(cls, values, "config")

    @classmethod
    def from_json(cls, text: str) -> "Config":
        """The inverse of :meth:`to_json`."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidConfig(f"The configuration is not JSON: {error}.") from error
        return build(cls, values, "config")
