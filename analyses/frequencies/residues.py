"""Tokens that are the residues 0 … p − 1, and the model's activations over all of them.

A prompt such as ``16 102 =`` represents all prompts that have any residues at the same positions:
p prompts if it holds one residue, p² if it holds two.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.finite import check_no_nan
from interp.errors import InvalidInput, shorten
from interp.execution import run
from interp.metrics import at_position
from interp.model import Network
from interp.points import Place

FEWEST = 3
"""Smallest number of residues; two have no frequency except that of even and odd."""
MOST_IN_A_PROMPT = 2
ROWS = 1024
"""Prompts per forward."""


@dataclass(frozen=True, eq=False)
class ResiduePrompts:
    """All prompts with any residues at the positions of those of one prompt.

    Attributes:
        residues: the token ids of 0, 1, …, p − 1.
        columns: the positions of residues in the prompt.
        ids: the token ids of all prompts; the last of ``columns`` varies fastest.
    """

    residues: Int[Tensor, " residue"]
    columns: tuple[int, ...]
    ids: Int[Tensor, "prompt pos"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of residues along each axis; there is one axis per residue of the prompt."""
        return (len(self.residues),) * len(self.columns)


def residue_prompts(prompt: Int[Tensor, " pos"], residues: Sequence[int]) -> ResiduePrompts:
    """All prompts of the form of the given one.

    Raises:
        InvalidInput: there are fewer than three residues, or one is repeated; or the prompt holds
            none or more than two.
    """
    token_ids = torch.tensor(residues)
    if len(token_ids) < FEWEST or len(token_ids.unique()) != len(token_ids):
        raise InvalidInput(
            f"residues={shorten(list(residues))} should be the token ids of 0, 1, …, p − 1, "
            f"{FEWEST} or more, all different."
        )
    columns = tuple(torch.isin(prompt, token_ids).nonzero().flatten().tolist())
    if not 1 <= len(columns) <= MOST_IN_A_PROMPT:
        raise InvalidInput(
            f"The prompt should hold one or two residues, as '16 102 =' does; this one holds "
            f"{len(columns)}."
        )
    every = torch.cartesian_prod(*[token_ids] * len(columns)).view(-1, len(columns))
    ids = prompt.repeat(len(every), 1)
    ids[:, list(columns)] = every
    return ResiduePrompts(token_ids, columns, ids)


@torch.no_grad()
def over_residues(
    model: Network, prompts: ResiduePrompts, places: Sequence[Place], pos: int
) -> tuple[list[Float[Tensor, "..."]], Float[Tensor, "..."]]:
    """Activations at one position of all prompts, and the logits of the residues there.

    Args:
        model: a model that reads tokens and has logits.
        prompts: the prompts.
        places: places whose tensors are ``[batch pos dim]``.
        pos: the position.

    Returns:
        The activations at each place, ``[*residues dim]``; and the logits, ``[*residues residue]``.
    """
    per_place: list[list[Tensor]] = [[] for _ in (*places, None)]
    for ids in prompts.ids.split(ROWS):
        done = run(model, ids, record=list(places))
        for tensors, place in zip(per_place, places, strict=False):
            tensors.append(at_position(done.cache[place], done.batch, pos))
        logits = at_position(done.require_logits(), done.batch, pos)
        check_no_nan(model, [done.batch], logits)
        per_place[-1].append(logits[:, prompts.residues.to(logits.device)])
    *values, logits = (
        torch.cat(tensors).cpu().unflatten(0, prompts.shape) for tensors in per_place
    )
    return values, logits
