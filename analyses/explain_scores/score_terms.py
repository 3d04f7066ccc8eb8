"""The terms of a score by pairs of writers, as tables, figure and text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution import Agreement
from analyses.results import (
    Drawing,
    Heatmap,
    Result,
    counted,
    effect_frame,
    effect_lines,
    fixed,
    grid,
    percent,
    rounding,
    signed,
)
from interp.execution import Provenance
from interp.integers import at_least

SHOWN = 12
"""The most writers on each side of the figure; the others are summed."""
FIRST = 3
"""Pairs in the first line of a summary."""
POSITIONS = "position bias"
"""The name of the term of relative biases or ALiBi."""
REST = "all others"
COMPARED = {
    "others": "against the mean of the other keys",
    "mean": "against the mean of all keys",
    "nothing": "",
}


@dataclass(frozen=True, eq=False, repr=False)
class ScoreTerms(Result):
    """A head's score of a key, compared with other keys, as the sum of terms.

    Scores are in nats of log attention. Cells of one prompt are averaged.

    Attributes:
        value: the score, before any soft-cap, minus what it is compared with.
        effect: the term of each pair: what the first wrote at the query times what the second wrote
            at the key (minus at the other keys).
        control: the same terms for a visible key drawn at random; NaN if there is no other.
        position_bias: what relative biases or ALiBi add.
        query_writers: names of what writes queries; see
            :class:`analyses.methods.attribution.Part`.
        key_writers: names of what writes keys.
        cells: the cells that are explained: prompt, query, key and, for a contrast, other key, with
            the labels of their tokens.
        cell_values: the score of each cell, minus what it is compared with.
        pattern: the attention of each cell.
        checked: indices of the pairs that were also removed, in the order of the terms.
        exact: the terms of these pairs as measured: the change of the score that both removals make
            together beyond the sum of their changes alone.
        removed_pattern: the attention with both writers of these pairs removed.
        predicted_pattern: the same, predicted from the terms.
        name: the head.
        by: ``component``, ``layer``, ``kind`` or ``feature``; with the last, the result is a
            :class:`FeatureScoreTerms`, whose ``effect`` has an axis of pairs.
        against: what the score is compared with: ``others``, ``mean``, ``nothing`` or ``key``.
        soft_cap: the soft-cap of the scores, which is not applied to ``value``; ``None`` if none.
        provenance: model, tokens and settings that the numbers depend on.
        notes: prompts without such a cell, and pairs that could not be removed.
    """

    effect_unit = "nats"

    value: Float[Tensor, " prompt"]
    effect: Float[Tensor, "query_writer key_writer prompt"]
    control: Float[Tensor, "query_writer key_writer prompt"]
    position_bias: Float[Tensor, " prompt"]
    query_writers: tuple[str, ...]
    key_writers: tuple[str, ...]
    cells: Mapping[str, Sequence[object]]
    cell_values: Float[Tensor, " cell"]
    pattern: Float[Tensor, " cell"]
    checked: Int[Tensor, " checked"]
    exact: Float[Tensor, "checked prompt"]
    removed_pattern: Float[Tensor, "checked prompt"]
    predicted_pattern: Float[Tensor, "checked prompt"]
    name: str
    by: str
    against: str
    soft_cap: float | None
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """The largest difference between Σ terms and ``value``, over the prompts, in nats."""
        total = self.effect.sum((0, 1)) + self.position_bias
        return (total - self.value).abs().max().item()

    @property
    def agreement(self) -> Agreement:
        """How the terms of the checked pairs agree with what their removal measures."""
        return Agreement.of(self._pairs[self.checked].mean(-1), self.exact.mean(-1))

    def to_frame(self) -> pd.DataFrame:
        """One row per pair of writers, largest size first.

        Columns:
            name, query_writer, key_writer: the pair; biases of positions are one more.
            effect, low, high: the mean term over prompts and its 95 % interval, in nats.
            size, share, n, p, q, significant: as in ``ablate_heads``, for a mean other than zero;
                share is that of the mean value.
            control: mean of |term| for a key drawn at random.
        """
        pairs = grid(query_writer=self.query_writers, key_writer=self.key_writers)
        effect, control = self._pairs, self.control.flatten(0, 1)
        if self.position_bias.any():
            pairs = {side: [*names, POSITIONS] for side, names in pairs.items()}
            effect = torch.cat([effect, self.position_bias[None]])
            control = torch.cat([control, torch.full_like(control[:1], torch.nan)])
        sizes = control.double().abs().nanmean(-1).tolist()
        names = list(map(pair_name, *pairs.values()))
        columns = {"name": names, **pairs, "control": sizes}
        frame = effect_frame(columns, effect, self._noise, metric=self.value)
        frame["control"] = frame.pop("control")
        return frame

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        checks = {"checks": self.to_check_frame()} if len(self.checked) else {}
        return {"writers": self.to_writer_frame(), "cells": self.to_cell_frame(), **checks}

    def to_writer_frame(self) -> pd.DataFrame:
        """One row per writer and side: the sum of its terms, largest size first.

        Columns:
            end: ``query`` or ``key``.
            writer: the writer.
            effect, low, high, size, share, n, p, q, significant: as in :meth:`to_frame`.
        """
        sides = {"query": self.query_writers, "key": self.key_writers}
        cells = {
            "end": [end for end, names in sides.items() for _ in names],
            "writer": [name for names in sides.values() for name in names],
        }
        sums = torch.cat([self.effect.sum(1), self.effect.sum(0)])
        return effect_frame(cells, sums, self._noise, metric=self.value)

    def to_cell_frame(self) -> pd.DataFrame:
        """One row per cell.

        Columns:
            prompt, query, key: the cell; ``other_key`` for a contrast.
            query_token, key_token: labels of the tokens.
            value: the score minus what it is compared with, in nats.
            pattern: the attention.
        """
        numbers = {"value": self.cell_values.numpy(), "pattern": self.pattern.numpy()}
        return pd.DataFrame({**self.cells, **numbers})

    def to_check_frame(self) -> pd.DataFrame:
        """One row per pair that was removed, in the order of their sizes.

        Columns:
            name, query_writer, key_writer: the pair.
            effect: the mean term, in nats.
            exact: the same as measured by removal, which only norms make differ.
            pattern: the mean attention to the key.
            predicted_pattern: the same without both writers, as the terms predict it.
            removed_pattern: the same as measured.
        """
        pairs = [divmod(pair, len(self.key_writers)) for pair in self.checked.tolist()]
        names = [(self.query_writers[a], self.key_writers[b]) for a, b in pairs]
        numbers = {
            "effect": self._pairs[self.checked].mean(-1),
            "exact": self.exact.mean(-1),
            "pattern": self.pattern.mean().expand(len(pairs)),
            "predicted_pattern": self.predicted_pattern.mean(-1),
            "removed_pattern": self.removed_pattern.mean(-1),
        }
        return pd.DataFrame(
            {
                "name": [pair_name(*pair) for pair in names],
                "query_writer": [query for query, _ in names],
                "key_writer": [key for _, key in names],
                **{column: values.double().numpy() for column, values in numbers.items()},
            }
        )

    def drawing(self) -> Drawing:
        """Heatmap of the mean terms: writers of queries down, of keys across, largest first."""
        table, rows = _largest(self.effect.double().mean(-1), self.query_writers)
        table, columns = _largest(table.T, self.key_writers)
        return Heatmap(
            table.T,
            title=f"{self.name} {self._where}: terms of the score {self._compared}".rstrip(),
            rows=rows,
            columns=columns,
            axes=("written at the query", "written at the key"),
            unit="nats",
            diverging=True,
        )

    def summary(self, top: int = 10) -> str:
        """The score, the ``top`` pairs, how exactly the terms sum to it, and what checks show."""
        top = at_least(1, top, "top")
        lines = effect_lines(self.to_frame(), "nats", "pairs", top)
        cap = f", before their soft-cap of {self.soft_cap:g}" if self.soft_cap else ""
        exact = (
            f"{counted(len(self._pairs), 'term')} sum to it within {self.error:.1e} nats{cap}; "
            "a × b: written by a at the query, by b at the key"
        )
        return "\n".join([self.headline(), *lines, exact, *self._check_lines(), *self.notes])

    def conclusion(self) -> list[str]:
        """See :meth:`Result.conclusion`."""
        return [self.headline(), *self._check_lines()]

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        frame = self.to_frame()
        pairs = (
            f"{row['name']} {signed(row['effect'], 2)} ({percent(row['share'])})"
            for row in frame[frame["size"] > self._noise].head(FIRST).to_dict("records")
        )
        return f"{self.score_line}: {', '.join(pairs)}"

    @property
    def score_line(self) -> str:
        """The cell, its score with what it is compared with, and its attention."""
        score = f"score {signed(self.value.mean(), 2)} nats {self._compared}".rstrip()
        attention = f"(attention {fixed(self.pattern.mean(), 2)})"
        return f"{self.name} {self._where}: {score} {attention}"

    # ---- lines and labels --------------------------------------------------------------------

    @property
    def _pairs(self) -> Float[Tensor, "pair prompt"]:
        return self.effect.flatten(0, 1)

    @property
    def _noise(self) -> float:
        return rounding(self.value, self.provenance.dtype)

    @property
    def _compared(self) -> str:
        """What the score is compared with."""
        if self.against != "key":
            return COMPARED[self.against]
        key = f"key {self._end('other_key')}" if self._is_single else "another key"
        return f"against {key}"

    @property
    def _is_single(self) -> bool:
        return len(self.pattern) == 1

    @property
    def _where(self) -> str:
        """The cell, or the number of cells."""
        if self._is_single:
            return f"from query {self._end('query')} to key {self._end('key')}"
        prompts = counted(len(self.value), "prompt")
        return f"in {counted(len(self.pattern), 'cell')} of {prompts}"

    def _end(self, side: str) -> str:
        """Position and token of the only cell."""
        return f"{self.cells[side][0]} {self.cells[f'{side}_token'][0]}"

    def _check_lines(self) -> list[str]:
        frame = self.to_check_frame()
        return [
            f"{row['name']} removed: term {signed(row['effect'], 3)} nats, measured "
            f"{signed(row['exact'], 3)}; attention {fixed(row['pattern'], 3)} → "
            f"{fixed(row['removed_pattern'], 3)} (predicted {fixed(row['predicted_pattern'], 3)})"
            for row in frame.to_dict("records")
        ]


def pair_name(query: str, key: str) -> str:
    """The name of a pair of writers."""
    return query if query == key and query in {POSITIONS, REST} else f"{query} × {key}"


def _largest(
    table: Float[Tensor, "writer other"], names: Sequence[str]
) -> tuple[Float[Tensor, "row other"], list[str]]:
    """The rows with the largest terms, largest first, and the sum of all others."""
    order: list[int] = table.abs().amax(-1).argsort(descending=True, stable=True).tolist()
    first, rest = order[:SHOWN], order[SHOWN:]
    labels = [names[row] for row in first]
    if not rest:
        return table[first], labels
    return torch.cat([table[first], table[rest].sum(0, keepdim=True)]), [*labels, REST]
