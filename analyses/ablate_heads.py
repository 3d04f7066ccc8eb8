"""Which heads matter for these prompts? Head ablation: the metric with one head's z replaced.

A short form of :mod:`analyses.ablate` for all heads of a model with one stack.

    effect[l, h, prompt] = metric(z_lh replaced) − metric(clean)

*Zero* ablation replaces z with 0; *mean* ablation with its mean over all prompts and positions
(Wang et al. 2022, "Interpretability in the Wild"); *resample* ablation with its value on another
prompt at the same position (Chan et al. 2022, "Causal Scrubbing"). Ablating a head that helps
raises a loss and lowers a logit difference.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from analyses.methods.components import Replacements, components_of
from analyses.results import (
    FEWEST,
    LARGE,
    LEVEL,
    Drawing,
    Heatmap,
    Interval,
    Progress,
    Result,
    as_metric,
    by_chance,
    cancelled_note,
    counted,
    effect_frame,
    effect_lines,
    fixed,
    grid,
    in_cells,
    interval,
    largest_text,
    metric_text,
    number,
    percent,
    places_of_effects,
    prompt_frame,
    rounding,
    signed,
)
from interp import Sweep, Transformer, sweep
from interp.errors import InvalidInput
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.io import cancellable
from interp.metrics import Metric
from interp.sweeps import check_options
from interp.weights import check_finite_weights

NAMED = 3
"""The most heads that a conclusion names."""


@dataclass(frozen=True, eq=False, repr=False)
class HeadAblation(Result):
    """The metric with each head ablated in turn, for each prompt.

    Attributes:
        clean: the metric without ablation.
        ablated: the metric with one head ablated.
        metric: the metric's name.
        unit: the metric's unit.
        method: ``zero``, ``mean`` or ``resample``.
        provenance: model, tokens and settings that the numbers depend on.
        notes: notes on how the numbers were computed, such as where they are NaN.
        partial: for a cancelled call, the sweep to pass as ``resume=``; else ``None``.
    """

    working = ("partial",)

    clean: Float[Tensor, " prompt"]
    ablated: Float[Tensor, "layer head prompt"]
    metric: str
    unit: str
    method: str
    provenance: Provenance
    notes: tuple[str, ...] = ()
    partial: Sweep | None = None

    @property
    def effect(self) -> Float[Tensor, "layer head prompt"]:
        """``ablated − clean``, in the metric's unit."""
        return self.ablated - self.clean

    def interval(self) -> Interval:
        """The mean effect over prompts, ``[layer head]``, with interval and p-value.

        Effects within rounding error of zero count as zero in the p-values.
        """
        return interval(self.effect, self._noise)

    def to_frame(self) -> pd.DataFrame:
        """One row per head, largest size first.

        Columns:
            layer, head, name: the head.
            effect, low, high: the mean effect over prompts and its 95 % interval.
            size: mean of |effect|, in which effects of opposite sign do not cancel.
            share: size / mean |metric without ablation|; NaN where that is 0.
            n: number of prompts.
            p: two-sided p-value of a mean effect of zero.
            q: p, corrected for the number of heads (Benjamini and Hochberg 1995).
            significant: whether q ≤ 0.05. Of these heads, at most one in twenty is expected to have
                no effect; of all heads without effect, one in twenty has p ≤ 0.05.

        With fewer than five prompts, low, high, p and q are NaN and no head is significant. The
        same holds for a head whose effect on some prompt is NaN; such heads come last.
        """
        effect = self.effect.flatten(0, 1)
        return effect_frame(self._cells, effect, self._noise, metric=self.clean)

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per head and prompt: layer, head, name, prompt, clean, ablated, effect."""
        ablated = self.ablated.flatten(0, 1)
        clean = self.clean.expand_as(ablated)
        return prompt_frame(self._cells, clean=clean, ablated=ablated, effect=ablated - clean)

    def drawing(self) -> Drawing:
        """Heatmap of the mean effect: layers down, heads across, colours centred on zero."""
        mean = self.interval().mean
        return Heatmap(
            mean,
            title=f"Change of {self.metric} under {self.method} ablation of each head",
            rows=[str(layer) for layer in range(mean.shape[0])],
            columns=[str(head) for head in range(mean.shape[1])],
            axes=("layer", "head"),
            unit=self.unit,
            diverging=True,
            places=places_of_effects(self.to_frame()),
        )

    def summary(self, top: int = 10) -> str:
        """The metric without ablation, and the ``top`` heads by size of their effect."""
        top = at_least(1, top, "top")
        lines = effect_lines(self.to_frame(), self.unit, "heads", top)
        return "\n".join([self.headline(), *lines, *self.notes])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        whole = metric_text(self.metric, self.clean, self.unit, "prompt")
        largest = largest_text(self.to_frame(), self.unit, "heads", f"{self.method} ablation")
        return f"{whole}; {largest}"

    def conclusion(self) -> list[str]:
        """Which heads have the largest effects on these prompts, and how many are significant."""
        frame, n = self.to_frame(), self.clean.numel()
        of, on = f"of {counted(len(frame), 'head')}", f"on {counted(n, 'prompt')}"
        whole = f"{number(self.clean.nanmean().item())} {self.unit}"
        largest = frame[frame["size"] > 0].head(NAMED)
        if largest.empty:
            return [f"None {of} has an effect {on}: the {self.metric} stays {whole}"]
        places = places_of_effects(frame)
        *others, last = (
            f"{row['name']} ({signed(row['effect'], places)} {self.unit})"
            for row in largest.to_dict("records")
        )
        named = f"{', '.join(others)} and {last}" if others else last
        large = (frame["share"] >= LARGE).sum()
        share = f", which {large} {of} change by {percent(LARGE)} or more"
        tested = (
            f"{frame['significant'].sum()} of {counted(len(frame), 'effect')} significant "
            f"(q ≤ {LEVEL})"
        )
        return [
            f"The largest effects {of} {on}: {named}",
            f"The {self.metric} without ablation is {whole}"
            + ("" if isnan(frame["share"].iloc[0]) else share),
            f"There are no intervals with fewer than {FEWEST} prompts" if n < FEWEST else tested,
            *self._cancelling(frame.iloc[0], places),
        ]

    def _cancelling(self, largest: "pd.Series[Any]", places: int) -> list[str]:
        """A statement on the head of the largest size, if its effects cancel in the mean."""
        if largest["significant"] or not largest["size"] > 2 * abs(largest["effect"]):
            return []
        return [
            f"{largest['name']} changes it by {fixed(largest['size'], places)} {self.unit} per "
            "prompt on average, but up on some prompts and down on others"
        ]

    def expected_by_chance(self) -> float:
        """How many heads are expected to have p ≤ 0.05 if none has an effect on average."""
        return by_chance(self.to_frame())

    @property
    def _noise(self) -> float:
        return rounding(self.clean, self.provenance.dtype)

    @property
    def _cells(self) -> dict[str, list[object]]:
        layers, heads, _ = self.ablated.shape
        named = [f"L{layer}H{head}" for layer in range(layers) for head in range(heads)]
        return {**grid(layer=range(layers), head=range(heads)), "name": [*named]}


def ablate_heads(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.batch reads
    *,
    metric: str | Metric = "loss",
    method: str = "mean",
    seed: int = 0,
    rows: int = 64,
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    resume: Sweep | None = None,
) -> HeadAblation:
    """Ablate every head of a model with a single stack, one at a time.

    Args:
        model: the model.
        prompts: texts, token ids padded with ``interp.PAD``, images, or a batch that
            ``model.batch`` made (with token types or a mask, say).
        metric: ``"loss"`` (next-token, nats), ``"kl"`` (see :func:`analyses.ablate`) or a metric,
            e.g. ``interp.metrics.logit_diff(...)``.
        method: ``zero``, ``mean`` (over all prompts and positions) or ``resample`` (another prompt
            at the same position, drawn by ``seed``).
        seed: seed for the resampling.
        rows: prompts per forward while activations are collected; the result does not depend on it.
        memory: bytes that the sweep may take, as for :func:`interp.sweep`.
        progress: called with ``(heads done, heads in total)``.
        cancelled: called after each forward; if it returns True, what was measured is returned,
            and its ``partial`` can be resumed.
        resume: partial result of the same call: ``partial`` of a cancelled one, or the ``result``
            of the :class:`interp.Interrupted`, or of the error, that stopped it.

    Returns:
        Effects per layer, head and prompt.

    Raises:
        InvalidInput: an unknown method or metric, a model with two stacks, resampling with a single
            prompt, or a ``resume`` of another call.
        Cancelled: ``cancelled`` returned True before anything was measured.
        Interrupted: Ctrl-C; its ``result`` can be resumed.
    """
    check_finite_weights(model)
    if len(model.stacks) > 1:
        raise InvalidInput("ablate_heads takes models with one stack; ablate takes those with two.")
    check_options(model, memory, resume)
    (batch,), seed, rows = model.batches(prompts), as_seed(seed), at_least(1, rows, "rows")
    replacements = Replacements(model, [batch], method, seed=seed, rows=rows)
    with cancellable(cancelled):
        measured = as_metric(metric, model, [batch], rows)
        edits = replacements.edits(components_of(model).heads)
    table = sweep(
        model,
        batch,
        [*edits.values()],
        measured,
        memory=memory,
        progress=in_cells(progress, len(batch.ids)),
        cancelled=cancelled,
        resume=resume,
    )
    return HeadAblation(
        clean=table.baseline,
        ablated=table.values.unflatten(0, (len(model.blocks), -1)),
        metric=table.metric,
        unit=table.unit,
        method=method,
        provenance=replace(table.provenance, seed=seed),
        notes=(*table.notes, *cancelled_note(table, "head")),
        partial=None if table.complete else table,
    )
