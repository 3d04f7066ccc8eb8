"""What is a stack? An entry, blocks, and perhaps a last norm: one tower of the model."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.config import Config
from interp.model.block import Block
from interp.model.context import Batch, Context
from interp.model.mask import Bidirectional, Causal
from interp.model.norm import FINAL, Norm, norm_of
from interp.model.positions import entry_of
from interp.model.recipe import KEPT, Layout, owned
from interp.points import Place, Point
from interp.tap import Tap, untouched

Stream = Float[Tensor, "batch pos d_model"]

MASKS = {"encoder": Bidirectional(), "decoder": Causal()}


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
    """x ↦ norm(block_L(… block_1(W_E[ids] + positions)))."""

    def __init__(self, config: Config, name: str) -> None:
        super().__init__()
        own = config.stacks[name]
        paired = name == "decoder" and config.encoder is not None
        self.name = name
        self.weight_e = nn.Parameter(torch.randn(config.d_vocab, config.d_model) * 0.02)
        self.entry = entry_of(own.positions, config.n_ctx, config.d_model)
        self.blocks = nn.ModuleList(
            Block(own, config.d_model, MASKS[name], paired=paired) for _ in range(own.n_layers)
        )
        self.final_norm = norm_of(own.norm, config.d_model, FINAL) if own.norm.final else Norm()

    def forward(
        self, batch: Batch, context: Context, tap: Tap = untouched, span: Span = WHOLE
    ) -> Stream:
        """The stream after the blocks of ``span`` (and the last norm, if it runs to the end)."""
        x = self.embed(batch, context, tap) if span.stream is None else span.stream
        for layer, block in list(enumerate(self.blocks))[span.start : span.stop]:
            x = block(x, context, tap.at(layer=layer))
        return self.final_norm(x, tap) if span.stop is None else x

    def embed(self, batch: Batch, context: Context, tap: Tap = untouched) -> Stream:
        """W_E[ids] + positions."""
        ids = batch.ids[:, context.offset :]
        return self.entry(tap(Point.EMBED, F.embedding(ids, self.weight_e)), context, tap)

    def block(self, layer: int) -> Block:
        """The block of a layer."""
        block = self.blocks[layer]
        if not isinstance(block, Block):
            raise TypeError(f"blocks[{layer}] is a {type(block).__name__}, not a Block.")
        return block

    def layout(self) -> Layout:
        """Its places in the order of the forward."""
        places: Layout = {Place(Point.EMBED): KEPT, **self.entry.layout()}
        for layer in range(len(self.blocks)):
            block = self.block(layer)
            places |= {
                Place(place.point, layer, place.norm): recipe
                for place, recipe in block.layout().items()
            }
        return places | owned("final_norm", self.final_norm.layout(self.end))

    @property
    def end(self) -> Place:
        """Where, in the last block, the stream that it gives out is found."""
        return self.block(-1).end
