"""The devices named on the command line, checked to be available; free memory."""

from typing import Any

import torch

from interp.errors import InvalidInput
from interp.execution import free_bytes
from interp.loading import AUTO
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


def loading_options(device: str, kernel: str = DEFAULT) -> dict[str, Any]:
    """The arguments of :func:`interp.load` for ``--device`` and ``--kernel``.

    Args:
        device: a device; ``balanced``, for layers on all GPUs; or several devices, with commas.
        kernel: as for :func:`interp.load`.

    Raises:
        InvalidInput: a device is not available, or can't hold tensors.
    """
    if device != BALANCED and "," not in device:
        return {"device": parse_device(device), "kernel": kernel}
    names = BALANCED if device == BALANCED else [name.strip() for name in device.split(",")]
    # Packed weights, which "auto" may choose, are of a model on one CPU.
    return {"device_map": names, "kernel": DEFAULT if kernel == AUTO else kernel}
