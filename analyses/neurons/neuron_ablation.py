"""The metric of some prompts with each of several neurons ablated in turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from analyses.methods.components import Component, Replacements
from analyses.results import AnyMetric, Progress, in_cells, rounding, sweep_metric
from interp import Sweep, Transformer, sweep
from interp.io import cancellable
from interp.model import Batch


@dataclass(frozen=True, eq=False)
class NeuronAblation:
    """The metric with each neuron ablated in turn.

    Attributes:
        clean: the metric without ablation, for each text.
        ablated: the metric with one neuron ablated; NaN where a cancelled call did not get to it.
        metric: the metric's name.
        unit: the metric's unit.
        method: ``zero``, ``mean`` or ``resample``.
        noise: the largest effect that may be a rounding error.
    """

    clean: Float[Tensor, " prompt"]
    ablated: Float[Tensor, "neuron prompt"]
    metric: str
    unit: str
    method: str
    noise: float

    @property
    def effect(self) -> Float[Tensor, "neuron prompt"]:
        """``ablated − clean``."""
        return self.ablated - self.clean


def ablate_neurons(  # noqa: PLR0913 - the settings of one ablation, by keyword
    model: Transformer,
    batches: Sequence[Batch],
    neurons: Sequence[Component],
    *,
    method: str,
    metric: AnyMetric,
    seed: int,
    rows: int,
    memory: float | None = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> tuple[NeuronAblation, Sweep]:
    """Ablate neurons one by one.

    Args:
        model: the model.
        batches: the prompts of each stack.
        neurons: the neurons to ablate.
        method: ``zero``, ``mean`` or ``resample``.
        metric: the metric to measure.
        seed: seed for the donors.
        rows: prompts per forward while the activations are collected.
        memory: bytes that the sweep may take.
        progress: called with ``(neurons ablated, neurons in total)``.
        cancelled: called after each forward; if it returns True, the rest is NaN.

    Returns:
        The numbers, and the sweep that they come from.

    Raises:
        Cancelled: ``cancelled`` returned True before anything was measured.
    """
    with cancellable(cancelled):
        measured = sweep_metric(metric, model)
        edits = Replacements(model, batches, method, seed=seed, rows=rows).edits(neurons)
    table = sweep(
        model,
        batches[0] if len(batches) == 1 else batches,
        [[edits[each.name]] for each in neurons],
        measured,
        memory=memory,
        progress=in_cells(progress, len(batches[0].ids)),
        cancelled=cancelled,
    )
    noise = rounding(table.baseline, table.provenance.dtype)
    ablation = NeuronAblation(table.baseline, table.values, table.metric, table.unit, method, noise)
    return ablation, table
