"""Snippets: the tokens around the cells with the largest values."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from jaxtyping import Float
from torch import Tensor

from analyses.methods.corpus.measures import Measure
from analyses.methods.corpus.stream import Streamed
from interp.model import Batch
from interp.transformer import TextNetwork

BEFORE, AFTER = 8, 3
"""Number of tokens shown before and after the token of a cell."""
NEAR_KEY, NEAR_QUERY = 4, 4
"""Number of tokens shown before a key (and half as many after it), and before a query."""
GAP = "…"


@dataclass(frozen=True)
class Snippet:
    """Some tokens of a text; for attention, those around the key, then those around the query.

    Attributes:
        positions: positions of the tokens; -1 for a gap between them.
        labels: labels of the tokens. The token of the cell (for attention, the key) is in «»; the
            query is in ‹›.
        token: label of the token of the cell; for attention, of the query.
        key_token: for attention, label of the key; otherwise empty.
        of_query: index from which ``positions`` are those of the queries' stack, if that is not the
            stack of the keys; otherwise the number of positions.
    """

    positions: tuple[int, ...]
    labels: tuple[str, ...]
    token: str
    key_token: str
    of_query: int

    @property
    def marked(self) -> str:
        """The labels as one text."""
        return " ".join(self.labels)

    def values(self, strip: Float[Tensor, " token"]) -> list[float]:
        """The value at each label, taken from the values of a text; NaN where there is none."""
        cells = strip.tolist()
        return [
            cells[pos] if pos >= 0 and index < self.of_query else nan
            for index, pos in enumerate(self.positions)
        ]


def snippets(
    model: TextNetwork, measure: Measure, streamed: Streamed
) -> tuple[tuple[Snippet, ...], ...]:
    """The snippets of each unit's cells, the largest first."""
    labels = {
        n: tuple(_labels(model, batch) for batch in text) for n, text in streamed.texts.items()
    }
    cells = zip(streamed.text.tolist(), streamed.pos.tolist(), streamed.key.tolist(), strict=True)

    def of_cell(text: int, pos: int, key: int) -> Snippet:
        text_labels = labels[text][measure.stack]
        if measure.key_stack is None:
            return _of_token(text_labels, pos)
        return _of_pair(text_labels, pos, labels[text][measure.key_stack], key, measure)

    return tuple(
        tuple(of_cell(*cell) for cell in zip(*unit_cells, strict=True)) for unit_cells in cells
    )


def _of_token(labels: Sequence[str], pos: int) -> Snippet:
    positions = range(max(0, pos - BEFORE), min(len(labels), pos + AFTER + 1))
    marked = [f"«{labels[n]}»" if n == pos else labels[n] for n in positions]
    return Snippet(tuple(positions), tuple(marked), labels[pos], "", len(positions))


def _of_pair(
    labels: Sequence[str], pos: int, key_labels: Sequence[str], key: int, measure: Measure
) -> Snippet:
    crossing = measure.stack != measure.key_stack
    near_key = range(max(0, key - NEAR_KEY), min(len(key_labels), key + NEAR_KEY // 2 + 1))
    near_query = range(max(0, pos - NEAR_QUERY), pos + 1)
    if crossing:
        both = [*_marked(key_labels, near_key, key, None), (-1, GAP)]
        query = _marked(labels, near_query, None, pos)
        positions, texts = zip(*both, *query, strict=True)
        return Snippet(positions, texts, labels[pos], key_labels[key], len(both))
    cells: list[tuple[int, str]] = []
    for n, label in _marked(labels, sorted({*near_key, *near_query}), key, pos):
        cells += [(-1, GAP)] if cells and n != cells[-1][0] + 1 else []
        cells.append((n, label))
    positions, texts = zip(*cells, strict=True)
    return Snippet(positions, texts, labels[pos], key_labels[key], len(positions))


def _marked(
    labels: Sequence[str], positions: Sequence[int], key: int | None, query: int | None
) -> list[tuple[int, str]]:
    """Positions and labels, with marks around the key and the query."""

    def mark(n: int) -> str:
        label = f"«{labels[n]}»" if n == key else labels[n]
        return f"‹{label}›" if n == query else label

    return [(n, mark(n)) for n in positions]


def _labels(model: TextNetwork, batch: Batch) -> list[str]:
    """A label for each token of one text; for a patch of an image, its index."""
    if batch.images is not None:
        return [str(number) for number in range(batch.ids.shape[1])]
    return model.to_labels(batch.ids)
