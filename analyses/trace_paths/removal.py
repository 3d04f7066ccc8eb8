"""Removes a node or a single edge from a run, so that its effect can be measured.

A node is removed by zeros in place of z, of an MLP's neurons or of an embedding. An edge u → r is
removed by giving r alone, at one query, what it would read without u: the norm of x − u is computed
anew, and so are the value, the score or the query that it leads to. All that follows is recomputed.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.frozen import Branch, FrozenModel
from analyses.trace_paths.traced import Node
from interp import edits
from interp.edits import Edit
from interp.model import MLP, Attention
from interp.points import Place, Point


class Removed(NamedTuple):
    """What is removed: a node, or what a reader reads of it by a letter."""

    writer: Node
    reader: Node | None = None
    letter: str = ""


@torch.no_grad()
def removal(frozen: FrozenModel, removed: Removed) -> Edit:
    """The edit that removes a node or an edge."""
    writer, pos = removed.writer
    if removed.reader is not None:
        return _of_edge(frozen, frozen.vectors[writer, pos], pos, removed.reader, removed.letter)
    part, branch = frozen.parts[writer], frozen.branch_of.get(writer)
    if branch is None:
        place = frozen.entry[part]
        return edits.zero(place, pos=pos)
    f = branch.step.f
    if isinstance(f, Attention):
        return edits.zero(Place(f.points.z, branch.layer), head=part.head, pos=pos)
    point = Point.POST if isinstance(f, MLP) else f.hidden_point
    return edits.zero(Place(point, branch.layer), pos=pos)


def _of_edge(
    frozen: FrozenModel, u: Float[Tensor, " d_model"], pos: int, reader: Node, letter: str
) -> Edit:
    """The edit that removes u, written at a position, from what a reader reads."""
    number, at = reader
    if number == len(frozen.parts):
        return edits.add(frozen.end, -u, pos=pos)
    branch = frozen.branch_of[number]
    reads = Place(branch.step.points.reads, branch.layer)
    if not letter:
        return edits.add(reads, -u, pos=pos)
    x = branch.step.input_norm((frozen.at(reads)[pos] - u)[None, None])
    return _of_head(frozen, branch, x, (number - branch.writers.start, at, pos), letter)


def _of_head(
    frozen: FrozenModel,
    branch: Branch,
    x: Float[Tensor, "1 1 d_model"],
    place: tuple[int, int, int],
    letter: str,
) -> Edit:
    """The edit that gives a head another input at one position, for one query and letter.

    Args:
        frozen: the run.
        branch: the attention.
        x: the input.
        place: the head, the query and the position of the input.
        letter: what is computed from it: ``q``, ``k`` or ``v``.
    """
    attention, (head, query, pos) = frozen.attention(branch), place
    f = attention.attention
    if letter == "q":
        q = f.project_head(f.points.q, head, x)[0, 0]
        return edits.replace(Place(f.points.q, branch.layer), q, head=head, pos=query)
    shared = f.kv_head(head)
    if letter == "v":
        change = f.project_head(f.points.v, shared, x)[0, 0] - attention.values[pos, head]
        z = attention.pattern[head, query, pos] * change
        return edits.add(Place(f.points.z, branch.layer), z, head=head, pos=query)
    score = attention.score_with(f.project_head(f.points.k, shared, x)[0, 0], head, query, pos)
    return edits.replace(
        Place(f.points.scores, branch.layer), float(score), head=head, pos=query, key=pos
    )
