"""Where forwards of sweeps and passes run: processes of this machine, or workers of a Ray cluster.

    with interp.use(executor=interp.executors.Processes(workers=8)):
        result = analyses.ablate_heads(model, prompts)      # its sweep runs on eight workers

Each worker loads the model once. The driver decides which prompts and edits run together, as a
local sweep does, and sends them out in small parts; workers send back rows of numbers. A pass over
texts, :func:`map_batches`, is a function of batches: workers send back what it returns.
"""

from interp.executors.current import (
    by_name,
    current_name,
    current_threads,
    map_batches,
    set_threads_of_workers,
    start_workers,
    use,
)
from interp.executors.pool import WorkerPool
from interp.executors.processes import Processes
from interp.executors.ray_cluster import Ray

__all__ = [
    "Processes",
    "Ray",
    "WorkerPool",
    "by_name",
    "current_name",
    "current_threads",
    "map_batches",
    "set_threads_of_workers",
    "start_workers",
    "use",
]
