"""How do two models differ? The same analysis of both, row by row on one scale.

    difference = b − a        of each row, on each prompt

The same analysis is run on two models of one shape, or on two steps of a training, and its rows are
joined by their labels (layer, head, point, role, …). Where the result has a number per prompt, both
models are measured on the same prompts, so the interval is that of the mean paired difference.

What the numbers can't show: heads of models that were trained separately do not correspond. Head 3
of one may do what head 5 of the other does, and a difference may show no more than a different
numbering. Between two steps of one training, a head is the same head.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import tee
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.ablate_heads import ablate_heads
from analyses.results import (
    Drawing,
    Heatmap,
    Result,
    bracketed,
    check_same_rows,
    effect_frame,
    effect_text,
    fixed,
    marked_names,
    places_of_effects,
    prompt_frame,
    rounding,
    rows_of,
    signed,
    significance_text,
    titles,
)
from interp import Transformer, load
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import at_least

SHOWN = 30
"""The most rows of a figure."""


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """The same numbers of two models.

    Attributes:
        a: the numbers of the first model; with a single column if the result has no numbers per
            prompt. NaN where a prompt has no such row.
        b: the numbers of the second model.
        cells: the columns that identify rows, each with one entry per row.
        models: names of the two models.
        column: the column of the analysis's table that is compared.
        unit: unit of the numbers; ``""`` if the result names none.
        analysis: the kind of result.
        of_prompts: whether there is one number per prompt.
        provenances: provenance of both results.
    """

    a: Float[Tensor, "row prompt"]
    b: Float[Tensor, "row prompt"]
    cells: Mapping[str, tuple[Any, ...]]
    models: tuple[str, str]
    column: str
    unit: str
    analysis: str
    of_prompts: bool
    provenances: tuple[Provenance, Provenance]

    @property
    def provenance(self) -> Provenance:
        """The provenance of the second model's result."""
        return self.provenances[1]

    @property
    def difference(self) -> Float[Tensor, "row prompt"]:
        """``b − a``."""
        return self.b - self.a

    def to_frame(self) -> pd.DataFrame:
        """One row per row of the analysis's table, largest size of the difference first.

        Columns:
            the axes of the analysis, such as layer, head, name.
            a, b: the mean of each model over prompts.
            difference, low, high: b − a, with the 95 % interval of paired differences.
            size, n, p, q, significant: of the differences, as in
                :func:`analyses.results.effect_frame`. Without numbers per prompt, n is 1.
        """
        means = {
            name: values.nanmean(-1).tolist() for name, values in (("a", self.a), ("b", self.b))
        }
        has = ~self.difference.isnan()
        frame = effect_frame({**self.cells, **means}, self.difference, self._noise, has)
        return frame.rename(columns={"effect": "difference"})

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per row of the table and prompt: the axes, prompt, a, b, difference."""
        return prompt_frame(self.cells, a=self.a, b=self.b, difference=self.difference)

    def drawing(self) -> Drawing:
        """Heatmap of both models and the difference on one scale, the rows that differ most."""
        frame = self.to_frame()
        order = frame.head(SHOWN)
        some = f", the {SHOWN} rows that differ most" if len(self.a) > SHOWN else ""
        return Heatmap(
            torch.tensor(order[["a", "b", "difference"]].to_numpy(dtype=float)),
            title=f"{self.column} of {self.models[0]} and {self.models[1]}{some}",
            rows=titles({axis: order[axis].tolist() for axis in self.cells}),
            columns=[*self.models, "difference"],
            axes=("row", "model"),
            unit=self.unit or self.column,
            diverging=True,
            places=places_of_effects(frame, "difference"),
        )

    def summary(self, top: int = 10) -> str:
        """The ``top`` rows that differ most, and how many differences are significant."""
        top = at_least(1, top, "top")
        frame, unit = self._named_frame(), f" {self.unit}" if self.unit else ""
        if frame["size"].max() <= self._noise:
            return self.headline()
        marked = marked_names(frame.head(top))
        places, width = places_of_effects(frame, "difference"), max(map(len, marked), default=0)
        lines = [
            f"{name:<{width}} {fixed(row['a'], places)} → {fixed(row['b'], places)}{unit}, "
            f"{signed(row['difference'], places)}{bracketed(row['low'], row['high'], places)}"
            for name, row in zip(marked, frame.head(top).to_dict("records"), strict=True)
        ]
        tested = significance_text(frame, "rows") if self.of_prompts else "no numbers per prompt"
        return "\n".join([self.headline(), *lines, tested])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        frame = self._named_frame()
        what = f"{self.column} of {self.analysis}, {self.models[0]} → {self.models[1]}"
        if frame["size"].max() <= self._noise:
            return f"{what}: {len(frame)} rows; they are the same"
        first, places = frame.iloc[0], places_of_effects(frame, "difference")
        largest = effect_text(first["difference"], places, self.unit)
        return f"{what}: largest difference of {len(frame)} rows: {first['name']} {largest}"

    def _named_frame(self) -> pd.DataFrame:
        """The table, with a name of each row."""
        frame = self.to_frame()
        return frame.assign(name=titles({axis: frame[axis].tolist() for axis in self.cells}))

    @property
    def _noise(self) -> float:
        """The rounding error of the less precise model."""
        both = torch.stack([self.a, self.b])
        return (
            max(rounding(both, provenance.dtype) for provenance in self.provenances)
            if both.numel()
            else 0.0
        )


def compare(
    model_a: Transformer | str,
    model_b: Transformer | str,
    prompts: Any = None,  # noqa: ANN401 - what the analysis reads
    *,
    analysis: Callable[..., Result] = ablate_heads,
    column: str | None = None,
) -> Comparison:
    """Run the same analysis on two models, and join the results row by row.

    Args:
        model_a: a model, or the name of one; ``"python-2l@0"`` is a step of its training.
        model_b: another of the same shape.
        prompts: the prompts for ``analysis``; ``None`` if it takes the model alone.
        analysis: called as ``analysis(model, prompts)``: an analysis, or a function that calls one
            with its settings, as ``lambda model, pairs: patch_paths(model, *pairs)``.
        column: the column of the result's table to compare; by default the first of ``effect``,
            ``value`` and ``score`` that it has.

    Returns:
        Both models' numbers, and their difference b − a.

    Raises:
        ModelLoadError: there is no model of that name.
        InvalidInput: the results have other rows (the message says which axes differ, and in
            what), other prompts, no such column, or rows with the same labels.

    Examples:
        >>> texts = [prompt.text for prompt in interp.read_prompts("repeated")[:2]]
        >>> analyses.compare("python-2l@400", "python-2l", texts)
        Comparison(effect of Ablation, python-2l@400 → python-2l: largest difference of 16 rows:
        L0H5 +1.20 nats)
    """
    if not callable(analysis):
        raise InvalidInput(
            f"analysis={shorten(analysis)} should be an analysis, such as ablate_heads."
        )
    if not isinstance(column, str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"column={shorten(column)} should be the name of a column.")
    models = [_loaded(model, name) for model, name in ((model_a, "model_a"), (model_b, "model_b"))]
    twice = tee(prompts) if isinstance(prompts, Iterator) else (prompts, prompts)
    inputs = ((), ()) if prompts is None else ((each,) for each in twice)
    results = [analysis(model, *each) for model, each in zip(models, inputs, strict=True)]
    provenances = [_provenance(*both) for both in zip(results, models, strict=True)]
    names = _names(provenances)
    first, second = (rows_of(result, column) for result in results)
    check_same_rows([first, second], names)
    return Comparison(
        a=first.values,
        b=second.in_order_of(first),
        cells={axis: tuple(labels) for axis, labels in first.cells.items()},
        models=names,
        column=first.column,
        unit=results[0].unit_of_column(first.column),
        analysis=type(results[0]).__name__,
        of_prompts=first.of_prompts,
        provenances=(provenances[0], provenances[1]),
    )


def _loaded(model: Transformer | str, name: str) -> Transformer:
    if isinstance(model, str):
        return load(model)
    if not isinstance(model, Transformer):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"{name}={shorten(model)} should be a model, or the name of one.")
    return model


def _provenance(result: Result, model: Transformer) -> Provenance:
    provenance = getattr(result, "provenance", None)
    return provenance if isinstance(provenance, Provenance) else Provenance.of(model)


def _names(provenances: Sequence[Provenance]) -> tuple[str, str]:
    """The names of both models, made distinct."""
    a, b = (provenance.model for provenance in provenances)
    return (a, b) if a != b else (f"{a} (first)", f"{b} (second)")
