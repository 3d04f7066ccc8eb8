"""One weight of every layer as one tensor: ``model.W_Q [layer head d_model d_head]``."""

from collections.abc import Sequence

import torch
from torch import Tensor

from interp.errors import NoSuchAttribute
from interp.model.block import Block

STACKED = {
    **dict.fromkeys(("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"), "attn"),
    **dict.fromkeys(("W_in", "W_gate", "W_out", "b_in", "b_out"), "mlp"),
}
"""Each weight that can be stacked, and the part of a block that has it."""


def stacked(blocks: Sequence[Block], name: str) -> Tensor:
    """The weight of each block, stacked (a copy).

    Raises:
        NoSuchAttribute: some block does not have it, or its shapes differ.
    """
    parts = [getattr(block, STACKED[name], None) for block in blocks]
    weights = [getattr(part, name, None) for part in parts]
    present = [weight for weight in weights if weight is not None]
    if not present:
        raise NoSuchAttribute(f"This model has no {name}.")
    if len(present) < len(weights) or len({weight.shape for weight in present}) > 1:
        raise NoSuchAttribute(f"The layers differ in {name}; read model.blocks[layer] one by one.")
    return torch.stack(present)
