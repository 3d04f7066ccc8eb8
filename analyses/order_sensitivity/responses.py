"""Outputs of heads, layers and the model, and how far they are from permuting with the tokens.

    s = ‖f(Px) − P f(x)‖ / √(½ ‖f(Px)‖² + ½ ‖f(x)‖²)

s is 0 if f is permutation-equivariant, and √2 if f(Px) and P f(x) are orthogonal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from analyses.methods.heads import every_attention
from analyses.methods.symmetries import (
    HEAD,
    LAYER,
    MODEL,
    OUTPUT,
    Order,
    OwnInputs,
    in_order,
    layer_ends,
    layer_starts,
)
from interp.execution import run
from interp.metrics import at_least_float32, relative_rounding
from interp.model import Batch, Network
from interp.points import Place

Responses = Mapping[Place | str, Tensor]
"""Tensors by their place; ``output`` is the output of the model."""


@dataclass(frozen=True, eq=False)
class Responder:
    """A part of a model, and the place of its output.

    Attributes:
        kind: ``head``, ``layer`` or ``model``.
        name: name of the part, such as ``L0H1``, ``encoder.L0`` or ``model``.
        stack: index of the stack whose tokens are the rows of the output.
        place: the place of z for a head, of the stream after a layer, or ``output``.
        stream: the place of the stream before its layer (for the model, after the last layer), to
            whose size that of the output is compared.
        head: index of a head in its layer.
        coordinates: for a head, the map from z to its output in an orthonormal basis of the space
            that it writes to. It preserves the norm of z W_O with no more dimensions than z.
    """

    kind: str
    name: str
    stack: int
    place: Place | str
    stream: Place
    head: int = 0
    coordinates: Float[Tensor, "d_head rank"] | None = None

    def of(self, responses: Responses) -> Float[Tensor, "batch pos width"]:
        """The output of a head, the update of a layer to the stream, or the output of the model."""
        x = at_least_float32(responses[self.place])
        if self.coordinates is not None:
            return x[:, :, self.head] @ self.coordinates
        return x - at_least_float32(responses[self.stream]) if self.kind == LAYER else x


def responders(model: Network) -> list[Responder]:
    """Every head, every layer and the model."""
    parts: list[Responder] = []
    starts, ends = layer_starts(model), layer_ends(model)
    for kind in every_attention(model):
        in_stack = [place for (stack, _), place in starts.items() if stack == kind.query]
        for layer, attn in enumerate(kind.layers):
            parts += [
                Responder(
                    HEAD,
                    kind.head_name(layer, head),
                    kind.query,
                    kind.z_place(layer),
                    in_stack[layer],
                    head,
                    _coordinates(attn.W_O[head]),
                )
                for head in range(attn.n_heads)
            ]
    parts += [
        Responder(LAYER, name, stack, end, starts[stack, name])
        for (stack, name), end in ends.items()
    ]
    last = len(model.stacks) - 1
    return [*parts, Responder(MODEL, MODEL, last, OUTPUT, list(ends.values())[-1])]


def _coordinates(W_O: Float[Tensor, "d_head d_model"]) -> Float[Tensor, "d_head rank"]:
    """Rᵀ of W_Oᵀ = Q R: ‖z W_O‖ = ‖z Rᵀ‖."""
    return torch.linalg.qr(at_least_float32(W_O.detach()).mT, mode="r")[1].mT


def of_prompts(model: Network, batches: Sequence[Batch]) -> Responses:
    """The responses of a model to prompts."""
    places = [part.z_place(n) for part in every_attention(model) for n in range(len(part.layers))]
    places += [*layer_starts(model).values(), *layer_ends(model).values()]
    done = run(model, *batches, record=places)
    responses: dict[Place | str, Tensor] = {place: done.cache[place] for place in places}
    output = done.stream if done.logits is None else done.logits
    return responses if output is None else responses | {OUTPUT: output}


@torch.no_grad()
def of_own_inputs(
    model: Network, inputs: OwnInputs, orders: Sequence[Order] | None = None
) -> Responses:
    """The responses of each attention and each layer to its own input, permuted or not.

    Args:
        model: the model whose heads and layers are run by themselves.
        inputs: the inputs of its heads and layers.
        orders: order of the tokens of each stack; ``None`` for the original order.
    """

    def moved(place: Place, stack: int) -> Tensor:
        x = inputs.streams[place]
        return x if orders is None else in_order(x, orders[stack])

    responses: dict[Place | str, Tensor] = {}
    for kind in every_attention(model):
        context = inputs.context(kind.query, orders)
        for layer, attn in enumerate(kind.layers):
            place = kind.z_place(layer)
            responses[place] = attn.hidden(moved(place, kind.query), context)
    ends = layer_ends(model)
    for (stack, name), start in layer_starts(model).items():
        responses[start] = moved(start, stack)
        block = model.stacks[stack].block(start.layer or 0)
        responses[ends[stack, name]] = block(responses[start], inputs.context(stack, orders))
    return responses


def sensitivity(
    after: Float[Tensor, "batch pos width"],
    moved: Float[Tensor, "batch pos width"],
    read: Bool[Tensor, "batch pos"],
    stream: Float[Tensor, "batch pos d_model"],
) -> Float[Tensor, " batch"]:
    """The sensitivity s of each row.

    Args:
        after: f(Px).
        moved: P f(x).
        read: the positions that count.
        stream: the stream to which f belongs; where f is no larger than the rounding error of the
            stream in float32 (or in its own dtype, if that is coarser), s is 0.
    """

    def norm(x: Tensor) -> Tensor:
        each = torch.linalg.vector_norm(x, dim=-1, dtype=torch.float64)
        return torch.linalg.vector_norm(each * read, dim=-1)

    size = torch.hypot(norm(after), norm(moved)) / 2**0.5
    least = max(map(relative_rounding, (stream.dtype, torch.float32))) * norm(stream)
    nonzero = ~(size <= least)  # NaN counts as nonzero
    return torch.where(nonzero, norm(after - moved) / size.where(nonzero, 1), 0)
