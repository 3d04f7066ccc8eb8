"""What runs and sweeps take in memory, before they are computed."""

from interp.estimates.runs import Estimate, estimate, refuse_too_large
from interp.estimates.sweeps import estimate_sweep

__all__ = ["Estimate", "estimate", "estimate_sweep", "refuse_too_large"]
