"""What does an analysis say of more prompts than memory holds? It is run on one part after another.

    mean of a cell = Σ_parts Σ_prompts value / Σ_parts prompts          intervals likewise

The numbers of each prompt go to Parquet files as they come, a file per part. Of all prompts, the
moments of each cell are kept, and merged exactly (:class:`analyses.results.Moments`), so that
means, intervals and p-values are those of all prompts in one call. Memory depends on the number of
prompts in a part, and of cells, but not on that of all prompts.

An analysis can be run in parts if its numbers of a prompt do not depend on the other prompts. Where
they do, as with means over prompts, ``reference=`` prompts make them independent; an analysis that
fits something to all prompts (a probe, a circuit) can't be run in parts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor

from analyses.results import (
    LEVEL,
    Bars,
    Drawing,
    Progress,
    Result,
    cell_heatmap,
    counted,
    effect_lines,
    false_discovery_rates,
    largest_text,
    places_of_effects,
    titles,
)
from analyses.run_in_parts.computed import Computed
from analyses.run_in_parts.totals import Totals
from analyses.run_in_parts.written_parts import WrittenParts, digest_of
from interp import Transformer, iter_prompts
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import at_least
from interp.io import as_path, as_progress
from interp.prompts import Prompt, is_dataset

MOST_BARS = 40
"""The most cells that a bar chart shows."""
Analysis = Callable[[Transformer, list[Any]], Result]


@dataclass(frozen=True, eq=False, repr=False)
class Parts(Result):
    """The numbers of an analysis that was run on parts of the prompts, over all prompts.

    Attributes:
        mean: the mean over the prompts that have the cell; NaN if the number of one is NaN, as are
            the other statistics of such a cell.
        low: the lower end of its 95 % interval.
        high: the upper end.
        size: mean of the absolute values.
        p: two-sided p-value of a mean of zero.
        n: number of prompts that have the cell.
        cells: the columns that name the cells, each with one entry per cell.
        column: the column of the numbers, such as ``effect``.
        unit: their unit; ``""`` if they have none.
        metric_size: mean |metric without a change|, NaN if that is 0; ``None`` if the analysis has
            no such metric.
        analysis: the kind of result.
        n_prompts: number of prompts.
        folder: where the numbers of each prompt are: ``pandas.read_parquet(folder)`` reads them;
            ``None`` if they were not written.
        provenance: that of the first part, with the hash of the tokens of all parts.
        notes: those of the parts.
    """

    mean: Float[Tensor, " cell"]
    low: Float[Tensor, " cell"]
    high: Float[Tensor, " cell"]
    size: Float[Tensor, " cell"]
    p: Float[Tensor, " cell"]
    n: Int[Tensor, " cell"]
    cells: Mapping[str, tuple[Any, ...]]
    column: str
    unit: str
    metric_size: float | None
    analysis: str
    n_prompts: int
    folder: str | None
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """One row per cell, largest size first.

        Columns:
            the columns that name the cells, such as layer, head, name.
            effect, low, high: the mean over prompts and its 95 % interval; ``effect`` has the name
                of the column of the numbers.
            size: mean of the absolute values.
            share: size / mean |metric without a change|, if the analysis has such a metric.
            n: number of prompts that have the cell.
            p, q, significant: as in :func:`analyses.results.effect_frame`.
        """
        return self._effects().rename(columns={"effect": self.column})

    def drawing(self) -> Drawing:
        """The means: a heatmap of heads if there is one cell per head; else bars."""
        title = f"Mean {self.column} of {self.analysis} over {counted(self.n_prompts, 'prompt')}"
        places = places_of_effects(self._effects())
        if {"layer", "head"} <= set(self.cells) and self._has_a_cell_per_head:
            return cell_heatmap(
                self.mean,
                [f"{layer}" for layer in self.cells["layer"]],
                self.cells["head"],
                title=title,
                axes=("layer", "head"),
                unit=self.unit or self.column,
                places=places,
            )
        order = self.size.nan_to_num(-1.0).argsort(descending=True, stable=True)[:MOST_BARS]
        names = titles(self.cells)
        more = f" (the {MOST_BARS} largest of {len(names)})" if len(names) > MOST_BARS else ""
        return Bars(
            self.mean[order],
            self.low[order],
            self.high[order],
            title=title + more,
            labels=[names[row] for row in order.tolist()],
            unit=self.unit or self.column,
            places=places,
        )

    def summary(self, top: int = 10) -> str:
        """The number of prompts and parts, and the ``top`` cells by size."""
        top = at_least(1, top, "top")
        lines = effect_lines(self._named(), self.unit, "cells", top)
        where = [] if self.folder is None else [f"the numbers of each prompt: {self.folder}"]
        return "\n".join([self.headline(), *lines, *where, *self.notes])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        how = f"mean {self.column}"
        return (
            f"{self.analysis} of {counted(self.n_prompts, 'prompt')}; "
            f"{largest_text(self._named(), self.unit, 'cells', how)}"
        )

    def _named(self) -> pd.DataFrame:
        frame = self._effects()
        return frame.assign(name=titles({axis: frame[axis].tolist() for axis in self.cells}))

    def _effects(self) -> pd.DataFrame:
        """The table, in which the mean is called ``effect``."""
        q = false_discovery_rates(self.p)
        columns = {
            "effect": self.mean,
            "low": self.low,
            "high": self.high,
            "size": self.size,
            **({} if self.metric_size is None else {"share": self.size / self.metric_size}),
            "n": self.n,
            "p": self.p,
            "q": q,
            "significant": q <= LEVEL,
        }
        cells = {name: _column(labels) for name, labels in self.cells.items()}
        frame = pd.DataFrame(cells | {name: column.numpy() for name, column in columns.items()})
        return frame.sort_values("size", ascending=False, kind="stable", ignore_index=True)

    @property
    def _has_a_cell_per_head(self) -> bool:
        heads = list(zip(self.cells["layer"], self.cells["head"], strict=True))
        are_integers = all(isinstance(value, int) for head in heads for value in head)
        return are_integers and len(set(heads)) == len(heads)


def _column(labels: Sequence[Any]) -> Any:  # noqa: ANN401 - what a table takes
    """Labels as a column of a table; integers stay integers where some are missing."""
    kinds = {type(label) for label in labels} - {type(None)}
    return pd.array(labels, dtype="Int64") if kinds == {int} and None in labels else list(labels)


def run_in_parts(  # noqa: PLR0913 - independent options, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - any iterable, a path or a dataset
    analysis: Analysis,
    folder: str | Path | None = None,
    *,
    column: str | None = None,
    size: int = 256,
    resume: bool = False,
    progress: Progress | None = None,
) -> Parts:
    r"""Run an analysis on one part of the prompts after another.

    Args:
        model: the model.
        prompts: an iterable, whose items are passed on as they are: texts, rows of token ids, pairs
            of a clean and a corrupted text, prompts of :func:`interp.iter_prompts`. Or the ``Path``
            of a file or a dataset, whose texts are passed on.
        analysis: called as ``analysis(model, items)`` with a list of up to ``size`` items; an
            analysis, or a function that calls one with its settings, such as ``lambda model, texts:
            ablate_heads(model, texts, method="zero")``. Its result has a ``to_prompt_frame``.
        folder: a new folder, to which the numbers of each prompt are written; by default they are
            not kept.
        column: the column of these to average; by default the first of ``effect``, ``value`` and
            ``score`` that the result has.
        size: number of prompts in a part; the numbers do not depend on it.
        resume: continue with the parts that an earlier call wrote to ``folder``. The first is
            computed once more, to make sure that the call is the same.
        progress: called with ``(prompts done, prompts in total)``; without a known total, with the
            number done as both.

    Returns:
        Means, intervals and p-values over all prompts.

    Raises:
        InvalidInput: there are no prompts; the result has no numbers of each prompt, or they depend
            on the other prompts; ``folder`` has files and ``resume`` is not set, or its parts are
            those of another call.
        OutOfResources: a file can't be written.

    Examples:
        >>> from pathlib import Path
        >>> model = interp.load("induction-by-hand")
        >>> texts = Path("texts.txt")
        >>> _ = texts.write_text("abcabc\nxyzxyz\nabab", encoding="utf-8")
        >>> def zeroed(model, texts):
        ...     return analyses.ablate_heads(model, texts, method="zero")
        >>> analyses.run_in_parts(model, texts, zeroed, "numbers", size=2)
        Parts(Ablation of 3 prompts; largest effect of 8 cells (mean effect): L0H0 +1.27 nats; ≥ 10
        % of the metric: 2 of 8)
    """
    _check(analysis, column, resume=resume, has_folder=folder is not None)
    size, report = at_least(1, size, "size"), as_progress(progress, "parts")
    items, total = _items(model, prompts)
    written = None if folder is None else WrittenParts.open(as_path(folder), size, resume=resume)
    totals: Totals | None = None
    while part := list(islice(items, size)):
        digest = digest_of(part)
        numbers = None if written is None else written.next(digest)
        if numbers is None or totals is None:
            computed = Computed.of(analysis(model, part), column, len(part))
            totals = totals or Totals(computed)
            totals.notes |= dict.fromkeys(computed.notes)
            if written is not None:
                written.check_or_write(digest, numbers, computed)
            numbers = computed.numbers if numbers is None else numbers
        totals.add(numbers, len(part), digest)
        if report is not None:
            report(totals.n_prompts, total or totals.n_prompts)
    if totals is None:
        raise InvalidInput("There are no prompts; give at least one.")
    if written is not None:
        written.check_end()
    return Parts(**totals.statistics(), folder=None if folder is None else str(folder))


def _check(analysis: object, column: object, *, resume: object, has_folder: bool) -> None:
    """Check arguments before the first prompt is read.

    Raises:
        InvalidInput: one can't be used.
    """
    if not callable(analysis):
        raise InvalidInput(
            f"analysis={shorten(analysis)} should be a function of a model and a list of prompts."
        )
    if not isinstance(column, str | None):
        raise InvalidInput(f"column={shorten(column)} should be the name of a column.")
    if not isinstance(resume, bool):
        raise InvalidInput(f"resume={shorten(resume)} should be True or False.")
    if resume and not has_folder:
        raise InvalidInput("resume=True continues with the parts in a folder=, but none is given.")


def _items(model: Transformer, prompts: Any) -> tuple[Iterator[Any], int | None]:  # noqa: ANN401
    """The items of the prompts one by one, and their number where it is known.

    Raises:
        InvalidInput: ``prompts`` is a single text, or nothing that can be iterated over.
    """
    if isinstance(prompts, Path) or is_dataset(prompts):
        total = sum(1 for _ in iter_prompts(prompts, model.chat))
        paired = len(model.stacks) > 1
        read = iter_prompts(prompts, model.chat)
        return (_inputs(prompt, paired=paired) for prompt in read), total
    if isinstance(prompts, str | Mapping) or not isinstance(prompts, Iterable):
        raise InvalidInput(
            f"prompts={shorten(prompts)} should be an iterable of prompts, or the Path of a file."
        )
    total = len(prompts) if isinstance(prompts, Sized) else None
    return iter(prompts), total


def _inputs(prompt: Prompt, *, paired: bool) -> Any:  # noqa: ANN401 - a text or a pair
    return (prompt.text, prompt.decoder_text) if paired else prompt.text
