"""Models whose layers alternate between devices, for the tests of this folder."""

import copy

import torch

from interp import Transformer
from interp.placement import PlacedTransformer, place


def alternating(n_layers: int) -> dict[str | int, str]:
    """A device map in which the stream crosses before every layer, and after the last."""
    layers: dict[str | int, str] = {n: f"cuda:{1 + n % 2}" for n in range(n_layers)}
    return {"embed": "cuda:0", **layers}


def spread(model: Transformer) -> PlacedTransformer:
    """A copy of a model whose layers alternate between two devices, the entry on a third."""
    return place(copy.deepcopy(model), alternating(len(model.blocks)))


def on_cpu(model: Transformer) -> PlacedTransformer:
    """A copy of a model, all of whose layers are placed on the CPU."""
    return place(copy.deepcopy(model), ["cpu"])


ENTRY = torch.device("cuda:0")
