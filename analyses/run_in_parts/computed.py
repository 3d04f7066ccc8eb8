"""What an analysis says of one part of the prompts."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from analyses.results import Result, table_with
from interp.errors import InvalidInput
from interp.execution import Provenance


@dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers of the prompts of a part.

    Attributes:
        frame: the table of them, in which prompts are counted from 0.
        noise: means within ±noise count as zero in p-values.
        metric_sum: Σ |metric without a change| over the prompts; ``None`` if there is no metric.
    """

    frame: pd.DataFrame
    noise: float
    metric_sum: float | None


@dataclass(frozen=True, eq=False)
class Computed:
    """What an analysis computed of a part.

    Attributes:
        numbers: the numbers of its prompts.
        column: the column to average.
        unit: its unit.
        analysis: the kind of result.
        provenance: that of the result.
        notes: those of the result.
    """

    numbers: Numbers
    column: str
    unit: str
    analysis: str
    provenance: Provenance
    notes: tuple[str, ...]

    @classmethod
    def of(cls, result: object, column: str | None, n: int) -> "Computed":
        """The numbers of ``n`` prompts in a result.

        Args:
            result: what an analysis returned.
            column: as for :func:`analyses.run_in_parts`.
            n: number of prompts.

        Raises:
            InvalidInput: the result has none, or they depend on the other prompts.
        """
        name = type(result).__name__
        if not isinstance(result, Result) or not hasattr(result, "to_prompt_frame"):
            raise InvalidInput(
                "analysis= should return a result with numbers of each prompt (to_prompt_frame); "
                f"got {name}."
            )
        separate = result.separate_prompts()
        if separate is None:
            raise InvalidInput(
                f"The numbers of a prompt in this {name} depend on the other prompts, so parts "
                "would have other numbers. If means or donors are taken from all prompts, give "
                "reference=; else give all prompts to the analysis itself."
            )
        frame, used = table_with(result, column)
        if "prompt" not in frame or not frame["prompt"].between(0, n - 1).all():
            raise InvalidInput(f"{used} of {name} is no number of each of {n} prompts.")
        provenance = getattr(result, "provenance", None)
        if not isinstance(provenance, Provenance):
            raise InvalidInput(f"{name} has no provenance.")
        unit, notes, metric = result.unit_of_column(used), tuple(result.notes), separate.metric
        size = None if metric is None else metric.double().abs().nansum().item()
        return cls(Numbers(frame, separate.noise, size), used, unit, name, provenance, notes)

    def depends_on(self) -> dict[str, Any]:
        """What the numbers depend on besides the prompts, and edits that are made from them."""
        provenance = self.provenance.to_dict()
        names = ("config", "weights", "dtype", "seed", "lens")
        return {"analysis": self.analysis, **{name: provenance[name] for name in names}}
