"""The configuration of a stack: its embedding and its blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from interp.config.checks import check_positive, check_positive_integers
from interp.config.parts import GRIDS, AttentionConfig, MLPConfig, NormConfig, PositionsConfig
from interp.config.short import short_repr
from interp.errors import InvalidConfig

Part = AttentionConfig | MLPConfig | PositionsConfig
"""The parts of a configuration that may differ between layers."""
MAX_LAYERS = 1024
"""Maximum number of layers of a stack read from a file; each takes milliseconds and kilobytes."""


@dataclass(frozen=True)
class PatchConfig:
    """Images as tokens: square patches, each embedded linearly.

    Attributes:
        height: height of the image, in pixels.
        width: width of the image, in pixels.
        size: edge length of a patch, in pixels.
        channels: number of channels of the image.
        n_special: number of learned tokens before the patches: 1 for CLS, 2 for CLS and the
            distillation token, 0 for none.
        bias: whether the matrix of the patches has a bias.
        mean_pooled: whether the vector of an image is the norm of the mean of its patches (BEiT),
            instead of CLS: the last norm has it at position 0; ``model.pooler`` computes it in a
            model without a last norm.
    """

    height: int
    width: int
    size: int
    channels: int = 3
    n_special: int = 1
    bias: bool = True
    mean_pooled: bool = False

    def __post_init__(self) -> None:
        check_positive_integers(self, "height", "width", "size", "channels")
        if self.n_special < 0:
            raise InvalidConfig(f"n_special={self.n_special} must be at least 0.")
        if self.mean_pooled and not self.n_special:
            raise InvalidConfig("mean_pooled=True replaces CLS: set n_special= to at least 1.")
        if self.height % self.size or self.width % self.size:
            raise InvalidConfig(
                f"An image of {self.height}×{self.width} can't be divided into patches of "
                f"{self.size}×{self.size}; choose a size= that divides height= and width=."
            )

    @property
    def n_patches(self) -> int:
        """Number of patches of an image."""
        return self.n_rows * self.n_columns

    @property
    def n_rows(self) -> int:
        """Number of rows of patches."""
        return self.height // self.size

    @property
    def n_columns(self) -> int:
        """Number of columns of patches."""
        return self.width // self.size


@dataclass(frozen=True)
class EmbeddingConfig:
    """The embedding of tokens, without positions.

    Attributes:
        scale: factor of the token embedding; ``None`` means 1.
        width: width of the token embedding, if it is projected to d_model; ``None`` means d_model.
        n_types: number of token types (segments of a text), whose embedding is added; 0 for none.
        norm: norm of the sum of embeddings; ``None`` for none.
        patches: the patches of an image, if these are the tokens; ``None`` for a model of texts.
        sum_width: width of all embeddings, if their normalized sum is projected to d_model, with a
            bias; ``None`` means d_model.
    """

    scale: float | None = None
    width: int | None = None
    n_types: int = 0
    norm: NormConfig | None = None
    patches: PatchConfig | None = None
    sum_width: int | None = None

    def __post_init__(self) -> None:
        check_positive(self, "scale")
        for name in ("width", "sum_width"):
            if getattr(self, name) is not None:
                check_positive_integers(self, name)
        names = ("scale", "width", "sum_width", "patches")
        chosen = [name for name in names if getattr(self, name) is not None]
        if len(chosen) > 1:
            raise InvalidConfig(f"embedding {chosen[0]}= and {chosen[1]}= can't be combined.")
        if self.sum_width is not None and self.norm is None:
            raise InvalidConfig("embedding sum_width= needs a norm of the sum: set norm=.")
        if self.n_types < 0:
            raise InvalidConfig(f"n_types={self.n_types} must be at least 0.")


@dataclass(frozen=True)
class LayerConfig:
    """Settings of some layers that differ from those of the stack; ``None`` means the stack's.

    Attributes:
        layers: indices of the layers, from 0.
        attention: their attention, with the same ``n_heads`` and ``d_head``.
        mlp: their MLP.
        positions: their positions; only ``rotary``, ``alibi`` and ``none`` can differ.
    """

    layers: tuple[int, ...]
    attention: AttentionConfig | None = None
    mlp: MLPConfig | None = None
    positions: PositionsConfig | None = None

    @property
    def parts(self) -> dict[str, "Part"]:
        """The settings that differ, by the name of the stack's field."""
        parts = {"attention": self.attention, "mlp": self.mlp, "positions": self.positions}
        return {name: part for name, part in parts.items() if part}


@dataclass(frozen=True)
class StackConfig:
    """An encoder or a decoder.

    Attributes:
        n_layers: number of blocks.
        attention: attention of each block (and its cross-attention, in the decoder of an
            encoder–decoder).
        mlp: MLP of each block; ``None`` for an attention-only stack.
        norm: the norms of the blocks, and the last norm.
        positions: the positions of the stack.
        embedding: the embedding of the tokens.
        residual_scale: factor of the outputs of attention and MLP; ``None`` means 1.
        exceptions: layers that differ; if several name the same layer, later ones take precedence.
    """

    n_layers: int
    attention: AttentionConfig
    mlp: MLPConfig | None = None
    norm: NormConfig = NormConfig()
    positions: PositionsConfig = PositionsConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    exceptions: tuple[LayerConfig, ...] = ()
    residual_scale: float | None = None

    def __post_init__(self) -> None:
        check_positive_integers(self, "n_layers")
        if self.embedding.sum_width is not None and self.norm.placement != "post":
            raise InvalidConfig('embedding sum_width= needs norms of placement="post".')
        check_positive(self, "residual_scale")
        if self.residual_scale is not None and self.norm.placement != "pre":
            raise InvalidConfig(
                f'residual_scale= needs norm placement="pre", got "{self.norm.placement}".'
            )
        if self.mlp is None and self.norm.placement.startswith("parallel"):
            raise InvalidConfig(f'placement="{self.norm.placement}" needs an MLP beside attention.')
        for other in self.exceptions:
            outside = [n for n in other.layers if not 0 <= n < self.n_layers]
            if outside:
                raise InvalidConfig(
                    f"exceptions name layer {outside[0]}; layers are 0..{self.n_layers - 1}."
                )
        for layer in self.layer_kinds:
            self._check(layer)

    def __repr__(self) -> str:
        """The constructor call, without fields that have their default values."""
        return short_repr(self)

    def of_layer(self, layer: int) -> "StackConfig":
        """The configuration of a stack whose layers are all like this one."""
        stack = replace(self, exceptions=()) if self.exceptions else self
        for other in self.exceptions:
            if layer in other.layers:
                stack = replace(stack, **other.parts)
        return stack

    @cached_property
    def layer_kinds(self) -> Sequence["StackConfig"]:
        """The distinct configurations that :meth:`of_layer` returns.

        The time is proportional to the number of exceptions, not to the number of layers.
        """
        plain = replace(self, exceptions=()) if self.exceptions else self
        parts: dict[int, dict[str, Part]] = {}
        for other in self.exceptions:
            changes = other.parts
            for layer in other.layers:
                parts.setdefault(layer, {}).update(changes)
        kinds = {
            tuple(id(part) for part in of_layer.values()): of_layer for of_layer in parts.values()
        }
        others = [replace(plain, **of_layer) for of_layer in kinds.values()]
        return [plain, *others] if len(parts) < self.n_layers else [*others]

    def _check(self, layer: "StackConfig") -> None:
        """Check that a layer's parts are compatible with each other and with this stack."""
        if not layer.attention.normed and self.norm.placement != "pre":
            raise InvalidConfig(
                f'attention normed=False needs norm placement="pre"; got "{self.norm.placement}".'
            )
        layer._check_rotary()
        heads, d_head = layer.attention.n_heads, layer.attention.d_head
        if (heads, d_head) != (self.attention.n_heads, self.attention.d_head):
            raise InvalidConfig("exceptions can't change n_heads or d_head.")
        if (layer.mlp is None) != (self.mlp is None):
            raise InvalidConfig("exceptions can't add an MLP to an attention-only stack.")
        shared = {"learned", "sinusoidal", "buckets", *GRIDS}
        shared &= {layer.positions.kind, self.positions.kind}
        if layer.positions != self.positions and shared:
            raise InvalidConfig(
                f"exceptions can't change {min(shared)} positions, a kind that all layers share."
            )
        if self.positions.kind in GRIDS and self.embedding.patches is None:
            raise InvalidConfig(
                f"{self.positions.kind} positions are offsets between patches of an image: set "
                "embedding patches=."
            )

    def _check_rotary(self) -> None:
        """Check that rotary positions match the dimension of a head."""
        positions, d_head = self.positions, self.attention.d_head
        d_rotary = positions.d_rotary or d_head
        if positions.kind == "rotary" and (d_rotary % 2 or d_rotary > d_head):
            raise InvalidConfig(
                f"rotary positions rotate pairs of a head's dimensions: d_rotary={d_rotary} (all "
                f"by default) must be even and at most d_head={d_head}."
            )
        scaling = positions.scaling
        if scaling is not None and scaling.kind == "dynamic" and d_rotary <= 2:  # noqa: PLR2004
            raise InvalidConfig("scaling dynamic needs d_rotary of at least 4, more than one pair.")
        for name in ("short", "long") if scaling else ():
            if len(getattr(scaling, name)) not in (0, d_rotary // 2):
                raise InvalidConfig(f"scaling {name}= needs one number per pair: {d_rotary // 2}.")
