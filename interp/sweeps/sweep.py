"""What does each of many edits do? One clean forward, and of each edited one only what differs.

    heads = [edits.zero("z", layer=layer, head=head) for layer in range(12) for head in range(12)]
    table = interp.sweep(model, tokens, heads, interp.metrics.logit_diff(target, distractor))
    table.values, table.effect                                            # [edit prompt]

The numbers are those of one whole forward an edit (``interp.run(model, tokens, edits=[edit])``): an
edited forward begins where the edit acts, many are run as one along the batch, earlier columns of a
causal model are looked back at instead of computed again, and only what the metric reads is
finished. (Prefix reuse is what key/value caches do for generating text; the same holds for layers.)
"""

from collections.abc import Callable, Sequence
from typing import Any

from interp.edits import Edit
from interp.errors import InvalidInput
from interp.metrics import Metric, MetricLike
from interp.model.network import Network
from interp.sweeps.baseline import Job
from interp.sweeps.cases import items_of
from interp.sweeps.executors import Executor, Outcome, executor_of, local
from interp.sweeps.memory import Budget
from interp.sweeps.restart import Ways
from interp.sweeps.result import Interrupted, Sweep
from interp.sweeps.schedule import jobs_of
from interp.sweeps.table import Table
from interp.sweeps.validate import check_items, check_metric, on_cpu
from interp.sweeps.worker import Worker

__all__ = ["Executor", "Interrupted", "Outcome", "Sweep", "local", "sweep"]

Progress = Callable[[int, int], None]
"""Called with the number of cells (edit × prompt) done, and of all."""


def sweep(  # noqa: PLR0913 - each is one thing a sweep may be told, all but the first by keyword
    model: Network,
    tokens: Any,  # noqa: ANN401 - whatever model.check reads: ids, texts; a pair of them for a pair
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
        metric: what is measured; a plain function of the logits gives one number a prompt. A metric
            at one position is the fastest: nothing is finished that it does not read.
        mask: as of ``model(...)``.
        memory: bytes that the forwards may take; a quarter of what is free if nothing is said. It
            decides how many are run as one, and never a number.
        progress: called after each forward with the cells done and all cells.
        cancelled: asked after each forward; if true, what is done is returned, and the rest is NaN
            (see :attr:`Sweep.done`). Ctrl-C raises :class:`Interrupted`, which holds the same.
        executor: where forwards are run: ``"local"``, or an :class:`Executor`.
        resume: what an earlier call with the same arguments got done; the rest is computed.

    Raises (an error midway holds what was done, as its ``result``):
        UnknownPlace: a misspelt place, before anything is computed.
        InvalidEdit: an edit that does not fit, before anything is computed.
        InvalidInput: a metric, a budget or an executor that can't be used, or the result of another
            sweep to resume.
        OutOfResources: not even one edited forward fits into the budget.
    """
    batches = tuple(model.check(*_inputs(model, tokens), mask=mask))
    ways = Ways(model)
    items = items_of(ways, edits)
    looked_at = on_cpu(batches)
    check_items(ways, looked_at, items)
    check_metric(metric, model, looked_at[-1])
    run_by, worker = executor_of(executor), Worker(ways, Budget.of(model, memory))
    table = Table(model, batches, items, metric)
    table.resume(resume)
    n = len(batches[0].ids)
    whole = Job(tuple(range(n)), batches, metric, tuple(items), n)
    together = worker.footprint(whole).prompts(worker.budget)
    jobs = table.left_of(jobs_of(batches, items, metric, together))
    for job in jobs:
        worker.copies(job)
    try:
        for outcome in run_by(jobs, worker):
            table.fill(outcome)
            if progress is not None:
                progress(int(table.done.sum()), table.done.numel())
            if cancelled is not None and cancelled():
                break
    except KeyboardInterrupt as error:
        raise Interrupted(table.result()) from error
    except Exception as error:
        setattr(error, "result", table.result())  # noqa: B010 - also on another library's
        raise
    return table.result()


def _inputs(model: Network, tokens: Any) -> tuple[Any, ...]:  # noqa: ANN401 - checked by the model
    """What the model is called with."""
    if len(model.stacks) == 1:
        return (tokens,)
    if isinstance(tokens, tuple) and len(tokens) == len(model.stacks):
        return tokens
    raise InvalidInput("This model reads two inputs: give interp.sweep the tuple (source, target).")
