"""Everything that was written into a residual stream: the terms whose sum it is.

    x = embed + pos_embed + Σ_heads z W_O + Σ_layers b_O + Σ_MLPs (post W_out + b_out)

(Elhage et al. 2021). The terms are the writers of :mod:`interp.graph`, each bias apart.
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
    """What each writer wrote, by name.

    Args:
        writers: those of one stream, the first of which is an embedding.
        activation: the tensor at a place.
        weight: a bias by its name.
    """
    found: Writes = {}
    for place, own in groupby(writers, lambda writer: writer.place):
        whole = None if place is None else activation(place)
        for writer in own:
            if writer.parameter is not None:
                found[writer.name] = _everywhere(weight(writer.parameter), found)
            elif whole is not None:
                found[writer.name] = whole if writer.head is None else whole[:, :, writer.head]
            if writer.bias is not None:
                bias = _everywhere(weight(writer.bias), found)
                found[writer.name] = found[writer.name] - bias
                found[f"{writer.name.removesuffix('MLP')}.b_out"] = bias
    return found


def _everywhere(bias: Float[Tensor, " d_model"], found: Writes) -> Tensor:
    """A bias at every position."""
    return bias.expand_as(next(iter(found.values()))).clone()
