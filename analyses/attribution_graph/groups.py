"""Units of a graph that belong together: those that promote, or read, nearly the same.

Units are taken in order of their influence. Each joins the first group whose first unit is like it,
or begins one:

    by tokens     |tokens that both promote| / |tokens of one| ≥ .6
    by sources    cosine of what the two read of each node     ≥ .8

So a group is alike in what its first unit does, and the strongest unit is its first.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from analyses.attribution_graph.nodes import GraphNode

LEAST_TOKENS, LEAST_COSINE = 0.6, 0.8
"""How alike units of one group are."""
NAMED = 2
"""Number of tokens in the name of a group."""
Alike = Bool[Tensor, "unit other"]


def groups_by_tokens(units: Sequence[GraphNode]) -> dict[str, list[str]]:
    """Groups of units that promote the same tokens; each is named by its first unit's tokens.

    Args:
        units: the units, most influence first.
    """
    promoted = [unit.promoted_tokens.split() for unit in units]
    alike = [
        [len({*a} & {*b}) >= LEAST_TOKENS * max(len(a), 1) for b in promoted] for a in promoted
    ]
    names = [" ".join(tokens[:NAMED]) for tokens in promoted]
    matrix = torch.tensor(alike, dtype=torch.bool).reshape(len(units), len(units))
    return _groups(units, matrix, names)


def groups_by_sources(
    units: Sequence[GraphNode], read: Mapping[str, Mapping[str, float]]
) -> dict[str, list[str]]:
    """Groups of units that read the same; each is named by what its first unit reads most of.

    Args:
        units: the units, most influence first.
        read: what each node reads of each source.
    """
    sources = sorted({source for of_source in read.values() for source in of_source})
    rows = [[read.get(unit.name, {}).get(source, 0.0) for source in sources] for unit in units]
    terms = torch.tensor(rows, dtype=torch.float64).reshape(len(units), len(sources))
    directions = terms / terms.norm(dim=1, keepdim=True).clamp_min(torch.finfo(terms.dtype).tiny)
    names = [f"of {sources[n]}" for n in terms.abs().argmax(1).tolist()] if sources else []
    return _groups(units, directions @ directions.mT >= LEAST_COSINE, names)


def _groups(units: Sequence[GraphNode], alike: Alike, names: Sequence[str]) -> dict[str, list[str]]:
    """The groups of more than one unit; equal names are numbered."""
    members: dict[int, list[int]] = {}
    for number in range(len(units)):
        first = next((first for first in members if alike[first, number]), number)
        members.setdefault(first, []).append(number)
    groups: dict[str, list[str]] = {}
    times = Counter[str]()
    for first, numbers in members.items():
        if len(numbers) > 1:
            name = names[first]
            times[name] += 1
            distinct = name if times[name] == 1 else f"{name} #{times[name]}"
            groups[distinct] = [units[n].name for n in numbers]
    return groups
