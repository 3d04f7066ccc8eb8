"""The moments of all prompts, to which one part after another is added."""

import hashlib
from dataclasses import replace
from math import nan
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from analyses.results import LabelledRows, Moments, rows_of_table
from analyses.run_in_parts.computed import Computed, Numbers
from interp.errors import InvalidInput


class Totals:
    """What is kept of all prompts so far.

    Args:
        first: the first part, which is not added yet.

    Attributes:
        n_prompts: number of prompts.
        notes: the notes of all parts.
    """

    def __init__(self, first: Computed) -> None:
        self.n_prompts, self.notes = 0, dict[str, None]()
        self._first = first
        self._axes = self._rows_of(first.numbers.frame).axes
        self._rows: dict[tuple[object, ...], int] = {}
        self._moments, self._sizes = Moments.none(0), Moments.none(0)
        self._undefined = torch.zeros(0, dtype=torch.long)
        self._metric_sum, self._noise = 0.0, 0.0
        self._prompts = hashlib.sha256()

    def statistics(self) -> dict[str, Any]:
        """The fields of :class:`analyses.Parts`, but its folder."""
        low, high = self._moments.ends()
        columns = {
            "mean": self._moments.mean,
            "low": low,
            "high": high,
            "size": self._sizes.mean,
            "p": self._moments.p_values(self._noise),
        }
        labels = list(self._rows)
        return {
            **{name: each.where(self._undefined == 0, nan) for name, each in columns.items()},
            "n": self._moments.n.long() + self._undefined,
            "cells": {
                axis: tuple(label[number] for label in labels)
                for number, axis in enumerate(self._axes)
            },
            "column": self._first.column,
            "unit": self._first.unit,
            "metric_size": self._metric_size,
            "analysis": self._first.analysis,
            "n_prompts": self.n_prompts,
            "provenance": replace(self._first.provenance, tokens=self._prompts.hexdigest()),
            "notes": tuple(self.notes),
        }

    @property
    def _metric_size(self) -> float | None:
        """Mean |metric without a change|; NaN if it is 0."""
        if self._first.numbers.metric_sum is None:
            return None
        size = self._metric_sum / self.n_prompts
        return size if size > self._noise else nan

    def add(self, numbers: Numbers, n: int, digest: str) -> None:
        """Add the numbers of ``n`` prompts, whose hash is ``digest``.

        Raises:
            InvalidInput: the rows of its table have other labels than those of the first part.
        """
        part = self._rows_of(numbers.frame)
        if part.axes != self._axes:
            raise InvalidInput(
                f"Rows of {self._first.analysis} are labelled by {', '.join(self._axes)} in one "
                f"part and by {', '.join(part.axes)} in another, so they have no common means."
            )
        for label in part.labels:
            self._rows.setdefault(label, len(self._rows))
        where = torch.tensor([self._rows[label] for label in part.labels], dtype=torch.long)
        self._moments = _merged(self._moments, Moments.of(part.values), where, len(self._rows))
        self._sizes = _merged(self._sizes, Moments.of(part.values.abs()), where, len(self._rows))
        undefined = torch.zeros(len(self._rows), dtype=torch.long)
        undefined[: len(self._undefined)] = self._undefined
        undefined[where] += (part.present & part.values.isnan()).sum(-1)
        self._undefined = undefined
        self._metric_sum += numbers.metric_sum or 0.0
        self._noise = max(self._noise, numbers.noise)
        self.n_prompts += n
        self._prompts.update(digest.encode())

    def _rows_of(self, frame: pd.DataFrame) -> LabelledRows:
        """The numbers by row; names of cells at positions hold tokens, which differ by prompt."""
        at_positions = {"pos", "token", "name"} <= {*frame}
        table = frame.drop(columns="name") if at_positions else frame
        return rows_of_table(table, self._first.column, self._first.analysis)


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
