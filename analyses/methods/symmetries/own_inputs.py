"""The inputs of every attention and every layer of a model, so that each can be run by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from analyses.methods.heads import Attentions, every_attention
from analyses.methods.symmetries.orders import Order, in_order
from interp.execution import run
from interp.model import Attention, Batch, Context, Matrix, Network, untouched
from interp.points import Place, Point


@dataclass(frozen=True, eq=False)
class OwnInputs:
    """Recorded inputs of the parts of a model.

    Attributes:
        streams: the input of each attention, by the place of its z; and the stream before each
            layer, by the place of its ``resid_pre``.
        contexts: the context of each stack; that of a decoder has the encoder's output.
    """

    streams: Mapping[Place, Tensor]
    contexts: Sequence[Context]

    def context(self, stack: int, orders: Sequence[Order] | None = None) -> Context:
        """The context of a stack, with the encoder's output in the given order."""
        context = self.contexts[stack]
        if orders is None or context.encoder_output is None:
            return context
        return context.with_encoder(in_order(context.encoder_output, orders[0]))


@torch.no_grad()
def own_inputs(model: Network, batches: Sequence[Batch]) -> OwnInputs:
    """Record the inputs in one forward."""
    sources = {
        kind.z_place(layer): _source(model, kind, layer)
        for kind in every_attention(model)
        for layer in range(len(kind.layers))
    }
    sources |= {place: place for place in layer_starts(model).values()}
    cache = run(model, *batches, record=list(sources.values())).cache
    *encoders, last_context = model.contexts(batches)
    for stack, batch, context in zip(model.stacks, batches, encoders, strict=False):
        last_context = last_context.with_encoder(stack(batch, context))
    return OwnInputs(
        {to: cache[source] for to, source in sources.items()}, [*encoders, last_context]
    )


def layer_starts(model: Network) -> dict[tuple[int, str], Place]:
    """The place of the stream before every layer, by its stack's index and its name."""
    return {
        (number, f"{name}.L{layer}" if name else f"L{layer}"): Place(
            Point.RESID_PRE, layer, stack=name
        )
        for number, stack in enumerate(model.stacks)
        for name in [stack.name_in_places]
        for layer in range(len(stack.blocks))
    }


def layer_ends(model: Network) -> dict[tuple[int, str], Place]:
    """The place of the stream after every layer, by its stack's index and its name."""
    return {
        (number, name): replace(
            model.stacks[number].block(start.layer or 0).end, layer=start.layer, stack=start.stack
        )
        for (number, name), start in layer_starts(model).items()
    }


def pattern_and_scores(attn: Attention, x: Tensor, context: Context) -> tuple[Matrix, Matrix]:
    """The pattern A of an attention run by itself, and its scores."""
    q, k, _ = attn.project(x, context, untouched)
    scores = attn.scores(*attn.with_positions(q, k, context), context)
    return attn.pattern(scores, context), scores


def _source(model: Network, kind: Attentions, layer: int) -> Place:
    """The place of the input of an attention, after the norm."""
    stack, attn = model.stacks[kind.query], kind.layers[layer]
    (step,) = (step for step in stack.block(layer).steps if step.f is attn)
    return replace(step.source(), layer=layer, stack=stack.name_in_places)
