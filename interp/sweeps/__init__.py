"""Many edits of the same prompts: one baseline forward, and of each edited one only the rest.

:func:`interp.sweep` is the entry. A case is what is edited together; a batched forward runs several
cases as copies of one batch, restarted where they first differ from the baseline.
"""

from interp.sweeps.executors import Executor, Outcome, local

__all__ = ["Executor", "Outcome", "local"]
