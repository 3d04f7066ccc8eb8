"""The scores of a head's cells on many prompts, as sums of terms of pairs of writers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from analyses.explain_scores.cells import Cell, Choice
from analyses.methods.attribution import Head, Part, PromptScores, Split, Vectors
from analyses.methods.finite import check_no_nan
from interp.edits import Edit
from interp.execution import run
from interp.model import Batch

ROWS = 16
"""Prompts run at a time, at most."""
BY = ("component", "layer", "kind", "feature")
KINDS = {"embedding": "embeddings", "head": "heads", "mlp": "MLPs", "bias": "biases"}
Terms = Float[Tensor, "query_writer key_writer"]
Grouped = dict[str, Float[Tensor, "_ d_head"]]
"""The part of queries or keys that each writer gives."""


@dataclass(frozen=True, eq=False)
class PromptTerms:
    """The terms of a prompt's cells.

    Attributes:
        prompt: index of the prompt.
        cells: the cells.
        value: the number that is explained, for each cell.
        pattern: the attention to the key of each cell.
        position_bias: what biases of positions add, mean over cells.
        effect: the term of each pair of writers, mean over cells.
        control: the same for random keys; NaN if there are none.
    """

    prompt: int
    cells: tuple[Cell, ...]
    value: Float[Tensor, " cell"]
    pattern: Float[Tensor, " cell"]
    position_bias: float
    effect: Terms
    control: Terms


@dataclass(frozen=True, eq=False)
class Writers:
    """The writers of both sides, as groups of parts.

    Attributes:
        query: the parts of each writer of queries, by its name.
        key: the same for keys.
    """

    query: dict[str, list[Part]]
    key: dict[str, list[Part]]


@dataclass(frozen=True, eq=False)
class Grouping:
    """How the parts of the model are grouped to writers.

    Attributes:
        by: one of :data:`BY`.
        query: neurons that are writers of queries on their own.
        key: neurons that are writers of keys on their own.
    """

    by: str
    query: Split
    key: Split


@torch.no_grad()
def largest_neurons(
    head: Head, batches: Sequence[Batch], choice: Choice, n: int
) -> tuple[Split, Split]:
    """The neurons that add most to the explained scores at queries, and those at keys.

    Args:
        head: the head.
        batches: the prompts of each stack.
        choice: how cells are chosen.
        n: number of neurons of each side, with the largest mean |term| over prompts.
    """
    sizes: tuple[dict[str, Tensor], dict[str, Tensor]] = {}, {}
    for prompt, scores in scores_of_prompts(head, batches) if n else ():
        cells = choice.of(scores, prompt, ids_of(head, batches, prompt))
        if cells:
            weights = choice.weights(scores, cells)
            terms = scores.neuron_terms(queries_of(cells, scores), weights)
            for side, of_side in zip(sizes, terms, strict=True):
                for name, values in of_side.items():
                    side[name] = side.get(name, 0) + values.abs() / len(cells)
    query, key = (_largest(side, n) for side in sizes)
    return query, key


def _largest(sizes: Mapping[str, Tensor], n: int) -> dict[str, list[int]]:
    """The ``n`` largest neurons, by their MLPs."""
    if not sizes:
        return {}
    every = torch.cat([*sizes.values()])
    cells = [(name, neuron) for name, values in sizes.items() for neuron in range(len(values))]
    chosen: dict[str, list[int]] = {}
    for number in every.topk(min(n, len(every))).indices.sort().values.tolist():
        name, neuron = cells[number]
        chosen.setdefault(name, []).append(neuron)
    return chosen


@torch.no_grad()
def explain_cells(
    head: Head, batches: Sequence[Batch], choice: Choice, grouping: Grouping, seed: int
) -> tuple[Writers, list[PromptTerms]]:
    """Explain the chosen cells of all prompts.

    Args:
        head: the head.
        batches: the prompts of each stack.
        choice: how cells are chosen.
        grouping: the writers.
        seed: seed for the random keys of the control.

    Returns:
        The writers, and the terms of each prompt that has cells.

    Raises:
        InvalidInput: a cell is masked or not in its prompt.
    """
    writers, explained = Writers({}, {}), list[PromptTerms]()
    for prompt, scores in scores_of_prompts(head, batches):
        cells = choice.of(scores, prompt, ids_of(head, batches, prompt))
        if not cells:
            continue
        query = scores.query_vectors(queries_of(cells, scores), grouping.query)
        key = scores.key_vectors(grouping.key)
        writers = Writers(members(query, grouping.by), members(key, grouping.by))
        generator = torch.Generator().manual_seed((seed + prompt) % 2**63)
        terms = _Terms(scores, choice, grouped(query, grouping.by), grouped(key, grouping.by))
        explained.append(terms.of(prompt, cells, generator))
    return writers, explained


@dataclass(frozen=True, eq=False)
class _Terms:
    """What the terms of a prompt are computed from."""

    scores: PromptScores
    choice: Choice
    query: Grouped
    key: Grouped

    def of(self, prompt: int, cells: list[Cell], generator: torch.Generator) -> PromptTerms:
        scores, weights = self.scores, self.choice.weights(self.scores, cells)
        queries, keys = queries_of(cells, scores), [key for _, key, _ in cells]
        position_bias = (weights * scores.bias[queries]).sum(-1)
        drawn = self.choice.drawn(scores, cells, generator)
        return PromptTerms(
            prompt,
            tuple(cells),
            value_of(scores.scores[queries], weights) + position_bias,
            scores.pattern[queries, keys],
            float(position_bias.mean()),
            self._products(weights, list(range(len(cells)))),
            self._control(drawn),
        )

    def _control(self, drawn: list[Cell | None]) -> Terms:
        numbers = [number for number, cell in enumerate(drawn) if cell is not None]
        if not numbers:
            shape = len(self.query), len(self.key)
            return torch.full(shape, torch.nan, dtype=self.scores.scores.dtype)
        chosen = [cell for cell in drawn if cell is not None]
        return self._products(self.choice.weights(self.scores, chosen), numbers)

    def _products(self, weights: Float[Tensor, "cell key"], numbers: list[int]) -> Terms:
        """The products of all pairs of vectors, mean over some of the cells."""
        query = torch.stack([vector[numbers] for vector in self.query.values()])
        key = torch.stack([weights @ vector for vector in self.key.values()])
        products = einsum(query, key, "query cell d, key cell d -> query key")
        return (products / len(numbers)).cpu()


def scores_of_prompts(
    head: Head, batches: Sequence[Batch], edits: Sequence[Edit] | None = None
) -> Iterator[tuple[int, PromptScores]]:
    """The head's scores on each prompt.

    Args:
        head: the head.
        batches: the prompts of each stack.
        edits: edits of the run, whose scores are read without their terms; ``None`` for a run from
            which terms can be read.
    """
    first = batches[0].ids
    for rows in torch.arange(len(first), device=first.device).split(ROWS):
        some = [batch.rows(rows) for batch in batches]
        cache = run(
            head.model,
            *some,
            record=head.places if edits is None else head.places_of_scores,
            edits=edits or (),
            stop_at_layer=head.stop_at_layer,
        ).cache
        check_no_nan(head.model, some, *(cache[place] for place in head.places_of_scores))
        for number, row in enumerate(rows.tolist()):
            yield row, PromptScores(head, cache, some, number)


def ids_of(head: Head, batches: Sequence[Batch], prompt: int) -> list[int] | None:
    """The ids of a prompt's tokens; ``None`` if queries and keys are not the same tokens."""
    batch = batches[head.kind.query]
    if head.kind.is_cross or batch.images is not None:
        return None
    return batch.ids[prompt, batch.is_real[prompt]].tolist()


def queries_of(cells: Sequence[Cell], scores: PromptScores) -> Tensor:
    """The positions of the queries of cells."""
    return torch.tensor([query for query, *_ in cells], device=scores.scores.device)


def value_of(
    scores: Float[Tensor, "cell key"], weights: Float[Tensor, "cell key"]
) -> Float[Tensor, " cell"]:
    """The sum of the scores of all keys with their weights, in which a masked key has weight 0."""
    return (weights * scores).sum(-1)


def group_of(part: Part, by: str) -> str:
    """The name of the group that a part belongs to."""
    if by == "kind":
        return KINDS[part.kind]
    if by == "component" or part.kind in ("embedding", "mlp"):
        return part.name
    if part.kind == "bias":
        return KINDS["bias"]
    return f"{part.name.removesuffix(f'H{part.head}')} heads"


def grouped(vectors: Vectors, by: str) -> Grouped:
    """The vectors of each group, summed."""
    sums: Grouped = {}
    for part, vector in vectors.items():
        name = group_of(part, by)
        sums[name] = sums[name] + vector if name in sums else vector
    return sums


def members(vectors: Vectors, by: str) -> dict[str, list[Part]]:
    """The parts of each group."""
    parts: dict[str, list[Part]] = {}
    for part in vectors:
        parts.setdefault(group_of(part, by), []).append(part)
    return parts
