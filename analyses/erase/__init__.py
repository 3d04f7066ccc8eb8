"""What depends on a label that can be read from activations? Erase it, and run the rest.

    r(x) = x − Σ^{1/2} P Σ^{−1/2} (x − μ)        x: the activations of a place at one position

P projects onto the columns of Σ^{−1/2} Cov(x, labels): the least change after which no linear probe
of these prompts reads the labels any better than a constant does (Belrose et al. 2023, "LEACE:
Perfect linear concept erasure in closed form"). The effect is the metric with r(x) in place of x,
minus the metric without an edit.

With ``method="probe"`` only the directions that one ridge probe reads are removed; another probe
may read the labels from directions that correlate with them (Ravfogel et al. 2020, "Null It Out").

The control erases the same labels in random order. It is needed because with no more prompts than
dimensions, every labelling can be read without error, and erasing any of them removes part of what
distinguishes the prompts. An effect beyond the control's is due to the labels. What is erased at
one place may be recomputed by later ones, read from other positions, or read nonlinearly.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from analyses.erase.erasure import ERASURES
from analyses.methods.components import Labelled, labelled_activations, place_cells
from analyses.methods.finite import check_finite_weights
from analyses.results import (
    AnyMetric,
    Curve,
    Curves,
    Drawing,
    Progress,
    Result,
    check_metric,
    counted,
    effect_frame,
    effect_text,
    in_cells,
    marked_names,
    metric_text,
    percent,
    places_of_effects,
    prompt_frame,
    rounding,
    signed,
    significance_text,
    sweep_metric,
)
from interp import Sweep, Transformer, edits, sweep
from interp.edits import Replace
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.integers import as_seed
from interp.io import cancellable
from interp.metrics import relative_rounding
from interp.points import Place
from interp.sweeps import check_options

DRAWS = 5
"""Random orders of the labels."""


@dataclass(frozen=True, eq=False, repr=False)
class Erasing(Result):
    """The metric with the labels erased at one place, and with labels in random order.

    Attributes:
        clean: the metric without an edit.
        erased: the metric with the labels erased at each place.
        control: the metric with the labels erased in each random order.
        removed: share of the variance of the activations that is erased.
        removed_control: the same for each random order.
        points: the point that was edited at each place, such as ``resid_post``.
        layers: the layer of each place.
        labels: the label of each prompt.
        pos: the position that was edited.
        method: ``leace``, or ``probe`` if the directions of a probe were removed.
        metric: the metric's name.
        unit: the metric's unit.
        provenance: model, prompts, edits and seed that the numbers depend on.
        notes: notes of the sweep, such as what is missing.
        partial: for a cancelled call, the sweep to pass as ``resume=``; else ``None``.
    """

    working = ("partial",)

    clean: Float[Tensor, " prompt"]
    erased: Float[Tensor, "place prompt"]
    control: Float[Tensor, "place draw prompt"]
    removed: Float[Tensor, " place"]
    removed_control: Float[Tensor, "place draw"]
    points: tuple[str, ...]
    layers: tuple[int, ...]
    labels: tuple[str, ...]
    pos: int
    method: str
    metric: str
    unit: str
    provenance: Provenance
    notes: tuple[str, ...] = ()
    partial: Sweep | None = None

    def to_frame(self) -> pd.DataFrame:
        """One row per place, largest size first.

        Columns:
            point, layer, name: where the labels were erased.
            removed, removed_control: share of the variance there that is erased; for labels in
                random order, the mean over orders.
            control: effect of erasing labels in random order, mean over orders and prompts.
            effect, low, high, size, n, p, q, significant: of erasing the labels; see
                :func:`analyses.results.effect_frame`. ``significant`` is against no effect; compare
                the effect with the control.
        """
        cells = {
            **self._cells,
            "removed": self.removed.tolist(),
            "removed_control": self.removed_control.mean(-1).tolist(),
            "control": (self.control - self.clean).mean((1, 2)).tolist(),
        }
        return effect_frame(
            cells, self.erased - self.clean, rounding(self.clean, self.provenance.dtype)
        )

    def to_prompt_frame(self) -> pd.DataFrame:
        """One row per place and prompt: point, layer, name, prompt, clean, erased, control, effect.

        ``control`` is the mean over the random orders of the labels.
        """
        return prompt_frame(
            self._cells,
            clean=self.clean.expand_as(self.erased),
            erased=self.erased,
            control=self.control.mean(1),
            effect=self.erased - self.clean,
        )

    def drawing(self) -> Drawing:
        """The metric by layer for each point, for labels in random order, and without an edit."""
        curves: list[Curve] = []
        for point in dict.fromkeys(self.points):
            rows = [number for number, name in enumerate(self.points) if name == point]
            x = [self.layers[number] for number in rows]
            control = self.control[rows].mean((1, 2)).tolist()
            curves += [
                Curve(f"erased at {point}", x, self.erased[rows].mean(-1).tolist()),
                Curve(f"in random order, {point}", x, control, faint=True),
            ]
        x = sorted(set(self.layers))
        curves.append(Curve("no edit", x, [self.clean.mean().item()] * len(x)))
        return Curves(
            {self.metric: curves},
            title=f"{self.provenance.model}: labels erased at position {self.pos}",
            axis="layer",
            units=[self.unit],
        )

    def summary(self) -> str:
        """The largest effect, then that of every place beside its control."""
        frame = self.to_frame()
        names, places = marked_names(frame), places_of_effects(frame)
        width = max(map(len, names))
        columns = (names, *(frame[name] for name in ("effect", "control", "removed")))
        lines = [
            f"{name:<{width}} {effect_text(effect, places, self.unit)} (in random order "
            f"{signed(control, places)}), {percent(removed, 1)} of the variance"
            for name, effect, control, removed in zip(*columns, strict=True)
        ]
        measured = f"{metric_text(self.metric, self.clean, self.unit, 'prompt')} without an edit"
        ends = [significance_text(frame, "places"), *self.notes]
        return "\n".join([self.headline(), measured, *lines, *ends])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        frame = self.to_frame()
        best, places = frame.iloc[0], places_of_effects(frame)
        return (
            f"{len(set(self.labels))} labels of {counted(len(self.labels), 'prompt')}: "
            f"{self._action} at {best['name']}, the {self.metric} changes by "
            f"{effect_text(best['effect'], places, self.unit)} "
            f"(in random order {signed(best['control'], places)})"
        )

    @property
    def _action(self) -> str:
        return "erased" if self.method == "leace" else "a probe's directions removed"

    @property
    def _cells(self) -> dict[str, list[Any]]:
        return place_cells(self.points, self.layers)


def erase(  # noqa: PLR0913 - the settings of one analysis, by keyword
    model: Transformer,
    prompts: Any,  # noqa: ANN401 - what model.check reads
    labels: Iterable[object],
    *,
    metric: AnyMetric = "kl",
    at: str | Sequence[str] = "resid_post",
    pos: int = -1,
    method: str = "leace",
    stack: str | None = None,
    seed: int = 0,
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    resume: Sweep | None = None,
) -> Erasing:
    """Erase labels from the activations of every layer, one at a time, and measure the effect.

    Args:
        model: the model.
        prompts: texts, token ids padded with ``interp.PAD``, images, or a batch; ``(source,
            target)`` for an encoder–decoder; or an ``interp.Harvest`` of the points, whose texts
            are then run for the metric only.
        labels: one label per prompt: texts, numbers or booleans.
        metric: ``"loss"``, ``"kl"`` from the model's own predictions, one of ``interp.metrics``
            or a function of the logits.
        at: what is edited: the label of a point that every layer has and that has positions, such
            as ``resid_post``, ``mlp_out``, ``z`` (all heads together); or several, each by itself.
        pos: the position, among each prompt's tokens, at which the labels are erased.
        method: ``leace``, after which no linear probe of these prompts reads the labels; ``probe``,
            which removes the directions that one ridge probe reads.
        stack: for an encoder–decoder, the stack that is edited; by default the decoder.
        seed: seed for the random orders of the control.
        memory: bytes that the sweep may take, as for :func:`interp.sweep`.
        progress: called with ``(cases done, cases in total)``; controls are cases too.
        cancelled: called after each forward; if it returns True, what was measured is returned,
            and its ``partial`` can be resumed.
        resume: partial result of the same call.

    Returns:
        The metric by place and prompt.

    Raises:
        InvalidInput: not one label per prompt, or fewer than two of each; an unknown method; a
            point that has no positions; a prompt that is too short to have the position; a metric
            that the model does not have; or a ``resume`` of another call.
        UnknownPlace: the model has no such point.
        Cancelled: ``cancelled`` returned True before anything was measured.
        Interrupted: Ctrl-C; its ``result`` can be resumed.

    Examples:
        >>> model, prompts = interp.load("python-2l"), interp.read_prompts("python-brackets")
        >>> texts, labels = [p.text for p in prompts], [p.target for p in prompts]
        >>> analyses.erase(model, texts, labels)
        Erasing(3 labels of 48 prompts: erased at resid_post 1, the KL divergence changes by +0.088
        nats (in random order +0.004))
    """
    check_finite_weights(model)
    if method not in list(ERASURES):
        raise InvalidInput(f"method={shorten(method)} should be one of {', '.join(ERASURES)}.")
    check_options(model, memory, resume)
    check_metric(metric, model)
    seed = as_seed(seed)
    with cancellable(cancelled):
        labelled = labelled_activations(model, prompts, labels, at=at, pos=pos, stack=stack)
        measured = sweep_metric(metric, model)
    generator = torch.Generator().manual_seed(seed)
    n = len(labelled.labels)
    orders = [
        torch.arange(n),
        *(torch.randperm(n, generator=generator) for _ in range(DRAWS)),
    ]
    made = [
        _erased(labelled, place, order, method)
        for place in labelled.every_place
        for order in orders
    ]
    table = sweep(
        model,
        tuple(labelled.batches),
        [edit for edit, _ in made],
        measured,
        memory=memory,
        progress=in_cells(progress, n),
        cancelled=cancelled,
        resume=resume,
    )
    values = table.values.unflatten(0, (-1, len(orders)))
    removed = torch.tensor([share for _, share in made]).double().view(-1, len(orders))
    provenance = Provenance.of(model, *labelled.batches, seed=seed)
    return Erasing(
        clean=table.baseline,
        erased=values[:, 0],
        control=values[:, 1:],
        removed=removed[:, 0],
        removed_control=removed[:, 1:],
        points=tuple(labelled.cells["point"]),
        layers=tuple(labelled.cells["layer"]),
        labels=labelled.labels,
        pos=pos,
        method=method,
        metric=table.metric,
        unit=table.unit,
        provenance=replace(provenance, edits=table.provenance.edits),
        notes=table.notes,
        partial=None if table.complete else table,
    )


def _erased(labelled: Labelled, place: Place, order: Tensor, method: str) -> tuple[Replace, float]:
    """The edit that erases the labels in an order, and the share of variance that it removes."""
    x, activations = labelled.rows_at(place), labelled.activations[place]
    classes = one_hot(labelled.targets[order], len(labelled.classes)).double()
    erased = ERASURES[method](x, classes, relative_rounding(activations.dtype))(x)
    removed = (x - erased).square().sum() / (x - x.mean(0)).square().sum().clamp(min=1e-300)
    values = erased.to(activations).view_as(activations)
    return edits.replace(place, values, pos=labelled.pos), removed.item()
