"""What describes a stack: how tokens enter it, and its blocks."""

from dataclasses import dataclass, replace

from interp.config.checks import positive, positive_number
from interp.config.parts import AttentionConfig, MLPConfig, NormConfig, PositionsConfig
from interp.errors import InvalidConfig


@dataclass(frozen=True)
class PatchConfig:
    """An image cut into squares, each read as a token is.

    Attributes:
        height: of the image, in pixels.
        width: of the image.
        size: edge of a square.
        channels: of the image.
        n_special: learned tokens in front of the squares: 1 is CLS alone, 2 the distillation
            token too.
    """

    height: int
    width: int
    size: int
    channels: int = 3
    n_special: int = 1

    def __post_init__(self) -> None:
        positive(self, "height", "width", "size", "channels")
        if self.height % self.size or self.width % self.size:
            raise InvalidConfig(
                f"An image of {self.height}×{self.width} can't be cut into squares of {self.size}."
            )

    @property
    def n_patches(self) -> int:
        """How many squares there are."""
        return (self.height // self.size) * (self.width // self.size)


@dataclass(frozen=True)
class EmbeddingConfig:
    """How tokens enter a stack, beside their positions.

    Attributes:
        scale: what a token's vector is multiplied by; ``None`` leaves it.
        width: of the vectors, if a matrix brings them to d_model; ``None`` means d_model.
        n_types: kinds of token (segments of a text) whose vector is added; 0 adds none.
        norm: a norm of the sum; ``None`` has none.
        patches: the tokens are squares of an image.
    """

    scale: float | None = None
    width: int | None = None
    n_types: int = 0
    norm: NormConfig | None = None
    patches: PatchConfig | None = None

    def __post_init__(self) -> None:
        positive_number(self, "scale")
        if self.width is not None:
            positive(self, "width")
        told = [n for n in ("scale", "width", "patches") if getattr(self, n) is not None]
        if len(told) > 1:
            raise InvalidConfig(f"embedding {told[0]}= and {told[1]}= can't be had together.")
        if self.n_types < 0:
            raise InvalidConfig(f"n_types={self.n_types} must be at least 0.")


@dataclass(frozen=True)
class LayerConfig:
    """What is different in some layers; ``None`` is as in the others.

    Attributes:
        layers: which, from 0.
        attention: their attention (of as many heads as in the others).
        mlp: their MLP.
        positions: their positions (those that the embedding adds can't differ).
    """

    layers: tuple[int, ...]
    attention: AttentionConfig | None = None
    mlp: MLPConfig | None = None
    positions: PositionsConfig | None = None


@dataclass(frozen=True)
class StackConfig:
    """One tower of blocks.

    Attributes:
        n_layers: blocks.
        attention: the attention of each block (and the cross-attention, in a decoder of a pair).
        mlp: the MLP of each block; ``None`` makes the stack attention-only.
        norm: its norms.
        positions: its positions.
        embedding: how tokens enter, beside their positions.
        exceptions: layers that differ; where several name a layer, the later ones add to the
            earlier.
    """

    n_layers: int
    attention: AttentionConfig
    mlp: MLPConfig | None = None
    norm: NormConfig = NormConfig()
    positions: PositionsConfig = PositionsConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    exceptions: tuple[LayerConfig, ...] = ()

    def __post_init__(self) -> None:
        positive(self, "n_layers")
        if self.mlp is None and self.norm.placement.startswith("parallel"):
            raise InvalidConfig(f'placement="{self.norm.placement}" needs an MLP beside attention.')
        for other in self.exceptions:
            outside = [n for n in other.layers if not 0 <= n < self.n_layers]
            if outside:
                raise InvalidConfig(
                    f"exceptions name layer {outside[0]}; layers are 0..{self.n_layers - 1}."
                )
        for layer in range(self.n_layers) if self.exceptions else (0,):
            self._check(self.of_layer(layer))

    def of_layer(self, layer: int) -> "StackConfig":
        """The same stack as if all layers were as this one."""
        own = replace(self, exceptions=()) if self.exceptions else self
        for other in self.exceptions:
            if layer in other.layers:
                told = {
                    "attention": other.attention,
                    "mlp": other.mlp,
                    "positions": other.positions,
                }
                own = replace(own, **{name: part for name, part in told.items() if part})
        return own

    def _check(self, own: "StackConfig") -> None:
        """Make sure that a layer's parts fit together, and into this stack."""
        heads, d_head = own.attention.n_heads, own.attention.d_head
        turning = own.positions.d_rotary or d_head
        if own.positions.kind == "rotary" and (turning % 2 or turning > d_head):
            raise InvalidConfig(
                f"rotary positions turn pairs of a head's d_head={d_head} dimensions, but "
                f"{turning} are to turn."
            )
        scaling = own.positions.scaling
        if scaling is not None and scaling.kind == "dynamic" and turning <= 2:  # noqa: PLR2004
            raise InvalidConfig("scaling dynamic stretches slow pairs; there is a single one.")
        for name in ("short", "long") if scaling else ():
            if len(getattr(scaling, name)) not in (0, turning // 2):
                raise InvalidConfig(f"scaling {name}= needs one number a pair: {turning // 2}.")
        if (heads, d_head) != (self.attention.n_heads, self.attention.d_head):
            raise InvalidConfig("exceptions can't change n_heads or d_head.")
        if (own.mlp is None) != (self.mlp is None):
            raise InvalidConfig("exceptions can't give an MLP to some layers alone.")
        shared = {"learned", "sinusoidal", "buckets"} & {own.positions.kind, self.positions.kind}
        if own.positions != self.positions and shared:
            raise InvalidConfig("exceptions can't change positions that all layers share.")
