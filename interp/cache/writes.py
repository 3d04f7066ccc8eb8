"""The terms whose sum is the residual stream.

    x = embed + pos_embed + Σ_heads z W_O + Σ_layers b_O + Σ_MLPs (post W_out + b_out)

(Elhage et al. 2021). The terms are the outputs of the writers of :mod:`interp.graph`, with each
bias as a separate term.
"""

from collections.abc import Callable
from itertools import groupby

from jaxtyping import Float
from torch import Tensor

from interp.graph import Writer
from interp.points import Place

Writes = dict[str, Float[Tensor, "batch pos d_model"]]


def writes_of(
    writers: list[Writer],
    activation: Callable[[Place], Tensor],
    weight: Callable[[str], Float[Tensor, " d_model"]],
) -> Writes:
    """The output of each writer, by name.

    Args:
        writers: the writers of one stream, the first of which is an embedding.
        activation: function that returns the tensor at a place.
        weight: function that returns a bias by its name.
    """
    writes: Writes = {}
    for place, own in groupby(writers, lambda writer: writer.place):
        whole = None if place is None else activation(place)
        for writer in own:
            if writer.parameter is not None:
                writes[writer.name] = _expanded(weight(writer.parameter), writes)
            elif whole is not None:
                writes[writer.name] = whole if writer.head is None else whole[:, :, writer.head]
            if writer.bias is not None:
                bias = _expanded(weight(writer.bias), writes)
                writes[writer.name] = writes[writer.name] - bias
                writes[f"{writer.name.removesuffix('MLP')}.b_out"] = bias
    return writes


def _expanded(bias: Float[Tensor, " d_model"], writes: Writes) -> Tensor:
    """A bias at every position."""
    return bias.expand_as(next(iter(writes.values()))).clone()
