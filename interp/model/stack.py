"""What is a stack? An entry, blocks, and perhaps a last norm: one tower of the model."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.config import NO_NORM, Config, StackConfig
from interp.model.attention.mask import Bidirectional, Causal, Mask, Window
from interp.model.batch import Batch
from interp.model.block import Block
from interp.model.context import Context
from interp.model.embeddings import positions_of, tokens_of, types_of
from interp.model.norm import EMBEDDED, FINAL, Norm, norm_of
from interp.model.positions.positions import ranges_of, turning_of
from interp.model.recipe import KEPT, Layout, Reader, Recipe, owned
from interp.model.tap import Tap, untouched
from interp.model.unembedding import MaskedHead
from interp.points import Place, Point

Stream = Float[Tensor, "batch pos d_model"]


@dataclass(frozen=True, eq=False)
class Span:
    """Which part of a stack a forward runs.

    Attributes:
        start: the first block.
        stop: the block before which it ends; ``None`` runs all and the last norm.
        stream: the stream entering block ``start``; ``None`` runs the entry.
    """

    start: int = 0
    stop: int | None = None
    stream: Tensor | None = None


WHOLE = Span()


class Stack(nn.Module):
    """x ↦ norm(block_L(… block_1(entry(tokens)))).

    Args:
        config: of the whole model.
        name: which of its stacks: ``encoder`` or ``decoder``.
        shared: the token embedding of another stack, if it is this one's too.
    """

    def __init__(self, config: Config, name: str, shared: nn.Parameter | None = None) -> None:
        super().__init__()
        own, d_model = config.stacks[name], config.d_model
        self.name = name
        self.weight_e = own_embedding(config, name) if shared is None else shared
        self.tokens = tokens_of(own.embedding, d_model)
        self.entry = positions_of(own.positions, config.n_ctx, d_model)
        self.types = types_of(own.embedding, d_model)
        self.embed_norm = norm_of(own.embedding.norm or NO_NORM, d_model, points=EMBEDDED)
        self.ranges = ranges_of(own.positions, own.attention.n_heads)
        self.blocks = nn.ModuleList(self._blocks(config, own))
        last = name == list(config.stacks)[-1]
        if last and config.head is not None:
            self.final_norm: Norm = MaskedHead(config.head, d_model)
        else:
            self.final_norm = norm_of(own.norm, d_model, points=FINAL) if own.norm.final else Norm()

    def _blocks(self, config: Config, own: StackConfig) -> Iterator[Block]:
        encodes = self.name == "encoder"
        paired = not encodes and config.encoder is not None
        for layer in range(own.n_layers):
            parts = own.of_layer(layer)
            heads = parts.attention.n_heads
            turning = turning_of(parts.positions, heads, self.ranges, both_ways=encodes)
            mask = mask_of(parts.attention.window, both_ways=encodes)
            yield Block(parts, config.d_model, mask, turning, paired=paired)

    def forward(
        self, batch: Batch, context: Context, tap: Tap = untouched, span: Span = WHOLE
    ) -> Stream:
        """The stream after the blocks of ``span`` (and the last norm, if it runs to the end)."""
        x = self.embed(batch, context, tap) if span.stream is None else span.stream
        for layer, block in list(enumerate(self.blocks))[span.start : span.stop]:
            x = block(x, context, tap.at(layer=layer))
        return self.final_norm(x, tap) if span.stop is None else x

    def embed(self, batch: Batch, context: Context, tap: Tap = untouched) -> Stream:
        """norm(tokens + positions + types), with those that there are."""
        x = tap(Point.EMBED, self.tokens(batch, context, self.weight_e))
        x = self.entry(x, batch, context, tap)
        x = self.types(x, batch, context, tap)
        return self.embed_norm(tap(Point.EMBED_TOTAL, x), tap)

    def block(self, layer: int) -> Block:
        """The block of a layer."""
        block = self.blocks[layer]
        if not isinstance(block, Block):
            raise TypeError(f"blocks[{layer}] is a {type(block).__name__}, not a Block.")
        return block

    def layout(self) -> Layout:
        """Its places in the order of the forward."""
        places = self._entering()
        for layer in range(len(self.blocks)):
            block = self.block(layer)
            places |= {
                Place(place.point, layer, place.norm): recipe
                for place, recipe in block.layout().items()
            }
        return places | owned("final_norm", self.final_norm.layout(self.end))

    def _entering(self) -> Layout:
        """The places before the first block."""
        places: Layout = {
            Place(Point.EMBED): KEPT,
            **owned("entry", self.entry.layout()),
            **owned("types", self.types.layout()),
        }
        normed = self.embed_norm.layout(Place(Point.EMBED_TOTAL))
        if not normed:
            return places
        terms = tuple(places)

        def total(_: object, of: Reader) -> Tensor:
            first, *others = (of(term.point) for term in terms)
            return sum(others, start=first)

        summed: Layout = {Place(Point.EMBED_TOTAL): Recipe(total, terms)}
        return places | summed | owned("embed_norm", normed)

    @property
    def end(self) -> Place:
        """Where, in the last block, the stream that it gives out is found."""
        return self.block(-1).end


def own_embedding(config: Config, name: str) -> nn.Parameter | None:
    """W_E of a stack; images have none."""
    own = config.stacks[name].embedding
    if own.patches is not None:
        return None
    width = own.width or config.d_model
    return nn.Parameter(torch.randn(config.vocabulary_of(name), width) * 0.02)


def mask_of(window: int | None, *, both_ways: bool) -> Mask:
    """Which keys a query sees."""
    if both_ways:
        return Bidirectional()
    return Causal() if window is None else Window(window)
