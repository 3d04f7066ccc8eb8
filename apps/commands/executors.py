"""The executor that ``--executor`` and the options of its workers choose."""

from collections.abc import Generator
from contextlib import contextmanager
from math import inf
from typing import Any

import interp
from apps.commands.options import ExecutorName
from interp.errors import InvalidInput
from interp.executors import Processes, Ray


@contextmanager
def executor_of_options(
    executor: str | None,
    workers: int | None = None,
    address: str | None = None,
    job_timeout: float | None = None,
) -> Generator[None]:
    """Let the sweeps and passes of a block use an executor, which is closed at its end.

    Args:
        executor: the name of an executor; ``None`` for commands that use none.
        workers: number of workers.
        address: address of a Ray cluster.
        job_timeout: seconds within which a worker must answer; infinite for any time, ``None`` for
            the executor's default.

    Raises:
        InvalidInput: an option has no effect on this executor.
    """
    name = executor or ExecutorName.LOCAL
    for option, value in (("workers", workers), ("job-timeout", job_timeout)):
        if value is not None and name == ExecutorName.LOCAL:
            raise InvalidInput(
                f"--{option} {value:g} needs --executor processes or --executor ray."
            )
    if address is not None and name != ExecutorName.RAY:
        raise InvalidInput(f"--address {address} needs --executor ray.")
    if name == ExecutorName.LOCAL:
        yield
        return
    how: dict[str, Any] = {}
    if job_timeout is not None:
        how["job_timeout"] = None if job_timeout == inf else job_timeout
    is_ray = name == ExecutorName.RAY
    pool = Ray(workers, address=address, **how) if is_ray else Processes(workers, **how)
    with pool, interp.use(executor=pool):
        yield
