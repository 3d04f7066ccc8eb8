"""Commands that torchrun starts in several processes, which hold one model together.

    torchrun --nproc-per-node 2 --no-python interp ablate --model NAME --device tensor-parallel

Every process runs the whole command, as the forwards of a divided model need all of them. The first
(rank 0) alone writes files and prints. An error is printed by the process in which it happens
first; torchrun then ends the others.
"""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp.transformer import Transformer

TENSOR_PARALLEL = "tensor-parallel"
"""The value of ``--device`` by which the processes divide the model."""
LAUNCH = "torchrun --nproc-per-node N --no-python interp"
PATIENCE = timedelta(seconds=5)
"""How long torchrun's store may take to answer."""


def n_processes() -> int:
    """Number of processes in which torchrun started this command; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1")) if _is_launched() else 1


def is_first() -> bool:
    """Whether this process is the one that writes and prints."""
    return n_processes() == 1 or os.environ.get("RANK") == "0"


@contextmanager
def as_one(options: Mapping[str, Any], *, divides_work: bool) -> Generator[None]:
    """Let the processes of a block act as one: those after the first print nothing.

    Args:
        options: the options of the command.
        divides_work: whether processes that run the command at the same time share its work.

    Raises:
        InvalidInput: the processes would each do the whole; or the model can't be divided among
            processes, as there is one, or as workers are to run it.
    """
    from interp.errors import InvalidInput  # noqa: PLC0415 - imports torch

    n = n_processes()
    if options.get("device") == TENSOR_PARALLEL:
        if not _is_launched():
            raise InvalidInput(
                f"--device {TENSOR_PARALLEL} divides the model among processes, and this one was "
                f"started alone: use {LAUNCH} …"
            )
        if options.get("executor", "local") != "local":
            raise InvalidInput(
                f"--executor {options['executor']} can't be combined with --device "
                f"{TENSOR_PARALLEL}: each worker needs the whole model."
            )
    elif n > 1 and not divides_work:
        what = f"Give --device {TENSOR_PARALLEL}, by which they divide the model, or start"
        raise InvalidInput(
            f"torchrun started {n} processes of this command, and each would do all of it and "
            f"write the same files. {what if 'device' in options else 'Start'} it without torchrun."
        )
    if is_first():
        yield
        return
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        yield


def may_print(error: BaseException) -> bool:
    """Whether this process should print an error: it is the first to fail.

    One that fails later does so because of it, or in the same way. Of an interruption, which is one
    of all processes, the process that writes partial results knows most.
    """
    if n_processes() == 1:
        return True
    if isinstance(error, KeyboardInterrupt) and not is_first():
        return False
    import torch.distributed as dist  # noqa: PLC0415

    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
            *address, is_master=False, timeout=PATIENCE
        )
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return store.add(f"interp/errors/{attempt}", 1) == 1
    except RuntimeError:  # torchrun itself has ended
        return True


def agreed(decide: Callable[[], bool], model: "Transformer") -> Callable[[], bool]:
    """A decision that all processes that hold a model make alike: that of the first.

    Clocks differ, and processes that stop at different forwards would wait for one another.
    """
    from interp.tensor_parallel import ShardedTransformer  # noqa: PLC0415

    if not isinstance(model, ShardedTransformer):
        return decide
    ranks = model.ranks
    return lambda: bool(ranks.objects(decide())[0])


def _is_launched() -> bool:
    """Whether torchrun started this process; as ``torch.distributed.is_torchelastic_launched``."""
    return "TORCHELASTIC_RUN_ID" in os.environ
