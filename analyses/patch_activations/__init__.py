"""Where does the model hold what two texts differ in? Activation patching on minimal pairs.

The run of one text, the base, receives activations from the run of the other, the source:

    effect[cell, prompt] = (m(patched) − m(base)) / (m(source) − m(base))

*Denoising* writes clean activations into the corrupted run: an effect of 1 restores the metric, so
the cell suffices for it. *Noising* writes corrupted activations into the clean run: an effect of 1
destroys it, so the cell is needed (Meng et al. 2022, "Locating and Editing Factual Associations in
GPT"; Wang et al. 2022, "Interpretability in the Wild"; the names are those of Heimersheim and Nanda
2024, "How to Use and Interpret Activation Patching").

What the numbers can't show: an effect is of all paths from the cell to the logits together, not of
the next layer alone; what both texts have in common is not found, however much it matters; cells
that only act together have little effect one by one, and where one can stand in for another,
neither has an effect under noising. Effects may exceed 1 or be negative, and do not add up.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.methods.components import Recorded, aligned, places_of, position_labels
from analyses.methods.finite import check_finite_weights, naming_first_nan
from analyses.patch_activations.cells import AXES, Grid
from analyses.patch_activations.estimates import first_order_changes, largest_cells
from analyses.results import (
    LARGE,
    Drawing,
    Heatmap,
    Progress,
    Result,
    SeparatePrompts,
    as_metric,
    cancelled_note,
    counted,
    effect_frame,
    effect_lines,
    effect_text,
    in_cells,
    number,
    places_of_effects,
    prompt_frame,
    rounding,
    signed,
)
from interp import Sweep, Transformer, sweep
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import at_least
from interp.io import cancellable
from interp.metrics import Loss, Metric, MetricLike
from interp.model import Batch
from interp.sweeps import check_options

VERBS = {"denoise": "restores", "noise": "removes"}
"""What patching does to the difference, by direction."""


@dataclass(frozen=True, eq=False, repr=False)
class ActivationPatching(Result):
    """The metric with each cell patched in turn, for each prompt.

    Attributes:
        clean: the metric on the clean prompts.
        corrupt: the metric on the corrupted prompts.
        patched: the metric with one cell patched; NaN where it was not measured: a cancelled call
            did not get to it, or the estimates of others are larger. A prompt that is too short to
            have the position is not changed.
        own: the metric with all cells of a point replaced by the run's own activations: a control,
            which equals the metric of the base; NaN beside estimates.
        together: the metric with all cells of a point patched together; NaN beside estimates.
        points: labels of the points that were patched.
        axes: the axes of a cell: ``layer``, ``head``, ``pos``, or some of these.
        cells: the columns that name the cells, each with one entry per cell; ``pos`` counts the
            real tokens of a prompt.
        lengths: number of tokens of each prompt.
        direction: ``denoise`` (the base is the corrupted run) or ``noise`` (the clean one).
        metric: the metric's name.
        unit: the metric's unit.
        provenance: model, tokens (clean, then corrupted) and settings that the numbers depend on.
        notes: notes on how the numbers were computed, such as where they are NaN.
        partial: for a cancelled call, the sweep to pass as ``resume=``; else ``None``.
        is_estimate: whether the effects were estimated to first order, not measured.
    """

    working = ("partial",)

    clean: Float[Tensor, " prompt"]
    corrupt: Float[Tensor, " prompt"]
    patched: Float[Tensor, "point *cell prompt"]
    own: Float[Tensor, "point prompt"]
    together: Float[Tensor, "point prompt"]
    points: tuple[str, ...]
    axes: tuple[str, ...]
    cells: Mapping[str, tuple[object, ...]]
    lengths: Int[Tensor, " prompt"]
    direction: str
    metric: str
    unit: str
    provenance: Provenance
    notes: tuple[str, ...] = ()
    partial: Sweep | None = None
    is_estimate: bool = False

    @property
    def effect(self) -> Float[Tensor, "point *cell prompt"]:
        """The share of the difference between clean and corrupted that a cell accounts for.

        0: patching it changes nothing; 1: as much as patching everything. It is dimensionless.
        """
        return self._share(self.patched)

    @property
    def mean_effect(self) -> Float[Tensor, "point ..."]:
        """The mean of ``effect`` over the prompts that have the cell; NaN where none has."""
        flat = self.effect.flatten(0, -2)
        return flat.where(self._has, torch.nan).nanmean(-1).view(self.patched.shape[:-1])

    def shares_heads(self) -> bool:
        """Whether cells are key/value heads that several heads share."""
        return "head" in self.axes and any("KV" in str(name) for name in self.cells["name"])

    @property
    def control_lines(self) -> tuple[str, ...]:
        """Mean effect of all cells of a point together, and of the run's own activations.

        There are none beside estimates.
        """
        if self.is_estimate:
            return ()
        together, self_patched = (
            self._share(x).mean(-1).tolist() for x in (self.together, self.own)
        )
        return tuple(
            f"control: all cells of {point} together {signed(all_of, 2)}; the run's own "
            f"activations {signed(none, 2)}"
            for point, all_of, none in zip(self.points, together, self_patched, strict=True)
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per cell, largest size first.

        Columns:
            point, layer, head, pos, token, name: the cell, as far as they apply.
            effect, low, high: the mean effect over prompts and its 95 % interval.
            size: mean of |effect|, in which effects of opposite sign do not cancel.
            n: number of prompts (those that are long enough to have the position).
            p, q: two-sided p-value of a mean effect of zero, and the same corrected for the number
                of cells (Benjamini and Hochberg 1995).
            significant: whether q ≤ 0.05.

        With fewer than five prompts, low, high, p and q are NaN and nothing is significant.
        """
        return effect_frame(self.cells, self.effect.flatten(0, -2), self._noise, self._has)

    def separate_prompts(self) -> SeparatePrompts | None:
        """See :meth:`Result.separate_prompts`."""
        return SeparatePrompts(self._noise)

    def unit_of_column(self, column: str) -> str:
        """See :meth:`Result.unit_of_column`; an effect is a share."""
        return "" if column == "effect" else self.unit

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per cell and prompt: the columns of the cell, prompt, patched, effect."""
        patched, effect = self.patched.flatten(0, -2), self.effect.flatten(0, -2)
        frame = prompt_frame(self.cells, patched=patched, effect=effect)
        return frame[self._has.flatten().numpy()].reset_index(drop=True)

    def drawing(self) -> Drawing:
        """Heatmap of the mean effect: the last axis across, all others down."""
        *down, across = ("point", *self.axes)
        width, tokens = self.patched.shape[-2], self.cells.get("token", ())
        rows = zip(*(self.cells[axis][::width] for axis in down), strict=True)
        columns = [str(index) for index in self.cells[across][:width]]
        if across == "pos":
            columns = [f"{p} {token}".rstrip() for p, token in zip(columns, tokens, strict=False)]
        share = "Estimated share" if self.is_estimate else "Share"
        return Heatmap(
            self.mean_effect.flatten().unflatten(0, (-1, width)),
            title=f"{share} of the {self.metric} that each {' and '.join(self.axes)} "
            f"{VERBS[self.direction]}: {', '.join(self.points)}",
            rows=[" ".join(map(str, row)) for row in rows],
            columns=columns,
            axes=(" ".join(down), across),
            unit="share",
            diverging=True,
            places=places_of_effects(self.to_frame()),
        )

    def summary(self, top: int = 10) -> str:
        """The largest share of the difference, the ``top`` cells by size, and the controls."""
        top = at_least(1, top, "top")
        frame = self.to_frame()
        clean, corrupt = (number(x.mean().item()) for x in (self.clean, self.corrupt))
        pairs = counted(self.clean.numel(), "pair")
        difference = f"{self.metric} {clean} {self.unit} clean, {corrupt} corrupted, on {pairs}"
        lines = effect_lines(frame, "", "cells", top)
        return "\n".join([self.headline(), difference, *lines, *self.control_lines, *self.notes])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        frame = self.to_frame()
        best, large = frame.iloc[0], (frame["size"] >= LARGE).sum()
        cells = f"{'/'.join(self.points)} by {' × '.join(self.axes)}"
        how = f"{self.direction}{', estimated to first order' if self.is_estimate else ''}"
        return (
            f"{cells}: {best['name']} {VERBS[self.direction]} "
            f"{effect_text(best['effect'], places_of_effects(frame), '')} of the difference "
            f"({how}), the most of {frame['size'].count()} cells; ≥ {LARGE:g}: {large}"
        )

    def _share(self, values: Float[Tensor, "*cell prompt"]) -> Float[Tensor, "*cell prompt"]:
        """How far values lie from the base towards the source, as a share of the difference."""
        denoises = self.direction == "denoise"
        base, source = (self.corrupt, self.clean) if denoises else (self.clean, self.corrupt)
        return (values - base) / (source - base)

    @property
    def _noise(self) -> float:
        """The mean effect that may be rounding error."""
        error = rounding(torch.cat([self.clean, self.corrupt]), self.provenance.dtype)
        return (error / (self.clean - self.corrupt).abs()).mean().item()

    @property
    def _has(self) -> Bool[Tensor, "cell prompt"]:
        """Which prompts have a cell: those that are long enough."""
        if "pos" not in self.axes:
            return torch.ones_like(self.patched.flatten(0, -2), dtype=torch.bool)
        return torch.tensor(self.cells["pos"])[:, None] < self.lengths


def patch_activations(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    clean: Any,  # noqa: ANN401 - what model.check reads
    corrupt: Any,  # noqa: ANN401 - likewise
    *,
    metric: Metric | MetricLike,
    at: str | Sequence[str] = "resid_pre",
    over: Sequence[str] = ("layer", "pos"),
    direction: str = "denoise",
    stack: str | None = None,
    estimate: bool = False,
    largest: int | None = None,
    rows: int = 64,
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    resume: Sweep | None = None,
) -> ActivationPatching:
    """Patch every cell of a point, or of several, one at a time.

    Args:
        model: the model.
        clean: texts, token ids padded with ``interp.PAD``, images, or a batch; ``(source, target)``
            for an encoder–decoder.
        corrupt: their corrupted counterparts, each with as many tokens; see
            :func:`analyses.methods.components.aligned`.
        metric: e.g. ``interp.metrics.logit_diff(target, distractor)``, on the base's prompts, or a
            function of the logits of all prompts with one number per prompt. It must differ between
            the two texts of every pair.
        at: what is patched: the label of a point that every layer has, such as ``resid_pre``,
            ``attn_out``, ``mlp_out``, ``z``, ``q``, ``pattern``; or several, each by itself.
        over: the axes of a cell: some of ``layer``, ``head`` and ``pos``. A cell extends over the
            whole of the other axes: ``("layer", "pos")`` patches all heads at a position,
            ``("pos",)`` all layers at once. ``("head", "pos")`` patches head h of every layer at
            once at a position: heads of the same index have nothing else in common, so it shows
            only whether any of them matters there; ``("layer", "head", "pos")`` shows which.
        direction: ``denoise``: clean activations into the corrupted run; ``noise``: corrupted ones
            into the clean run.
        stack: for an encoder–decoder, the stack that is patched; by default the decoder.
        estimate: estimate the effects to first order, instead of measuring them: the gradient of
            the metric times the difference of the two runs, from one forward and one backward pass
            of the base (attribution patching, Nanda 2023). Only of cells of one layer.
        largest: measure this many cells only, of all points: those with the largest estimates.
        rows: prompts per forward while activations are collected; the result does not depend on it.
        memory: bytes that the sweep may take, as for :func:`interp.sweep`.
        progress: called with ``(cells done, cells in total)``, controls included.
        cancelled: called after each forward; if it returns True, what was measured is returned,
            and its ``partial`` can be resumed.
        resume: partial result of the same call: ``partial`` of a cancelled one, or the ``result``
            of the :class:`interp.Interrupted`, or of the error, that stopped it.

    Returns:
        Effects per cell and prompt.

    Raises:
        InvalidInput: clean and corrupted prompts that are not minimal pairs; a metric that is the
            same for both texts of a pair (named), or a loss; an unknown axis or direction, or one
            that a point does not have; estimates of cells that extend over all layers, or of a
            metric without a gradient; or a ``resume`` of another call.
        UnknownPlace: the model has no such point.
        Cancelled: ``cancelled`` returned True before anything was measured.
        Interrupted: Ctrl-C; its ``result`` can be resumed.

    Examples:
        >>> model, pair = interp.load("python-2l"), interp.read_prompts("python-2l-pairs")[0]
        >>> metric = interp.metrics.logit_diff(pair.target, pair.distractor)
        >>> texts = pair.text, pair.corrupt
        >>> analyses.patch_activations(model, *texts, metric=metric, at="z", over=("layer", "head"))
        ActivationPatching(z by layer × head: L1H0 restores +0.519 of the difference (denoise), the
        most of 16 cells; ≥ 0.1: 9)
    """
    check_finite_weights(model)
    check_options(model, memory, resume)
    axes, rows = _check(metric, over, direction), at_least(1, rows, "rows")
    _check_estimate(estimate, largest, axes, resume)
    measured = as_metric(metric, model)
    points: list[Any] = list(at) if isinstance(at, list | tuple) else [at]
    pair = aligned(model, clean, corrupt)
    base_of, source_of = pair[::-1] if direction == "denoise" else pair
    places = places_of(model, points, model.stack(stack).name)
    every = [place for layers in places.values() for place in layers]
    provenance, notes = Provenance.of(model, *pair[0], *pair[1]), tuple[str, ...]()
    with cancellable(cancelled), naming_first_nan(model, *pair):
        source = Recorded.of(model, source_of, every, measured, rows)
        grid = Grid.of(source, places, axes)
        described: dict[str, Any] = {
            "points": tuple(places),
            "axes": axes,
            "cells": grid.columns(model, position_labels(model, *_of_stack(pair, model, stack))),
            "lengths": source.lengths(stack),
            "direction": direction,
            "metric": measured.name,
            "unit": measured.unit,
        }
        if estimate:
            base_values, changes = first_order_changes(source, base_of, grid, measured, rows)
            unmeasured = torch.full((len(places), len(base_values)), torch.nan).double()
            return ActivationPatching(
                **_ends(direction, base_values, source.measured, provenance.dtype),
                patched=base_values + changes,
                own=unmeasured,
                together=unmeasured,
                **described,
                provenance=provenance,
                is_estimate=True,
            )
        base = Recorded.of(model, base_of, every, measured, rows)
        ends, cells = _ends(direction, base.measured, source.measured, provenance.dtype), None
        if largest is not None and largest < grid.n_cells:
            _, changes = first_order_changes(source, base_of, grid, measured, rows)
            cells = largest_cells(changes / (source.measured - base.measured), largest)
            notes = (
                f"the {largest} of {grid.n_cells} cells with the largest first-order estimates; "
                "the others are NaN",
            )
    cells = cells or grid.all_cells()
    table = sweep(
        model,
        base.batches,
        [*grid.edits(base, source, cells)],
        measured,
        memory=memory,
        progress=in_cells(progress, len(base.measured)),
        cancelled=cancelled,
        resume=resume,
    )
    unchanged, together, patched = grid.measured(table.values, cells)
    return ActivationPatching(
        **ends,
        patched=patched,
        own=unchanged,
        together=together,
        **described,
        provenance=replace(provenance, edits=table.provenance.edits),
        notes=(*notes, *table.notes, *cancelled_note(table, "cell")),
        partial=None if table.complete else table,
    )


def _of_stack(
    pair: tuple[Sequence[Batch], Sequence[Batch]], model: Transformer, stack: str | None
) -> list[Batch]:
    """The clean and the corrupted prompts of one stack."""
    number = model.stacks.index(model.stack(stack))
    return [batches[number] for batches in pair]


def _ends(
    direction: str,
    base: Float[Tensor, " prompt"],
    source: Float[Tensor, " prompt"],
    dtype: str,
) -> dict[str, Float[Tensor, " prompt"]]:
    """The metric of the clean and of the corrupted texts.

    Raises:
        InvalidInput: it is the same for both texts of a pair, up to rounding.
    """
    clean, corrupt = (source, base) if direction == "denoise" else (base, source)
    same = (clean - corrupt).abs() <= rounding(torch.cat([clean, corrupt]), dtype)
    if bool(same.any()):
        prompt = int(same.int().argmax())
        raise InvalidInput(
            f"Prompt {prompt}: the metric is {clean[prompt]:.6g} clean and {corrupt[prompt]:.6g} "
            "corrupted, so there is no difference to restore. Leave the prompt out, change its "
            "corrupted text, or measure what differs."
        )
    return {"clean": clean, "corrupt": corrupt}


def _check_estimate(
    estimate: object, largest: object, axes: tuple[str, ...], resume: object
) -> None:
    """Check that effects can be estimated, if they shall be.

    Raises:
        InvalidInput: ``estimate`` is no boolean, ``largest`` no number from 1; cells extend over
            all layers; or ``estimate`` is given with ``largest`` or ``resume``.
    """
    if not isinstance(estimate, bool):
        raise InvalidInput(f"estimate={shorten(estimate)} should be True or False.")
    if largest is not None:
        at_least(1, largest, "largest")
    if (estimate or largest is not None) and "layer" not in axes:
        raise InvalidInput(
            f"over={shorten(axes)}: effects are estimated layer by layer, since a layer that is "
            "patched too cuts the paths from earlier ones. Add layer to over=, or leave out "
            "estimate= and largest=."
        )
    if estimate and (largest is not None or resume is not None):
        other = "resume=" if largest is None else "largest="
        raise InvalidInput(
            f"estimate=True: effects are estimated, not measured, which excludes {other}. Leave "
            "out one of the two."
        )


def _check(metric: object, over: object, direction: object) -> tuple[str, ...]:
    """Check the arguments, and return the axes of a cell in order.

    Raises:
        InvalidInput: see :func:`patch_activations`.
    """
    if not callable(metric) or isinstance(metric, Loss):
        raise InvalidInput(
            f"metric={shorten(metric)} should be one of interp.metrics that asks both texts the "
            "same, such as logit_diff(target, distractor); a loss is of each text's own tokens."
        )
    if not isinstance(direction, str) or direction not in VERBS:
        raise InvalidInput(f"direction={shorten(direction)} is one of {', '.join(VERBS)}.")
    wanted = [over] if isinstance(over, str) else over
    if not isinstance(wanted, list | tuple) or not wanted or not set(wanted) <= set(AXES):
        raise InvalidInput(f"over={shorten(over)} should be some of {', '.join(AXES)}.")
    return tuple(axis for axis in AXES if axis in wanted)
