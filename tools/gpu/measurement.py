"""A row of the table, with its precision and the largest difference of the compared values."""

from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from benchmarks.table import Row


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A comparison at a precision.

    Attributes:
        precision: name of the :class:`~benchmarks.precision.Precision`.
        row: the amounts, ratio and mark.
        difference: largest difference between the two results, relative to the largest value;
            ``None`` if no values are compared.
        tolerance: bound on the difference.
    """

    precision: str
    row: Row
    difference: float | None = None
    tolerance: float | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether the values agree within the tolerance; ``None`` if none are compared."""
        if self.difference is None or self.tolerance is None:
            return None
        return self.difference <= self.tolerance

    @property
    def holds(self) -> bool | None:
        """Whether the values agree and the mark holds; ``None`` if neither was judged."""
        judged = {"holds": True, "misses": False}
        verdicts = [self.agrees, judged.get(self.row.verdict)]
        decided = [verdict for verdict in verdicts if verdict is not None]
        return all(decided) if decided else None

    @property
    def verdict(self) -> str:
        """The verdict of the row; a disagreement of the values comes first."""
        if self.agrees is False:
            return f"values differ by more than {self.tolerance:g}"
        return self.row.verdict or ("agrees" if self.agrees else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that are not finite become text."""
        extra = {"difference": self.difference, "tolerance": self.tolerance, "holds": self.holds}
        data = {**self.row.to_dict(), "precision": self.precision, **extra, "verdict": self.verdict}
        return {name: _as_json(value) for name, value in data.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Measurement":
        """The inverse of :meth:`to_dict`."""
        extra = ("precision", "difference", "tolerance", "holds")
        row = {name: value for name, value in data.items() if name not in extra}
        for name in NUMBERS & row.keys():
            row[name] = _as_number(row[name])
        return cls(
            precision=data["precision"],
            row=Row.from_dict(row),
            difference=_as_number(data["difference"]),
            tolerance=data["tolerance"],
        )


NUMBERS = {"ours", "theirs", "ratio", "multiply_adds", "of_limit"}


def _as_json(value: object) -> object:
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _as_number(value: str | float | None) -> float | None:
    return None if value is None else float(value)


@torch.no_grad()
def relative_difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest |ours − theirs| divided by the largest |theirs|, in at least float32."""
    wide = torch.promote_types(ours.dtype, torch.float32)
    ours, theirs = ours.to(wide), theirs.to(wide)
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()
