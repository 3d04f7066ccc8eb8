"""The tokens whose logits a unit raises most by itself, through the final norm alone.

    written · J_outᵀ · J_finalᵀ · W_U        J of a norm: gain and centring, with a divisor of 1

Divisors are numbers above 0 at each position, so they change no order (but for a unit that writes
to several sub-layers with norms after them). What later heads and MLPs make of the unit is no part
of it (Geva et al. 2022, "Transformer Feed-Forward Layers Build Predictions by Promoting Concepts in
the Vocabulary Space").
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.attribution_graph.nodes import GraphNode, Placed
from analyses.methods.circuits import top_columns
from analyses.methods.frozen import output_norm
from interp.linalg import LowRank
from interp.model import Norm, Unembedding

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
    of_branch = dict[int, dict[int, int]]()
    for number in nodes:
        if placed.ends.is_unit[number]:
            branch, at = placed.unit(number)
            of_branch.setdefault(branch, {})[number] = at
    if not of_branch:
        return dict(nodes)
    written = torch.cat(
        [_read(placed, branch, [*units.values()]) for branch, units in of_branch.items()]
    )
    ids, _ = top_columns(LowRank(written, unembed.W_U.to(written.dtype)), MOST_PROMOTED)
    numbers = [number for units in of_branch.values() for number in units]
    return dict(nodes) | {
        number: replace(nodes[number], promoted_tokens=" ".join(map(label, row)))
        for number, row in zip(numbers, ids.tolist(), strict=True)
    }


def _read(placed: Placed, branch: int, chosen: Sequence[int]) -> Float[Tensor, "chosen d_model"]:
    """What the unembedding reads of some units of a sub-layer, but for divisors of norms."""
    frozen, units = placed.rows.frozen, placed.rows.units[branch]
    which = torch.tensor(chosen, device=frozen.real.device)
    total = frozen.embeddings.new_zeros(())
    for target in units.targets:
        written, at = units.written(which, target), frozen.branches[target]
        normed = output_norm(at.layer, at.step)
        if normed is not None and not units.writes_after_norm:
            written = _linear(normed[0], written)
        total = total + written
    return _linear(frozen.stack.final_norm, total)


def _linear(norm: Norm, x: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    """What a norm with a divisor of 1 makes of x, without its bias."""
    identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    rows, _ = norm.pull_back(identity, identity.new_ones(1))
    return x @ rows.mT
