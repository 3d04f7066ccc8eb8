"""A sweep: the metric under each of many edits, with as little recomputation as possible.

    heads = [edits.zero("z", layer=layer, head=head) for layer in range(12) for head in range(12)]
    table = interp.sweep(model, tokens, heads, interp.metrics.logit_diff(target, distractor))
    table.values, table.effect                                            # [edit prompt]

The values are those of one whole forward per edit (``interp.run(model, tokens, edits=[edit])``) up
to rounding, which varies with the shapes of products: within 1e-12 in float64 and 1e-5 in float32,
relative to the largest value of an edit (or to 1, if that is smaller). An edited forward restarts
where the edit acts, many forwards run as one along the batch, earlier columns of a causal model are
attended to and not computed again, and only what the metric reads is computed to the end. (KV
caches reuse a prefix of columns in text generation; a sweep also reuses a prefix of layers.)
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from interp.edits import Edit
from interp.errors import InvalidInput, shorten
from interp.execution import Provenance
from interp.io import ProgressLike, as_progress
from interp.metrics import Metric, MetricLike, gets_nan_at_padding, name_and_unit, with_ids
from interp.model import Batch, Network, as_network
from interp.sweeps.memory import Budget
from interp.sweeps.restart_map import RestartMap
from interp.sweeps.result import Interrupted, Sweep
from interp.sweeps.schedule import Case, Job, cases_of
from interp.sweeps.validate import as_earlier, check_cases, check_metric, on_cpu
from interp.sweeps.worker import Outcome, Worker, executor_of, jobs_within


def sweep(  # noqa: PLR0913 - independent options, all but the first by keyword
    model: Network,
    tokens: Any,  # noqa: ANN401 - what model.check reads: ids, texts; a pair of them for a pair
    edits: Edit | Sequence[Edit | Sequence[Edit]],
    metric: Metric | MetricLike,
    *,
    mask: object = None,
    memory: object = None,
    progress: ProgressLike = None,
    cancelled: Callable[[], bool] | None = None,
    executor: object = "current",
    resume: Sweep | None = None,
) -> Sweep:
    """Compute the metric under each of many edits, for each prompt.

    Args:
        model: the model.
        tokens: the input of ``model(...)``; ``(source, target)`` for an encoder–decoder.
        edits: the edits to sweep over; each is an edit, or several that are applied together.
        metric: the metric; a plain function of the logits returns one number per prompt (with
            padded prompts it gets NaN at padding, or the batch: see
            :func:`interp.metrics.measure`). A metric at one position is the fastest, as only what
            it reads is computed to the end.
        mask: as for ``model(...)``.
        memory: bytes that the forwards may take; by default a quarter of the free memory, on a
            CPU at most 1 GiB. It determines how many run as one, and thereby the rounding of the
            values, within the bounds above; see :func:`interp.estimate_sweep`.
        progress: called after each forward with the number of cells done and of all cells; True
            draws a bar with the time left in a notebook or a terminal.
        cancelled: called after each forward; if it returns True, the sweep stops and returns what
            is done, with NaN elsewhere (see :attr:`Sweep.done`). Ctrl-C raises
            :class:`Interrupted`, which holds the same result.
        executor: where forwards run: ``"local"``, ``"processes"``, ``"ray"``, or an
            :class:`interp.sweeps.Executor`; by default that of :func:`interp.use`, else local.
        resume: the result of an earlier call with the same arguments; only the rest is computed.

    Raises (an error during the sweep holds what was done as its attribute ``result``):
        UnknownPlace: a place is misspelt; raised before anything is computed.
        InvalidEdit: an edit can't be applied; raised before anything is computed.
        InvalidInput: the metric, budget or executor is invalid, ``resume`` is the result of another
            sweep, or the metric is NaN without an edit. A metric that is NaN under an edit is NaN
            in the table, and :attr:`Sweep.notes` lists where.
        OutOfResources: not even one edited forward is within the budget.

    Examples:
        >>> model, metric = interp.load("python-2l"), interp.metrics.loss()
        >>> heads = [interp.edits.zero("z", layer=1, head=h) for h in range(8)]
        >>> table = interp.sweep(model, ["def f(x):", "class A:"], heads, metric)
        >>> (table.values - table.baseline).mean(1)
        tensor([ 0.1547,  0.0644,  0.1161,  0.1504,  0.0994, -0.0714, -0.0800,  0.5235],
               dtype=torch.float64)
    """
    progress = as_progress(progress, "sweep")
    batches = tuple(as_network(model).batches(tokens, mask))
    restart_map = RestartMap(model)
    cases = cases_of(restart_map, edits)
    cpu_batches = on_cpu(batches)
    check_cases(restart_map, cpu_batches, cases)
    metric = with_ids(metric, model)
    check_metric(metric, model, cpu_batches[-1])
    run_by, worker = executor_of(executor), Worker(restart_map, Budget.of(model, memory))
    result = _empty(model, batches, cases, metric)
    _copy_cells(as_earlier(resume), result)
    jobs = _left_of(result, jobs_within(worker, batches, cases, metric))
    for job in jobs:
        worker.copies(job)
    try:
        for outcome in run_by(jobs, worker):
            _fill(result, outcome)
            if progress is not None:
                progress(int(result.done.sum()), result.done.numel())
            if cancelled is not None and cancelled():
                break
        if bool((result.values.isnan() & result.done).any()):
            warnings.warn(result.notes[-1], RuntimeWarning, stacklevel=2)
    except KeyboardInterrupt as error:
        raise Interrupted(_snapshot(result)) from error
    except Exception as error:
        setattr(error, "result", _snapshot(result))  # noqa: B010 - also on another library's
        raise
    return _snapshot(result)


def _empty(
    model: Network, batches: Sequence[Batch], cases: Sequence[Case], measured: Metric | MetricLike
) -> Sweep:
    """The result before anything is computed."""
    shape = (len(cases), len(batches[0].ids))
    metric, unit = name_and_unit(measured)
    edits = [edit for case in cases for _, edit in case.edits]
    return Sweep(
        values=torch.full(shape, torch.nan, dtype=torch.float64),
        baseline=torch.full(shape[1:], torch.nan, dtype=torch.float64),
        done=torch.zeros(shape, dtype=torch.bool),
        placed=tuple(case.edits for case in cases),
        metric=metric,
        unit=unit,
        measured=measured,
        provenance=Provenance.of(model, *batches, edits=edits),
        remarks={_padding_note(metric): None} if gets_nan_at_padding(measured, batches[-1]) else {},
    )


def _padding_note(name: str) -> str:
    """The note for a function of the logits alone on padded prompts."""
    return (
        f"{name[:80]} is a function of the logits alone: at padding it got NaN. A function "
        "fn(logits, batch) sees in batch.is_real which positions are tokens."
    )


def _fill(result: Sweep, outcome: Outcome) -> None:
    """Fill in the outcome of a forward; a new note is also issued as a warning."""
    cells = torch.tensor(outcome.cases)[:, None], torch.tensor(outcome.prompts)
    result.values[cells] = outcome.values
    result.baseline[cells[1]] = outcome.baseline
    result.done[cells] = True
    if outcome.note is not None and outcome.note not in result.remarks:
        result.remarks[outcome.note] = None
        warnings.warn(outcome.note, ResourceWarning, stacklevel=3)


def _copy_cells(earlier: Sweep | None, result: Sweep) -> None:
    """Copy the cells of an earlier result, if there is one; that of another sweep is refused."""
    if earlier is None:
        return
    if not _is_same_sweep(earlier, result):
        raise InvalidInput(
            "resume= takes the result of a sweep with the same model, weights, tokens, edits "
            f"and metric; {shorten(earlier)} differs in one of them."
        )
    result.done.logical_or_(earlier.done)
    result.values.copy_(earlier.values)
    result.baseline.copy_(earlier.baseline)
    result.remarks.update(earlier.remarks)


def _is_same_sweep(one: Sweep, other: Sweep) -> bool:
    # Edits are compared directly: the hash of a function may depend on captured variables.
    same_edits = one.placed == other.placed and one.measured == other.measured
    first, second = (replace(each.provenance, edits=()) for each in (one, other))
    return same_edits and first == second


def _left_of(result: Sweep, jobs: Sequence[Job]) -> list[Job]:
    """The jobs that are not complete, each with the cases that are already done."""
    remaining: list[Job] = []
    for job in jobs:
        whole = result.done[:, list(job.rows)].all(dim=1)
        done = frozenset(case.index for case in job.cases if bool(whole[case.index]))
        remaining += [replace(job, done=done)] if len(done) < len(job.cases) else []
    return remaining


def _snapshot(result: Sweep) -> Sweep:
    """A copy that is not changed by later outcomes."""
    return replace(
        result,
        values=result.values.clone(),
        baseline=result.baseline.clone(),
        done=result.done.clone(),
        remarks=dict(result.remarks),
    )
