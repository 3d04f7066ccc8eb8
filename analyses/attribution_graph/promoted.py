"""The tokens whose logits a unit raises most by itself, through the final norm alone.

    written · J_outᵀ · J_finalᵀ · W_U        J of a norm: gain and centring, with a divisor of 1

Divisors are numbers above 0 at each position, so they change no order. What later heads and MLPs
make of the unit is no part of it (Geva et al. 2022, "Transformer Feed-Forward Layers Build
Predictions by Promoting Concepts in the Vocabulary Space").
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribution_graph.nodes import GraphNode, Placed
from analyses.methods.frozen import output_norm
from interp.model import Norm, Unembedding

BLOCK = 4096
"""Number of tokens whose logits are computed at a time."""
MOST_PROMOTED = 5
"""Number of tokens that are named of each unit."""


def with_promoted(
    placed: Placed,
    nodes: Mapping[int, GraphNode],
    unembed: Unembedding,
    label: Callable[[int], str],
) -> dict[int, GraphNode]:
    """The nodes of a graph, of which units name the tokens that they promote.

    Args:
        placed: where the nodes are.
        nodes: the nodes by their numbers.
        unembed: the unembedding of the model.
        label: the label of a token.
    """
    named, of_branch = dict(nodes), dict[int, list[tuple[int, int]]]()
    for number in nodes:
        if placed.ends.is_unit[number]:
            branch, at = placed.unit(number)
            of_branch.setdefault(branch, []).append((number, at))
    for branch, units in of_branch.items():
        which = torch.tensor([at for _, at in units], device=unembed.W_U.device)
        ids = _promoted(placed, branch, which, unembed).tolist()
        for (number, _), row in zip(units, ids, strict=True):
            named[number] = replace(nodes[number], promoted_tokens=" ".join(map(label, row)))
    return named


def _promoted(
    placed: Placed, branch: int, which: Int[Tensor, " chosen"], unembed: Unembedding
) -> Int[Tensor, "chosen token"]:
    """The tokens that some units of a sub-layer promote, the most promoted first."""
    frozen, units = placed.rows.frozen, placed.rows.units[branch]
    written = units.written(which)
    normed = output_norm(frozen.branches[branch].layer, frozen.branches[branch].step)
    if normed is not None and not units.writes_after_norm:
        written = _linear(normed[0], written)
    written = _linear(frozen.stack.final_norm, written)
    logits, ids = written[:, :0], which[:, None][:, :0]
    for first in range(0, unembed.W_U.shape[1], BLOCK):
        block = written @ unembed.W_U[:, first : first + BLOCK].to(written.dtype)
        numbers = torch.arange(first, first + block.shape[1], device=ids.device)
        every = torch.cat([logits, block], 1)
        logits, order = every.topk(min(MOST_PROMOTED, every.shape[1]))
        ids = torch.cat([ids, numbers.expand_as(block)], 1).gather(1, order)
    return ids


def _linear(norm: Norm, x: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    """What a norm with a divisor of 1 makes of x, without its bias."""
    identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    rows, _ = norm.pull_back(identity, identity.new_ones(1))
    return x @ rows.mT
