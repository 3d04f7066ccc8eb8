"""Devices: the default device, and moving a model to a device.

A model of this package runs on a single device; functions that distribute one over several devices
are refused.
"""
# ruff: noqa: T201 - positional flags and prints, as in TransformerLens

import os
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Never, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from interp.errors import InvalidInput, shorten

ALLOW_MPS = "TRANSFORMERLENS_ALLOW_MPS"
"""The environment variable that allows MPS as the default device."""
GIBIBYTE = 2**30


@runtime_checkable
class ModelWithCfg(Protocol):
    """A model with a configuration ``cfg`` that can be moved."""

    cfg: Any

    def state_dict(self) -> dict[str, Tensor]:
        """The weights by name."""
        ...

    def to(self, device_or_dtype: Any) -> Any:
        """Move or cast the model."""
        ...


def get_device() -> str:
    """``cuda`` if available, ``mps`` if allowed (TRANSFORMERLENS_ALLOW_MPS=1), else ``cpu``."""
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available() and os.environ.get(ALLOW_MPS) == "1":
        return "mps"
    return "cpu"


def warn_if_mps(device: str | torch.device) -> None:
    """Warn that results on MPS may be wrong, unless TRANSFORMERLENS_ALLOW_MPS=1."""
    if torch.device(device).type == "mps" and os.environ.get(ALLOW_MPS) != "1":
        warnings.warn(
            f"PyTorch {torch.__version__} may compute wrong numbers on MPS without an error. "
            f"Compare with the CPU; {ALLOW_MPS}=1 hides this warning.",
            UserWarning,
            stacklevel=2,
        )


def move_to_and_update_config(
    model: Any,
    device_or_dtype: torch.device | str | torch.dtype,
    print_details: bool = True,
) -> Any:
    """Move a model to a device or change its dtype, and update ``model.cfg``."""
    if isinstance(device_or_dtype, torch.dtype):
        if hasattr(model.cfg, "dtype"):
            model.cfg.dtype = device_or_dtype
        message = f"Changing model dtype to {device_or_dtype}"
    else:
        warn_if_mps(device_or_dtype)
        is_device = isinstance(device_or_dtype, torch.device)
        model.cfg.device = device_or_dtype.type if is_device else device_or_dtype
        message = f"Moving model to device:  {model.cfg.device}"
    if print_details:
        print(message)
    return nn.Module.to(model, device_or_dtype)


def print_gpu_mem(step_name: str = "") -> None:
    """Print the memory that tensors take on the GPU, in GiB."""
    allocated = torch.cuda.memory_allocated() / GIBIBYTE
    print(f"{step_name} ~ {round(allocated, 2)} GiB allocated on GPU.")


def is_library_available(name: str) -> bool:
    """Whether a package can be imported, without importing it."""
    return find_spec(name) is not None


@contextmanager
def temporarily_swap_parameter(parameter: Any, new_value: Any) -> Any:
    """A context in which a parameter has other values, which are always reset on exit.

    Raises:
        InvalidInput: it is not a parameter, or the values have another shape or dtype.
    """
    matches = isinstance(parameter, nn.Parameter) and isinstance(new_value, Tensor)
    if not matches or (new_value.shape, new_value.dtype) != (parameter.shape, parameter.dtype):
        raise InvalidInput(
            "temporarily_swap_parameter takes a parameter and a tensor of its shape and dtype; got "
            f"{shorten(parameter)} and {shorten(new_value)}."
        )
    before = parameter.detach().clone()
    try:
        parameter.data.copy_(new_value)
        yield parameter
    finally:
        parameter.data.copy_(before)


def get_best_available_device(cfg: Any) -> torch.device:
    """The device of a configuration."""
    return torch.device(cfg.device)


def get_device_for_block_index(
    index: int,  # noqa: ARG001 - all blocks are on one device
    cfg: Any,
    device: torch.device | str | None = None,
) -> torch.device:
    """The device of a block, which is the same for all blocks."""
    return torch.device(cfg.device if device is None else device)


def _not_provided(name: str, advice: str) -> Callable[..., Never]:
    """A function that is not provided: calling it raises an error."""

    def refused(*args: object, **kwargs: object) -> Never:  # noqa: ARG001
        raise InvalidInput(f"interp.compat has no {name}: {advice}")

    refused.__name__ = refused.__qualname__ = name
    refused.__doc__ = f"Not provided: {advice}"
    return refused


_ONE_DEVICE = "a model runs on one device; move it with model.to(device)."
calculate_available_device_cuda_memory = _not_provided(
    "calculate_available_device_cuda_memory", "torch.cuda.mem_get_info(i) has it."
)
count_unique_devices = _not_provided("count_unique_devices", _ONE_DEVICE)
determine_available_memory_for_available_devices = _not_provided(
    "determine_available_memory_for_available_devices", "torch.cuda.mem_get_info(i) has it."
)
find_embedding_device = _not_provided("find_embedding_device", _ONE_DEVICE)
get_best_available_cuda_device = _not_provided("get_best_available_cuda_device", _ONE_DEVICE)
resolve_device_map = _not_provided("resolve_device_map", _ONE_DEVICE)
sort_devices_based_on_available_memory = _not_provided(
    "sort_devices_based_on_available_memory", _ONE_DEVICE
)
clear_huggingface_cache = _not_provided(
    "clear_huggingface_cache",
    "it would delete every model and dataset of this user; run `hf cache delete`, which asks.",
)
