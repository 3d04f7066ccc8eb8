"""Many edits of the same prompts: one baseline forward, and only the rest of each edited one.

:func:`interp.sweep` is the entry point. A case is a set of edits that are applied together; a
batched forward runs several cases as copies of one batch, restarted where they first differ from
the baseline.
"""

from interp.sweeps.batched import Baseline, BatchedForward, with_reference
from interp.sweeps.memory import Budget, Footprint, footprint, is_out_of_memory
from interp.sweeps.restart_map import RestartMap
from interp.sweeps.result import Interrupted, Sweep
from interp.sweeps.schedule import Case, Job, PlacedEdits, cases_of, groups_of, label_of
from interp.sweeps.sweep import sweep
from interp.sweeps.validate import check_cases, check_metric, check_options, on_cpu
from interp.sweeps.worker import (
    CURRENT,
    Executor,
    Outcome,
    StartedJob,
    Worker,
    jobs_within,
    local,
    logits_formed,
)

__all__ = [
    "CURRENT",
    "Baseline",
    "BatchedForward",
    "Budget",
    "Case",
    "Executor",
    "Footprint",
    "Interrupted",
    "Job",
    "Outcome",
    "PlacedEdits",
    "RestartMap",
    "StartedJob",
    "Sweep",
    "Worker",
    "cases_of",
    "check_cases",
    "check_metric",
    "check_options",
    "footprint",
    "groups_of",
    "is_out_of_memory",
    "jobs_within",
    "label_of",
    "local",
    "logits_formed",
    "on_cpu",
    "sweep",
    "with_reference",
]
