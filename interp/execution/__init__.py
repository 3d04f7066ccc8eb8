"""Planning, executing and recording a run; text generation; provenance."""

from interp.execution.first_nan import first_nan
from interp.execution.free_bytes import fix_free_bytes, free_bytes, measured_free_bytes, size_of
from interp.execution.generate import (
    check_can_continue,
    check_temperature,
    end_tokens,
    generate,
    with_start,
)
from interp.execution.plan import Change, Plan, as_edits, place_edits, resolve_edits
from interp.execution.prepared import Options, Prepared, Start, execute, logits_of, prepare
from interp.execution.provenance import Provenance, precision, versions
from interp.execution.recorder import Recorder
from interp.execution.run import Run, run, run_edited, run_measured

__all__ = [
    "Change",
    "Options",
    "Plan",
    "Prepared",
    "Provenance",
    "Recorder",
    "Run",
    "Start",
    "as_edits",
    "check_can_continue",
    "check_temperature",
    "end_tokens",
    "execute",
    "first_nan",
    "fix_free_bytes",
    "free_bytes",
    "generate",
    "logits_of",
    "measured_free_bytes",
    "place_edits",
    "precision",
    "prepare",
    "resolve_edits",
    "run",
    "run_edited",
    "run_measured",
    "size_of",
    "versions",
    "with_start",
]
