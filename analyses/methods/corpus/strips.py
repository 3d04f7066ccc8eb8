"""Values along the texts of the largest cells, and the same values with shuffled tokens.

Shuffling the other tokens of a text keeps the tokens and removes their order. The value that the
cell has then is the control of its largest value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.corpus.measures import Measure
from analyses.methods.corpus.stream import Streamed, Text, values_of
from interp.integers import SEEDS
from interp.model import Batch
from interp.prompts import rows_of

Cell = tuple[int, int]
"""Indices of the unit and of the rank of a cell."""


@torch.no_grad()
def strips(measure: Measure, streamed: Streamed, rows: int) -> Float[Tensor, "unit top token"]:
    """The values along the text of each cell; for attention, those of the cell's query.

    They are NaN after the end of a text; for attention, of the text of the keys.

    Args:
        measure: the measure.
        streamed: the result that has the cells.
        rows: texts per forward.
    """
    along = measure.stack if measure.key_stack is None else measure.key_stack
    width = max(text[along].ids.shape[1] for text in streamed.texts.values())
    strip = streamed.value.new_full((*streamed.value.shape, width), torch.nan)
    numbers = torch.tensor(sorted(streamed.texts))
    for part in numbers.split(rows):
        batches = rows_of([streamed.texts[n] for n in part.tolist()])
        x, counted = values_of(measure, batches).cpu(), batches[along].is_real.cpu()
        unit, rank = torch.isin(streamed.text, part).nonzero().unbind(-1)
        row = torch.searchsorted(part, streamed.text[unit, rank])
        pos = streamed.pos[unit, rank]
        values = x[unit, row, :, 0] if measure.key_stack is None else x[unit, row, pos]
        strip[unit, rank, : values.shape[-1]] = values.where(counted[row], torch.nan)
    return strip


@torch.no_grad()
def shuffled_values(
    measure: Measure, streamed: Streamed, *, ranks: int, draws: int, rows: int, seed: int
) -> Float[Tensor, "unit top"]:
    """The values of the first cells when all other tokens of their texts are shuffled.

    A BOS stays in its place. For images, the values are NaN.

    Args:
        measure: the measure.
        streamed: the result that has the cells.
        ranks: number of cells of each unit to take, from the first.
        draws: number of random orders over which the mean is taken.
        rows: texts per forward.
        seed: of the random orders.
    """
    value = streamed.value[:, :ranks]
    if any(batch.images is not None for text in streamed.texts.values() for batch in text):
        return torch.full_like(value, torch.nan)
    total = torch.zeros_like(value)
    cells = [(unit, rank) for unit in range(len(value)) for rank in range(value.shape[1])]
    for part in _split(cells, max(1, rows // draws)):
        texts = [
            _shuffled(measure, streamed, cell, (seed + draw) % SEEDS)
            for cell in part
            for draw in range(draws)
        ]
        x = values_of(measure, rows_of(texts)).cpu()
        unit, rank = (torch.tensor(indices) for indices in zip(*part, strict=True))
        row = torch.arange(len(texts)).view(len(part), draws)
        pos, key = (positions[unit, rank][:, None] for positions in (streamed.pos, streamed.key))
        total[unit, rank] = x[unit[:, None], row, pos, key].mean(-1)
    return total


def _split(cells: Sequence[Cell], size: int) -> Iterator[Sequence[Cell]]:
    for start in range(0, len(cells), size):
        yield cells[start : start + size]


def _shuffled(measure: Measure, streamed: Streamed, cell: Cell, seed: int) -> Text:
    """The text of a cell, with its other tokens in a random order."""
    text = streamed.texts[int(streamed.text[cell])]
    bos = measure.model.config.tokens.bos
    fixed: list[set[int]] = [{0} if int(batch.ids[0, 0]) == bos else set() for batch in text]
    fixed[measure.stack].add(int(streamed.pos[cell]))
    if measure.key_stack is not None:
        fixed[measure.key_stack].add(int(streamed.key[cell]))
    # The same seed for every text: the order does not depend on the text's index in the corpus.
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        _reordered(batch, fixed_columns, generator)
        for batch, fixed_columns in zip(text, fixed, strict=True)
    )


def _reordered(batch: Batch, unmoved: set[int], generator: torch.Generator) -> Batch:
    """One text, with the tokens at positions outside ``unmoved`` in a random order."""
    others = torch.tensor(
        [n for n in range(batch.ids.shape[1]) if n not in unmoved], dtype=torch.long
    )
    others = others.to(batch.ids.device)
    order = torch.randperm(len(others), generator=generator).to(batch.ids.device)
    ids = batch.ids.clone()
    ids[:, others] = batch.ids[:, others[order]]
    return replace(batch, ids=ids)
