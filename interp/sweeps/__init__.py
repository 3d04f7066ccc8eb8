"""Many edits of the same prompts: one baseline forward, and only the rest of each edited one.

:func:`interp.sweep` is the entry point. A case is a set of edits that are applied together; a
batched forward runs several cases as copies of one batch, restarted where they first differ from
the baseline.
"""

from interp.sweeps.executors import Executor, Outcome, local

__all__ = ["Executor", "Outcome", "local"]
