"""The attentions of a model: self-attention of a stack, or cross-attention of the decoder."""

from dataclasses import dataclass
from typing import Literal, get_args

from interp.errors import InvalidInput, shorten
from interp.model import Attention, Network
from interp.points import Place, Point

AttentionName = Literal["encoder", "decoder", "cross"]


@dataclass(frozen=True, eq=False)
class Attentions:
    """One attention in each layer.

    Attributes:
        name: name of the attention in an encoder–decoder; ``None`` in a model with a single stack.
        layers: the module of each layer.
        query: index of the stack whose tokens are queries.
        key: index of the stack whose tokens are keys.
    """

    name: AttentionName | None
    layers: tuple[Attention, ...]
    query: int
    key: int

    @property
    def is_cross(self) -> bool:
        """Whether keys are tokens of another stack."""
        return self.query != self.key

    @property
    def is_bidirectional(self) -> bool:
        """Whether a query may attend to later tokens."""
        return self.layers[0].masking.mask.is_bidirectional

    def places(self, layer: int) -> tuple[Place, Place]:
        """The places of a layer's pattern and values."""
        points = self.layers[0].points
        return self._place(points.pattern, layer), self._place(points.v, layer)

    def z_place(self, layer: int) -> Place:
        """The place of a layer's z."""
        return self._place(self.layers[0].points.z, layer)

    def head_name(self, layer: int, head: int) -> str:
        """Name of a head, as in :mod:`analyses.methods.components.components`."""
        before = f"{self.name}." if self.name else ""
        return f"{before}L{layer}H{head}"

    def _place(self, point: Point, layer: int) -> Place:
        return Place(point, layer, stack=None if self.is_cross else self.name)


def every_attention(model: Network) -> tuple[Attentions, ...]:
    """All attentions of a model: one, or the three of an encoder–decoder."""
    names = (None,) if len(model.stacks) == 1 else get_args(AttentionName)
    return tuple(attentions_of(model, name) for name in names)


def attentions_of(model: Network, name: AttentionName | None = None) -> Attentions:
    """One attention of a model, in each layer.

    Args:
        model: the model.
        name: for an encoder–decoder, ``"encoder"`` or ``"decoder"`` for the self-attention of that
            stack, or ``"cross"``: queries from the decoder, keys from the encoder.

    Raises:
        InvalidInput: the model is an encoder–decoder and ``name`` is missing, or the model has one
            stack and ``name`` is given.
    """
    if len(model.stacks) == 1 and name is not None:
        raise InvalidInput("attention= is for encoder–decoders; this model has one stack.")
    if len(model.stacks) > 1 and name not in get_args(AttentionName):
        names = ", ".join(get_args(AttentionName))
        raise InvalidInput(f"attention={shorten(name)}: an encoder–decoder has {names}.")
    query = 0 if name in (None, "encoder") else 1
    key = 1 if name == "decoder" else 0
    stack = model.stacks[query]
    blocks = [stack.block(layer) for layer in range(len(stack.blocks))]
    layers = tuple(block.cross_attn if name == "cross" else block.attn for block in blocks)
    return Attentions(name, layers, query, key)
