"""The devices named on the command line, and models on them; free memory."""

from typing import Any

import torch

import interp
from apps.torchrun import TENSOR_PARALLEL
from interp.errors import InvalidInput
from interp.execution import free_bytes
from interp.loading import AUTO, load
from interp.model import DEFAULT
from interp.placement import BALANCED


def default_device() -> str:
    """``cuda`` if a GPU is available, else ``cpu``."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def free_memory() -> int:
    """The memory of this machine that is free, in bytes."""
    return free_bytes(torch.device("cpu"))


def default_budget(free: int) -> int:
    """What the explorer may keep beside its models, of so much free memory: a quarter of it."""
    return free // 4


def parse_device(name: str) -> torch.device:
    """The device of a name.

    Raises:
        InvalidInput: the device is not available, or can't hold tensors.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"--device {name!r} can't be used: {reason}") from error
    if device.type == "meta":
        raise InvalidInput("--device 'meta' can't compute; use cpu or cuda.")
    return device


def load_on(
    device: str, name: str, *, kernel: str = DEFAULT, dtype: torch.dtype | None = None
) -> interp.Transformer:
    """Load a model for ``--device``, ``--kernel`` and ``--dtype``.

    Args:
        device: as for :func:`loading_options`; or ``tensor-parallel``, for the share that this
            process has of a model that processes of torchrun divide.
        name: the model.
        kernel: as for :func:`interp.load`.
        dtype: the data type to compute in; ``None`` means that of the model.

    Raises:
        InvalidInput: as for :func:`loading_options` and :func:`interp.parallel`.
        ModelLoadError: the model can't be loaded.
    """
    if device != TENSOR_PARALLEL:
        return load(name, dtype=dtype, **loading_options(device, kernel))
    if kernel not in (AUTO, DEFAULT):
        raise InvalidInput(f"--kernel {kernel} has no effect on --device {TENSOR_PARALLEL}.")
    return interp.parallel(name, dtype=dtype)


def loading_options(device: str, kernel: str = DEFAULT) -> dict[str, Any]:
    """The arguments of :func:`interp.load` for ``--device`` and ``--kernel``.

    Args:
        device: a device; ``balanced``, for layers on all GPUs; or several devices, with commas.
        kernel: as for :func:`interp.load`.

    Raises:
        InvalidInput: a device is not available, or can't hold tensors; or the command can't be run
            by processes that divide a model.
    """
    if device == TENSOR_PARALLEL:
        raise InvalidInput(
            f"--device {TENSOR_PARALLEL} is for commands of analyses and harvest: here, each "
            "process would write."
        )
    if device != BALANCED and "," not in device:
        return {"device": parse_device(device), "kernel": kernel}
    names = BALANCED if device == BALANCED else [name.strip() for name in device.split(",")]
    # Packed weights, which "auto" may choose, are of a model on one CPU.
    return {"device_map": names, "kernel": DEFAULT if kernel == AUTO else kernel}
