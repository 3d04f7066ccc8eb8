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
from typing import Any

from interp.edits import Edit
from interp.io import ProgressLike, as_progress
from interp.metrics import Metric, MetricLike, with_ids
from interp.model import Network, as_network
from interp.sweeps.memory import Budget
from interp.sweeps.restart_map import RestartMap
from interp.sweeps.result import Interrupted, Sweep, nan_note
from interp.sweeps.schedule import cases_of
from interp.sweeps.validate import check_cases, check_metric, on_cpu
from interp.sweeps.worker import Worker, executor_of, jobs_within


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
    executor: object = "local",
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
        executor: where forwards run: ``"local"``, or an :class:`interp.sweeps.Executor`.
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
    result = Sweep.empty(model, batches, cases, metric)
    result.resume(resume)
    jobs = result.left_of(jobs_within(worker, batches, cases, metric))
    for job in jobs:
        worker.copies(job)
    try:
        for outcome in run_by(jobs, worker):
            result.fill(outcome)
            if progress is not None:
                progress(int(result.done.sum()), result.done.numel())
            if cancelled is not None and cancelled():
                break
        note = nan_note(result.values, result.done, result.placed)
        if note is not None:
            warnings.warn(note, RuntimeWarning, stacklevel=2)
    except KeyboardInterrupt as error:
        raise Interrupted(result.snapshot()) from error
    except Exception as error:
        setattr(error, "result", result.snapshot())  # noqa: B010 - also on another library's
        raise
    return result.snapshot()
