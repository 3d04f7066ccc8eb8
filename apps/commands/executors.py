"""The executor that ``--executor``, ``--workers`` and ``--address`` choose."""

from collections.abc import Generator
from contextlib import contextmanager

import interp
from apps.commands.options import ExecutorName
from interp.errors import InvalidInput
from interp.executors import Processes, Ray


@contextmanager
def executor_of_options(
    executor: str | None, workers: int | None = None, address: str | None = None
) -> Generator[None]:
    """Let the sweeps and passes of a block use an executor, which is closed at its end.

    Args:
        executor: the name of an executor; ``None`` for commands that use none.
        workers: number of workers.
        address: address of a Ray cluster.

    Raises:
        InvalidInput: an option has no effect on this executor.
    """
    name = executor or ExecutorName.LOCAL
    if workers is not None and name == ExecutorName.LOCAL:
        raise InvalidInput(f"--workers {workers} needs --executor processes or --executor ray.")
    if address is not None and name != ExecutorName.RAY:
        raise InvalidInput(f"--address {address} needs --executor ray.")
    if name == ExecutorName.LOCAL:
        yield
        return
    pool = Ray(workers, address=address) if name == ExecutorName.RAY else Processes(workers)
    with pool, interp.use(executor=pool):
        yield
