"""A stack: embeddings, blocks, and possibly a final norm. A model has one or two stacks."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from interp.config import NO_NORM, Config, StackConfig
from interp.model.attention.mask_kinds import mask_of
from interp.model.batch import Batch
from interp.model.block import Block
from interp.model.context import Context
from interp.model.embedding_kinds import sum_projection_of, token_types_of, tokens_of
from interp.model.images import input_of
from interp.model.norm import EMBEDDED
from interp.model.norm_kinds import norm_of
from interp.model.positions.build import attention_positions, bias_tables_of
from interp.model.positions.embedding import position_embedding_of
from interp.model.recipe import STORED, Layout, Reader, Recipe, owned
from interp.model.residual import Step
from interp.model.shapes import Stream
from interp.model.tap import Tap, untouched
from interp.model.unembedding_kinds import final_norm_of
from interp.points import Place, Point


@dataclass(frozen=True, eq=False)
class Span:
    """The part of a stack that a forward runs.

    Attributes:
        start: index of the first block.
        stop: index of the block before which it ends; ``None`` runs all blocks and the final norm.
        stream: the stream before block ``start``; ``None`` computes it from the embeddings.
    """

    start: int = 0
    stop: int | None = None
    stream: Tensor | None = None


WHOLE = Span()


class Stack(nn.Module):
    """x ↦ norm(block_L(… block_1(entry(tokens)))).

    Args:
        config: configuration of the whole model.
        name: name of this stack: ``encoder`` or ``decoder``.
        shared: the token embedding of another stack, if this stack shares it.

    Attributes:
        name_in_places: the name if the model has two stacks; ``None`` if this is the only one.
    """

    def __init__(self, config: Config, name: str, shared: nn.Parameter | None = None) -> None:
        super().__init__()
        stack_config, d_model = config.stacks[name], config.d_model
        self.name = name
        self.name_in_places = name if len(config.stacks) > 1 else None
        self.input = input_of(config, name)
        width = stack_config.embedding.sum_width or d_model
        self.weight_e = token_weights(config, name) if shared is None else shared
        self.tokens = tokens_of(stack_config.embedding, d_model)
        self.entry = position_embedding_of(stack_config.positions, config.n_ctx, width)
        self.types = token_types_of(stack_config.embedding, width)
        self.embed_norm = norm_of(stack_config.embedding.norm or NO_NORM, width, points=EMBEDDED)
        self.embed_projection = sum_projection_of(stack_config.embedding, d_model)
        self.ranges = bias_tables_of(stack_config)
        self.blocks = nn.ModuleList(self._blocks(config, stack_config))
        last = name == list(config.stacks)[-1]
        self.final_norm = final_norm_of(stack_config, d_model, config.head if last else None)

    def _blocks(self, config: Config, stack_config: StackConfig) -> Iterator[Block]:
        encoder = self.name == "encoder"
        paired = not encoder and config.encoder is not None
        for layer in range(stack_config.n_layers):
            parts = stack_config.of_layer(layer)
            table = None if self.ranges is None else self.ranges.of_layer(layer)
            positions = attention_positions(parts, table, encoder=encoder)
            mask = mask_of(parts.attention, encoder=encoder)
            yield Block(parts, config.d_model, mask, positions, paired=paired)

    def forward(
        self, batch: Batch, context: Context, tap: Tap = untouched, span: Span = WHOLE
    ) -> Stream:
        """The stream after the blocks of ``span`` (and the final norm, if it runs to the end)."""
        x = self.embed(batch, context, tap) if span.stream is None else span.stream
        for layer, block in list(enumerate(self.blocks))[span.start : span.stop]:
            x = block(x, context, tap.scoped(layer=layer))
        return self.final_norm(x, tap) if span.stop is None else x

    def embed(self, batch: Batch, context: Context, tap: Tap = untouched) -> Stream:
        """norm(tokens + positions + types), projected if the stack is configured so.

        Terms that the stack does not have are left out.
        """
        x = tap(Point.EMBED, self.tokens(batch, context, self.weight_e))
        x = self.entry(x, batch, context, tap)
        x = self.types(x, batch, context, tap)
        return self.embed_projection(self.embed_norm(tap(Point.EMBED_TOTAL, x), tap))

    def block(self, layer: int) -> Block:
        """The block of a layer."""
        block = self.blocks[layer]
        if not isinstance(block, Block):
            raise TypeError(f"blocks[{layer}] is a {type(block).__name__}, not a Block.")
        return block

    def branches(self) -> Iterator[tuple[int, Step]]:
        """Layer and step of every sub-layer, in the order of the forward."""
        for layer in range(len(self.blocks)):
            for step in self.block(layer).steps:
                yield from ((layer, branch) for branch in step.branches)

    def layout(self) -> Layout:
        """Its places in the order of the forward."""
        places = self._entry_layout()
        for layer in range(len(self.blocks)):
            block = self.block(layer)
            places |= {
                Place(place.point, layer, place.norm): recipe
                for place, recipe in block.layout().items()
            }
        return places | owned("final_norm", self.final_norm.layout(self.end))

    def terms(self) -> Layout:
        """The places of the embeddings that are summed: of tokens, positions and types."""
        return {
            Place(Point.EMBED): STORED,
            **owned("entry", self.entry.layout()),
            **owned("types", self.types.layout()),
        }

    def _entry_layout(self) -> Layout:
        """The places before the first block."""
        places = self.terms()
        norm = self.embed_norm.layout(Place(Point.EMBED_TOTAL))
        if not norm:
            return places
        terms = tuple(places)

        def total(_: object, of: Reader) -> Tensor:
            first, *others = (of(term.point) for term in terms)
            return sum(others, start=first)

        summed: Layout = {Place(Point.EMBED_TOTAL): Recipe(total, terms)}
        return places | summed | owned("embed_norm", norm)

    @property
    def end(self) -> Place:
        """The place, within the last block, of the stream after it."""
        return self.block(-1).end


def token_weights(config: Config, name: str) -> nn.Parameter | None:
    """W_E of a stack; ``None`` if it reads images."""
    embedding = config.stacks[name].embedding
    if embedding.patches is not None:
        return None
    width = embedding.width or embedding.sum_width or config.d_model
    return nn.Parameter(torch.randn(config.vocabulary_of(name), width).mul_(0.02))
