"""What runs and sweeps take: memory, before they are computed; operations, the processor."""

from interp.estimates.machine import DispatchMode, OperationLog, processor
from interp.estimates.runs import Estimate, estimate, refuse_too_large
from interp.estimates.sweeps import estimate_sweep

__all__ = [
    "DispatchMode",
    "Estimate",
    "OperationLog",
    "estimate",
    "estimate_sweep",
    "processor",
    "refuse_too_large",
]
