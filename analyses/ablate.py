"""Which parts of a model matter for these prompts? Ablation: the metric with parts replaced.

    effect[unit, prompt]  = metric(the unit's components replaced) − metric(nothing replaced)
    interaction(a, b)     = effect(a and b together) − effect(a) − effect(b)

*Zero* ablation replaces what a component computes with 0; *mean* ablation with its mean over
prompts (Wang et al. 2022, "Interpretability in the Wild"); *resample* ablation with its value on
another prompt at the same position (Chan et al. 2022, "Causal Scrubbing"). Ablating a head that
helps raises a loss and lowers a logit difference.

What the numbers can't show: an effect includes that of the replacement itself, since zeros and
means may lie far from anything that the model computes; a component that computes the same on all
prompts has no effect under mean and resample ablation; and a component without effect alone may
matter where another takes over its role (McGrath et al. 2023, "The Hydra Effect"), which its
interactions show. With ``metric="kl"`` an effect is how much the predictions at all positions
change. It is never negative, so it detects a head that matters in both directions, but also one
that changes predictions at random.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.components import KINDS, Components, Replacements, Units, components_of
from analyses.methods.finite import check_finite_weights
from analyses.results import (
    FEWEST,
    HELPS,
    LARGE,
    LEVEL,
    AnyMetric,
    Bars,
    Drawing,
    Interval,
    Progress,
    Result,
    SeparatePrompts,
    as_metric,
    by_chance,
    cancelled_note,
    cell_heatmap,
    counted,
    effect_frame,
    effect_lines,
    fixed,
    in_cells,
    interval,
    largest_text,
    metric_text,
    named_effects,
    number,
    percent,
    places_of_effects,
    prompt_frame,
    rounding,
    sweep_metric,
)
from interp import Sweep, Transformer, sweep
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed, at_least
from interp.io import cancellable
from interp.metrics import Metric
from interp.prompts import read_batches
from interp.sweeps import check_options

Groups = Mapping[str, str | Sequence[str]]
"""For each group name, the names of its components, or a single name."""
GROUPS = "groups"
MOST_BARS = 40
"""The most units that a bar chart shows."""
MOST_NAMED = 3
"""The most units that a conclusion names."""


@dataclass(frozen=True, eq=False, repr=False)
class Ablation(Result):
    """The metric with each unit ablated in turn, for each prompt.

    Attributes:
        clean: the metric without ablation.
        ablated: the metric with one unit ablated; NaN where a cancelled call did not get to it.
            The units lie on one axis; those of :func:`ablate_heads` on two, layer and head.
        units: the kind of unit: ``heads``, ``layers``, ``mlps``, ``neurons``, ``features``,
            ``pairs`` (each head alone, then every two) or ``groups``.
        cells: the columns that name the units, each with one entry per unit.
        members: names of the components that each unit consists of.
        metric: the metric's name.
        unit: the metric's unit.
        method: ``zero``, ``mean`` or ``resample``.
        part: the tensor of a head that was replaced.
        provenance: model, tokens and settings that the numbers depend on.
        notes: notes on how the numbers were computed, such as where they are NaN.
        partial: for a cancelled call, the sweep to pass as ``resume=``; else ``None``.
        is_estimate: whether the effects were estimated to first order, not measured.
        of_reference: whether means or donors come from other prompts than these.
    """

    working = ("partial",)

    clean: Float[Tensor, " prompt"]
    ablated: Float[Tensor, "*unit prompt"]
    units: str
    cells: Mapping[str, tuple[object, ...]]
    members: tuple[tuple[str, ...], ...]
    metric: str
    unit: str
    method: str
    part: str
    provenance: Provenance
    notes: tuple[str, ...] = ()
    partial: Sweep | None = None
    is_estimate: bool = False
    of_reference: bool = False

    def separate_prompts(self) -> SeparatePrompts | None:
        """See :meth:`Result.separate_prompts`."""
        is_separate = self.method == "zero" or self.of_reference
        return SeparatePrompts(self._noise, self.clean) if is_separate else None

    @property
    def by_layer(self) -> bool:
        """Whether the units are heads by layer, as those of :func:`ablate_heads`."""
        *units, _ = self.ablated.shape
        return len(units) > 1

    @property
    def effect(self) -> Float[Tensor, "*unit prompt"]:
        """``ablated − clean``, in the metric's unit."""
        return self.ablated - self.clean

    def interval(self) -> Interval:
        """The mean effect over prompts, ``[*unit]``, with interval and p-value.

        Effects within rounding error of zero count as zero in the p-values.
        """
        return interval(self.effect, self._noise)

    def mean_effects(self) -> dict[str, float]:
        """The mean effect of each unit over prompts, by name; NaN where it was not measured."""
        means = self._effects.mean(-1).tolist()
        return {str(name): effect for name, effect in zip(self.cells["name"], means, strict=True)}

    @property
    def interaction(self) -> Float[Tensor, "unit prompt"]:
        """The effect of a unit's components together, minus the effect of each alone.

        NaN for a single component, and where a component was not ablated alone.
        """
        alone, effect = self._alone, self._effects
        interaction = torch.full_like(effect, torch.nan)
        for row in self._together:
            apart = effect[[alone[name] for name in self.members[row]]]
            interaction[row] = effect[row] - apart.sum(0)
        return interaction

    def to_frame(self) -> pd.DataFrame:
        """One row per unit, largest size first.

        Columns:
            stack, layer, head, neuron, name, first, second, members: the unit, as far as they
                apply; in an encoder–decoder, stack is ``encoder``, ``decoder`` or ``cross``.
            effect, low, high: the mean effect over prompts and its 95 % interval.
            size: mean of |effect|, in which effects of opposite sign do not cancel.
            share: size / mean |metric without ablation|; NaN where that is 0.
            n: number of prompts.
            p: two-sided p-value of a mean effect of zero.
            q: p, corrected for the number of units (Benjamini and Hochberg 1995).
            significant: whether q ≤ 0.05. Of these units, at most one in twenty is expected to have
                no effect; of all units without effect, one in twenty has p ≤ 0.05.

        With fewer than five prompts, low, high, p and q are NaN and no unit is significant. The
        same holds for a unit whose effect on some prompt is NaN; such units come last.
        """
        return effect_frame(self.cells, self._effects, self._noise, metric=self.clean)

    def more_frames(self) -> dict[str, pd.DataFrame]:
        """See :meth:`Result.more_frames`."""
        return {"interactions": self.to_interaction_frame()} if self.units == "pairs" else {}

    def to_interaction_frame(self) -> pd.DataFrame:
        """One row per unit whose components were also ablated alone, largest size first.

        The columns are those of :meth:`to_frame`, with interaction in place of effect.
        """
        rows = self._together
        cells = {name: [column[row] for row in rows] for name, column in self.cells.items()}
        frame = effect_frame(cells, self.interaction[rows], self._noise, metric=self.clean)
        return frame.rename(columns={"effect": "interaction"})

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per unit and prompt: the columns of the unit, prompt, clean, ablated, effect."""
        ablated = self.ablated.flatten(0, -2)
        clean = self.clean.expand_as(ablated)
        return prompt_frame(self.cells, clean=clean, ablated=ablated, effect=self._effects)

    def drawing(self) -> Drawing:
        """Mean effects: a heatmap of heads, or of the interactions of pairs; else bars."""
        if self.units == "heads":
            return self._map_of_heads()
        return self._map_of_pairs() if self.units == "pairs" else self._bars()

    def summary(self, top: int = 10) -> str:
        """The metric without ablation, and the ``top`` units by effect (pairs: interaction)."""
        top = at_least(1, top, "top")
        lines = effect_lines(self._ranked, self.unit, self._noun, top)
        return "\n".join([self.headline(), *lines, *self.notes])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        how = f"{self._how}, interactions" if self.units == "pairs" else self._how
        whole = metric_text(self.metric, self.clean, self.unit, "prompt")
        largest = largest_text(self._ranked, self.unit, self._noun, how)
        return f"{whole}; {largest}"

    def conclusion(self) -> list[str]:
        """The headline; of heads by layer, the largest and how many are significant."""
        if not self.by_layer:
            return super().conclusion()
        frame, n = self.to_frame(), self.clean.numel()
        of, on = f"of {counted(len(frame), 'head')}", f"on {counted(n, 'prompt')}"
        whole = f"{number(self.clean.nanmean().item())} {self.unit}"
        largest = frame[frame["size"] > 0].head(MOST_NAMED)
        if largest.empty:
            return [f"None {of} has an effect {on}: the {self.metric} stays {whole}"]
        places = places_of_effects(frame)
        named = named_effects(largest, self.unit, places)
        large = (frame["share"] >= LARGE).sum()
        share = f", which {large} {of} change by {percent(LARGE)} or more"
        tested = (
            f"{frame['significant'].sum()} of {counted(len(frame), 'effect')} significant "
            f"(q ≤ {LEVEL})"
        )
        estimated = " by a first-order estimate" if self.is_estimate else ""
        return [
            f"The largest effects {of} {on}{estimated}: {named}",
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
        """How many units are expected to have p ≤ 0.05 if none has an effect on average."""
        return by_chance(self.to_frame())

    @property
    def _effects(self) -> Float[Tensor, "unit prompt"]:
        """The effects, with all units on one axis."""
        return self.effect.flatten(0, -2)

    @property
    def _how(self) -> str:
        """How components were replaced, and whether that was only estimated."""
        estimated = ", estimated to first order" if self.is_estimate else ""
        return f"{self.method} ablation{estimated}"

    @property
    def _noun(self) -> str:
        return self.units.replace("mlps", "MLPs")

    @property
    def _ranked(self) -> pd.DataFrame:
        """The effects of the units, or the interactions of pairs."""
        if self.units != "pairs":
            return self.to_frame()
        return self.to_interaction_frame().rename(columns={"interaction": "effect"})

    @property
    def _alone(self) -> dict[str, int]:
        """The row of each component that is a unit by itself."""
        return {names[0]: row for row, names in enumerate(self.members) if len(names) == 1}

    @property
    def _together(self) -> list[int]:
        """The rows of units with several components, each of which is also a unit by itself."""
        alone = self._alone
        several = ((row, names) for row, names in enumerate(self.members) if len(names) > 1)
        return [row for row, names in several if all(name in alone for name in names)]

    @property
    def _noise(self) -> float:
        return rounding(self.clean, self.provenance.dtype)

    def _map_of_heads(self) -> Drawing:
        """The mean effect, layers down, heads across."""
        stacks = self.cells.get("stack", [""] * len(self.members))
        rows = [f"{stack} {n}" for stack, n in zip(stacks, self.cells["layer"], strict=True)]
        change = "Estimated change" if self.is_estimate else "Change"
        title = f"{change} of {self.metric} under {self.method} ablation of each head"
        return cell_heatmap(
            self._effects.mean(-1),
            rows,
            self.cells["head"],
            title=title,
            axes=("layer", "head"),
            unit=self.unit,
            places=places_of_effects(self.to_frame()),
            helps=HELPS.get(self.metric),
        )

    def _map_of_pairs(self) -> Drawing:
        """The mean interaction of every two heads, on both sides of the diagonal."""
        firsts, seconds = ([names[end] for names in self.members] for end in (0, -1))
        mean = self.interaction.mean(-1).repeat(2)
        title = f"Interaction of each two heads in {self.metric} under {self.method} ablation"
        return cell_heatmap(
            mean,
            firsts + seconds,
            seconds + firsts,
            title=title,
            axes=("head", "head"),
            unit=self.unit,
            places=places_of_effects(self.to_interaction_frame(), "interaction"),
        )

    def _bars(self) -> Drawing:
        """The mean effect of each unit, or of those with the largest size."""
        effects = self.interval()
        rows, title = torch.arange(len(effects.mean)), ""
        change = "Estimated change" if self.is_estimate else "Change"
        if len(rows) > MOST_BARS:
            rows = effects.size.nan_to_num(-1.0).argsort(descending=True)[:MOST_BARS]
            title = f" (the {MOST_BARS} largest of {len(effects.mean)})"
        return Bars(
            effects.mean[rows],
            effects.low[rows],
            effects.high[rows],
            title=f"{change} of {self.metric} under {self.method} ablation of {self.units}{title}",
            labels=[str(self.cells["name"][row]) for row in rows.tolist()],
            unit=self.unit,
            places=places_of_effects(self.to_frame()),
            helps=HELPS.get(self.metric),
        )


def ablate(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    *,
    units: str | Groups = "heads",
    layers: Sequence[int] | None = None,
    method: str = "mean",
    part: str = "z",
    reference: Any = None,  # noqa: ANN401 - as prompts
    per_position: bool = False,
    metric: AnyMetric = "loss",
    estimate: bool = False,
    largest: int | None = None,
    seed: int = 0,
    rows: int = 64,
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    resume: Sweep | None = None,
) -> Ablation:
    """Ablate each head, layer, MLP, neuron, pair of heads or group of components in turn.

    Args:
        model: the model.
        prompts: texts, token ids padded with ``interp.PAD``, images, or a batch that
            ``model.batch`` made; ``(source, target)`` for an encoder–decoder.
        units: what is ablated.

            * ``"heads"``: each head, by ``part``.
            * ``"layers"``: all that a layer adds to the stream: attention and MLP together. Under
              zero ablation the stream passes it unchanged (except for norms of the stream itself).
            * ``"mlps"``: all that the MLP of a layer adds, its bias included.
            * ``"neurons"``: the activation of each neuron.
            * ``"features"``: the activation of each feature of a dictionary; its error stays.
            * ``"pairs"``: each head alone, and every two heads together, for their interaction.
            * groups by name, such as ``{"induction": ["L1H0", "L1H5"], "mlp": "L0MLP"}``, with
              names as in :mod:`analyses.methods.components.components`. An empty group changes
              nothing.
        layers: ablate in these layers (of each stack) only; not allowed with groups.
        method: ``zero``, ``mean`` or ``resample``. A prompt is resampled from its predecessor in
            one cycle through all prompts, which ``seed`` draws, and from the nearest before that
            at positions that this one lacks, however many prompts run at a time.
        part: the tensor of a head that is replaced: ``z``; its attention ``pattern``, while its
            values stay; or ``v``, while its pattern stays. Heads that share values are one unit of
            ``v``, ``L0KV1``.
        reference: prompts from which means or donors come; by default the prompts themselves.
            Donors from a reference are its prompts in turn, in an order drawn by ``seed``.
        per_position: take the mean at each position instead of over all positions. For a pattern
            the mean is always per position, and over prompts of one length.
        metric: ``"loss"`` (next-token, nats), ``"kl"`` (KL from the model's own prediction without
            ablation, mean over all positions, nats), a metric, e.g.
            ``interp.metrics.logit_diff(...)``, or a function of the logits of all prompts
            ``[prompt pos vocab]`` (and of their batch) with one number per prompt.
        estimate: estimate the effects to first order, instead of measuring them: the gradient of
            the metric times the change of each component, from one forward and one backward pass
            (attribution patching, Nanda 2023). Not for ``"kl"``, which has no gradient without
            ablation, nor for pairs, which interact in second order.
        largest: measure this many units only: those with the largest estimates.
        seed: seed for the resampling.
        rows: prompts per forward while activations are collected; the result does not depend on it.
        memory: bytes that the sweep may take, as for :func:`interp.sweep`.
        progress: called with ``(units done, units in total)``.
        cancelled: called after each forward; if it returns True, what was measured is returned,
            and its ``partial`` can be resumed.
        resume: partial result of the same call: ``partial`` of a cancelled one, or the ``result``
            of the :class:`interp.Interrupted`, or of the error, that stopped it.

    Returns:
        Effects per unit and prompt.

    Raises:
        InvalidInput: an unknown kind of unit, method, part or metric; nothing to ablate; settings
            that the method does not use; resampling with a single prompt; patterns of prompts that
            differ in length; or a ``resume`` of another call.
        UnknownPlace: a group names a component that the model does not have.
        Cancelled: ``cancelled`` returned True before anything was measured.
        Interrupted: Ctrl-C; its ``result`` can be resumed.

    Examples:
        >>> model = interp.load("induction-by-hand")
        >>> analyses.ablate(model, ["abcabc", "xyzxyz"], units="layers")
        Ablation(loss 2.762 nats on 2 prompts; largest effect of 2 layers (mean ablation): L0 +1.38
        nats; ≥ 10 % of the metric: 2 of 2)
    """
    check_finite_weights(model)
    batches = read_batches(model, prompts)
    others = None if reference is None else read_batches(model, reference)
    check_options(model, memory, resume)
    seed, rows = as_seed(seed), at_least(1, rows, "rows")
    _check_estimate(estimate, largest, units, metric, resume)
    chosen = _select_units(components_of(model, part), units, layers)
    replacements = Replacements(model, batches, method, others, per_position, seed, rows)
    kind, notes = units if isinstance(units, str) else GROUPS, tuple[str, ...]()
    if largest is not None and largest < len(chosen):
        with cancellable(cancelled):
            estimates = _estimated(chosen, replacements, as_metric(metric, model, batches))
        notes = (f"the {largest} of {len(chosen)} units with the largest first-order estimates",)
        chosen = _largest(chosen, *estimates, largest)
    described: dict[str, Any] = {
        "units": kind,
        "cells": _cells(kind, chosen),
        "members": tuple(tuple(each.name for each in members) for members in chosen.values()),
        "method": method,
        "part": part,
        "of_reference": others is not None,
    }
    if estimate:
        with cancellable(cancelled):
            measured = as_metric(metric, model, batches)
            clean, ablated = _estimated(chosen, replacements, measured)
        return Ablation(
            clean,
            ablated,
            **described,
            metric=measured.name,
            unit=measured.unit,
            provenance=Provenance.of(model, *batches, seed=seed),
            is_estimate=True,
        )
    with cancellable(cancelled):
        measured = sweep_metric(metric, model)
        edits = replacements.edits(each for members in chosen.values() for each in members)
    table = sweep(
        model,
        tuple(batches),
        [[edits[each.name] for each in members] for members in chosen.values()],
        measured,
        memory=memory,
        progress=in_cells(progress, len(batches[0].ids)),
        cancelled=cancelled,
        resume=resume,
    )
    return Ablation(
        table.baseline,
        table.values,
        **described,
        metric=table.metric,
        unit=table.unit,
        provenance=replace(table.provenance, seed=seed),
        notes=(*notes, *table.notes, *cancelled_note(table, "unit")),
        partial=None if table.complete else table,
    )


def _check_estimate(
    estimate: object, largest: object, units: object, metric: object, resume: object
) -> None:
    """Check that effects can be estimated from one gradient, if they shall be.

    Raises:
        InvalidInput: ``estimate`` is no boolean, or ``largest`` no number from 1; or effects shall
            be estimated, and the metric has no gradient, the units are pairs, or all units shall be
            estimated and ``resume`` or ``largest`` is given.
    """
    if not isinstance(estimate, bool):
        raise InvalidInput(f"estimate={shorten(estimate)} should be True or False.")
    if largest is not None:
        at_least(1, largest, "largest")
    excluded = {
        'metric="kl"': metric == "kl",
        'units="pairs"': units == "pairs",
        "resume=": estimate and resume is not None,
        "largest=": estimate and largest is not None,
    }
    name = "estimate=True" if estimate else f"largest={largest}"
    for other, is_given in excluded.items():
        if (estimate or largest is not None) and is_given:
            raise InvalidInput(
                f"{name}: effects are estimated to first order, from one gradient, which excludes "
                f"{other}. Leave out one of the two."
            )


def _estimated(
    chosen: Units, replacements: Replacements, metric: Metric
) -> tuple[Float[Tensor, " prompt"], Float[Tensor, "unit prompt"]]:
    """The metric without ablation, and with each unit ablated to first order."""
    components = (each for members in chosen.values() for each in members)
    clean, effects = replacements.first_order_effects(components, metric)
    sums = [
        sum((effects[each.name] for each in members), torch.zeros_like(clean))
        for members in chosen.values()
    ]
    return clean, clean + torch.stack(sums)


def _largest(
    chosen: Units,
    clean: Float[Tensor, " prompt"],
    ablated: Float[Tensor, "unit prompt"],
    n: int,
) -> Units:
    """The ``n`` units with the largest mean size of the effect, in the order of the forward."""
    order = (ablated - clean).abs().mean(-1).argsort(descending=True, stable=True)
    largest = {*order[:n].tolist()}
    return {name: members for row, (name, members) in enumerate(chosen.items()) if row in largest}


def _select_units(
    components: Components, units: str | Groups, layers: Sequence[int] | None
) -> Units:
    """Select the units to ablate.

    Raises:
        InvalidInput: an unknown kind, no such layer, no unit of that kind, or layers beside groups.
        UnknownPlace: a name in a group that no component has.
    """
    if isinstance(units, Mapping):
        if layers is not None or not units:
            raise InvalidInput(
                f"units={shorten(units)}: give one or more groups, and no layers=, which component "
                "names include."
            )
        return components.groups(units)
    if units not in KINDS:
        raise InvalidInput(
            f"units={shorten(units)} should be one of {', '.join(KINDS)}, or groups by name, as in "
            '{"induction": ["L1H0", "L1H5"]}.'
        )
    within = components if layers is None else components.in_layers(layers)
    chosen = within.units(units)
    if not chosen:
        there = "" if layers is None else f" in layers={shorten(list(layers))}"
        raise InvalidInput(f"This model has no {units}{there} to ablate.")
    return chosen


def _cells(kind: str, chosen: Units) -> dict[str, tuple[object, ...]]:
    """The columns that name the units."""
    names, members = tuple(chosen), tuple(chosen.values())
    if kind == GROUPS:
        return {"name": names, "members": tuple(" ".join(map(str, each)) for each in members)}
    if kind == "pairs":
        ends = {"first": 0, "second": 1}
        return {
            **{n: tuple(str(e[i]) if i < len(e) else "" for e in members) for n, i in ends.items()},
            "name": names,
        }
    first = [each[0] for each in members]
    columns = {
        "stack": tuple(each.name.rpartition(".")[0] for each in first),
        "layer": tuple(each.layer for each in first),
        "head": tuple(each.head for each in first),
        "neuron": tuple(each.unit for each in first),
    }
    full = {name: each for name, each in columns.items() if set(each).isdisjoint({"", None})}
    return {**full, "name": names}
