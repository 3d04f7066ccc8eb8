"""Estimates the memory of a sweep before it runs, by executing its forwards on shapes only.

interp.estimate_sweep(model, tokens, edits, metric)         # Estimate(peak=…, kept=…), in bytes
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from interp.edits import Edit, EditSite
from interp.estimates.runs import Estimate, LiveBytes, Shapes, given_to
from interp.execution import Recorder
from interp.metrics import AtPosition, Metric, MetricLike, with_ids
from interp.model import Network
from interp.points import Point
from interp.sweeps import (
    Baseline,
    BatchedForward,
    Budget,
    Case,
    Job,
    RestartMap,
    Worker,
    cases_of,
    check_cases,
    check_metric,
    groups_of,
    jobs_within,
    on_cpu,
    with_reference,
)


def estimate_sweep(
    model: Network,
    tokens: Any,  # noqa: ANN401 - what model.check reads
    edits: Edit | Sequence[Edit | Sequence[Edit]],
    metric: Metric | MetricLike,
    *,
    mask: object = None,
    memory: object = None,
) -> Estimate:
    """The memory that ``interp.sweep`` with the same arguments would take; nothing is computed.

    The estimate is within 20 % of what PyTorch allocates on a CPU, for forwards of at least a few
    hundred kilobytes. Memory allocated by functions given as edits or as the metric is not known.

    Args:
        model: the model.
        tokens: as for :func:`interp.sweep`.
        edits: as for :func:`interp.sweep`.
        metric: as for :func:`interp.sweep`.
        mask: as for ``model(...)``.
        memory: as for :func:`interp.sweep`; determines how many edited forwards run as one.

    Raises:
        InterpError: as for :func:`interp.sweep`, for everything checked before the first forward.

    Examples:
        >>> model, metric = interp.load("python-2l"), interp.metrics.loss()
        >>> heads = [interp.edits.zero("z", layer=1, head=h) for h in range(8)]
        >>> print(interp.estimate_sweep(model, "def f(x):", heads, metric))
        210.0 KiB at the peak, 0.1 KiB kept
    """
    batches = on_cpu(model.batches(tokens, mask))
    restart_map = RestartMap(Shapes(model))
    cases = cases_of(restart_map, edits)
    check_cases(restart_map, batches, cases)
    metric = with_ids(metric, model)
    check_metric(metric, model, batches[-1])
    worker = Worker(restart_map, Budget.of(model, memory))
    peaks = [_peak(worker, job) for job in jobs_within(worker, batches, cases, metric)]
    return Estimate(max(peaks), len(cases) * len(batches[0].ids) * torch.float64.itemsize)


def _peak(worker: Worker, job: Job) -> int:
    """Largest number of bytes that one job takes at a time: its baseline and a forward per kind."""
    restart_map, copies = worker.restart_map, worker.copies(job)
    model = restart_map.model
    without_data = tuple(batch.to("meta") for batch in job.batches)
    if not isinstance(job.metric, Metric):
        measured = replace(job, metric=_placeholder_metric, batches=without_data)
    elif not isinstance(job.metric, AtPosition):
        measured = replace(job, batches=without_data)
    else:  # the column that it reads depends on the padding
        measured = job
    kinds: dict[object, tuple[tuple[Case, ...], int]] = {}
    for cases, first_column in groups_of(restart_map, job, copies):
        kinds.setdefault((len(cases), *_memory_key(cases), first_column), (cases, first_column))
    with LiveBytes(given_to(model, without_data)) as live, torch.no_grad():
        baseline = Baseline.of(restart_map, job, without_data)
        measured = with_reference(measured, baseline)
        for cases, first_column in [((), 0), *kinds.values()]:
            forward = BatchedForward(baseline, measured, cases, first_column)
            for stage in forward.stages:
                changes = {
                    place: [
                        _allocating_change(
                            stage.copies, whole_cases=any(e.select.selects_all for _, e in made)
                        )
                    ]
                    for place, made in stage.edits.items()
                }
                stage.recorder = Recorder(replace(stage.recorder.plan, edits=changes))
            with suppress(RuntimeError):  # the metric's numbers can't be read without data
                forward.values()
    return live.peak


def _placeholder_metric(logits: Tensor) -> Tensor:
    """A placeholder for a function of the logits."""
    return logits.sum((1, 2))


def _memory_key(cases: tuple[Case, ...]) -> tuple[object, frozenset[Point]]:
    """The properties of a forward that determine its memory, besides the number of its cases."""
    points = frozenset(place.point for case in cases for place, _ in case.edits)
    return tuple(case.restarts for case in cases), points


def _allocating_change(copies: int, *, whole_cases: bool) -> Callable[[Tensor, EditSite], Tensor]:
    """A change that allocates as the edits at a place do: a copy of the tensor, and one case.

    An edit that selects everything allocates a whole case; others allocate only a small part of it,
    such as a head, which is neglected.
    """

    def changed(x: Tensor, site: EditSite) -> Tensor:  # noqa: ARG001 - as edits are called
        changed = x.clone()
        if whole_cases:
            changed[: len(changed) // copies].clone()
        return changed

    return changed
