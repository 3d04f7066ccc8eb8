"""A sweep: the metric under each of many edits, with as little computed twice as possible.

    heads = [edits.zero("z", layer=layer, head=head) for layer in range(12) for head in range(12)]
    table = interp.sweep(model, tokens, heads, interp.metrics.logit_diff(target, distractor))
    table.values, table.effect                                            # [edit prompt]

The numbers are those of one whole forward per edit (``interp.run(model, tokens, edits=[edit])``)
up to rounding, which differs with the shapes of products: within 1e-12 in float64 and 1e-5 in
float32, relative to the largest of an edit (or to 1, if that is smaller). An edited forward
restarts where the edit acts, many run as one along the batch, earlier columns of a causal model are
attended to and not computed again, and only what the metric reads is computed to the end. (KV
caches reuse a prefix of columns in text generation; this does it for layers too.)
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from interp.edits import Edit
from interp.metrics import Metric, MetricLike
from interp.model.network import Network, as_network
from interp.sweeps.cases import cases_of
from interp.sweeps.executors import executor_of
from interp.sweeps.memory import Budget
from interp.sweeps.restart_map import RestartMap
from interp.sweeps.result import Interrupted, Sweep
from interp.sweeps.rows import nan_note
from interp.sweeps.schedule import Job, jobs_of
from interp.sweeps.validate import check_cases, check_metric, on_cpu
from interp.sweeps.worker import Worker

Progress = Callable[[int, int], None]
"""Called with the number of cells (edit × prompt) done, and of all."""


def sweep(  # noqa: PLR0913 - independent options, all but the first by keyword
    model: Network,
    tokens: Any,  # noqa: ANN401 - what model.check reads: ids, texts; a pair of them for a pair
    edits: Edit | Sequence[Edit | Sequence[Edit]],
    metric: Metric | MetricLike,
    *,
    mask: object = None,
    memory: object = None,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    executor: object = "local",
    resume: Sweep | None = None,
) -> Sweep:
    """The metric under each of many edits, prompt by prompt.

    Args:
        model: the model.
        tokens: what ``model(...)`` takes; ``(source, target)`` for an encoder–decoder.
        edits: what is swept over: each an edit, or several that are made together.
        metric: what is measured; a plain function of the logits gives one number per prompt (of
            padded prompts it gets NaN at padding, or the batch: see
            :func:`interp.metrics.measure`). A metric at one position is the fastest: only what it
            reads is computed to the end.
        mask: as of ``model(...)``.
        memory: bytes that the forwards may take; by default a quarter of what is free. It decides
            how many run as one, and with that the rounding of the numbers, within the bounds
            above; see :func:`interp.estimate_sweep`.
        progress: called after each forward with the cells done and all cells.
        cancelled: called after each forward; if it returns True, what is done is returned, and the
            rest is NaN (see :attr:`Sweep.done`). Ctrl-C raises :class:`Interrupted`, which holds
            the same.
        executor: where forwards run: ``"local"``, or an :class:`interp.sweeps.Executor`.
        resume: the result of an earlier call with the same arguments; only the rest is computed.

    Raises (an error during the sweep holds what was done, as its ``result``):
        UnknownPlace: a misspelt place, before anything is computed.
        InvalidEdit: an edit that can't be made, before anything is computed.
        InvalidInput: an invalid metric, budget or executor, the result of another sweep to
            resume, or a metric that is NaN without an edit. One that is NaN under an edit is NaN
            in the table, and :attr:`Sweep.notes` say where.
        OutOfResources: not even one edited forward is within the budget.
    """
    batches = tuple(as_network(model).batches(tokens, mask))
    restart_map = RestartMap(model)
    cases = cases_of(restart_map, edits)
    cpu_batches = on_cpu(batches)
    check_cases(restart_map, cpu_batches, cases)
    check_metric(metric, model, cpu_batches[-1])
    run_by, worker = executor_of(executor), Worker(restart_map, Budget.of(model, memory))
    result = Sweep.empty(model, batches, cases, metric)
    result.resume(resume)
    n = len(batches[0].ids)
    whole = Job(tuple(range(n)), batches, metric, tuple(cases), n)
    together = worker.footprint(whole).prompts(worker.budget)
    jobs = result.left_of(jobs_of(batches, cases, metric, together))
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
