"""The moments of all prompts, to which one part after another is added."""

import hashlib
from dataclasses import replace
from math import nan
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.results import LabelledRows, Moments, rounding, rows_of_table
from analyses.run_in_parts.computed import Computed
from interp.errors import InvalidInput
from interp.execution import Provenance


class Totals:
    """What is kept of all prompts so far.

    Args:
        first: the first part, which is not added yet.

    Attributes:
        first: the same.
        moments: the moments of each cell.
        sizes: the moments of absolute values.
        undefined: number of prompts whose number is NaN.
        n_prompts: number of prompts.
        notes: the notes of all parts.
    """

    def __init__(self, first: Computed) -> None:
        self.first = first
        self.moments, self.sizes = Moments.none(0), Moments.none(0)
        self.undefined: Float[Tensor, " cell"] = torch.zeros(0, dtype=torch.float64)
        self.n_prompts, self.notes = 0, dict[str, None]()
        self._rows: dict[tuple[object, ...], int] = {}
        self._axes = self._rows_of(first.frame).axes
        self._metric, self._largest = Moments.none(), 0.0
        self._prompts = hashlib.sha256()

    @property
    def cells(self) -> dict[str, tuple[Any, ...]]:
        """The columns that name the cells."""
        labels = list(self._rows)
        return {axis: tuple(label[n] for label in labels) for n, axis in enumerate(self._axes)}

    @property
    def noise(self) -> float:
        """The largest mean that may be a rounding error."""
        return rounding(torch.tensor([self._largest]), self.first.provenance.dtype)

    @property
    def metric_size(self) -> float:
        """Mean |metric without a change|; NaN if there is none, or it is 0."""
        size = float(self._metric.mean)
        return size if size > self.noise else nan

    @property
    def provenance(self) -> Provenance:
        """That of the first part, with the hash of all prompts."""
        return replace(self.first.provenance, tokens=self._prompts.hexdigest())

    def add(self, frame: pd.DataFrame, n: int, digest: str) -> None:
        """Add the numbers of ``n`` prompts, whose hash is ``digest``.

        Raises:
            InvalidInput: the rows of its table have other labels than those of the first part.
        """
        part = self._rows_of(frame)
        if part.axes != self._axes:
            raise InvalidInput(
                f"Rows of {self.first.analysis} are labelled by {', '.join(self._axes)} in one "
                f"part and by {', '.join(part.axes)} in another, so they have no means over all prompts."
            )
        for label in part.labels:
            self._rows.setdefault(label, len(self._rows))
        where = torch.tensor([self._rows[label] for label in part.labels], dtype=torch.long)
        self.moments = _merged(self.moments, Moments.of(part.values), where, len(self._rows))
        self.sizes = _merged(self.sizes, Moments.of(part.values.abs()), where, len(self._rows))
        undefined = torch.zeros(len(self._rows), dtype=torch.float64)
        undefined[: len(self.undefined)] = self.undefined
        undefined[where] += (part.present & part.values.isnan()).sum(-1).double()
        self.undefined = undefined
        metric = _metric_without_a_change(frame)
        self._metric = self._metric.merged(Moments.of(metric.abs()))
        basis = metric if len(metric) else part.values.flatten()
        self._largest = max(self._largest, *basis.nan_to_num().abs().tolist(), 0.0)
        self.n_prompts += n
        self._prompts.update(digest.encode())

    def _rows_of(self, frame: pd.DataFrame) -> LabelledRows:
        """The numbers by row; names of cells at positions hold tokens, which differ by prompt."""
        at_positions = {"pos", "token", "name"} <= {*frame}
        table = frame.drop(columns="name") if at_positions else frame
        return rows_of_table(table, self.first.column, self.first.analysis)


def _merged(total: Moments, part: Moments, where: Tensor, n: int) -> Moments:
    """The moments of ``n`` cells, of which ``part`` has those in ``where``."""

    def of_all(values: Tensor, rows: Tensor) -> Tensor:
        every = values.new_zeros(n)
        every[rows] = values
        return every

    before = torch.arange(len(total.n))
    both = (
        Moments(*(of_all(x, rows) for x in (m.n, m.mean, m.second, m.third)))
        for m, rows in ((total, before), (part, where))
    )
    return next(both).merged(next(both))


def _metric_without_a_change(frame: pd.DataFrame) -> Float[Tensor, " prompt"]:
    """The metric of each prompt without a change, if the table has it."""
    if "clean" not in frame:
        return torch.zeros(0, dtype=torch.float64)
    return torch.tensor(frame.groupby("prompt")["clean"].first().to_numpy(dtype=float))
