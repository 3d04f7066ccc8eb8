"""The hardware that a forward runs on, and the PyTorch operations that it uses."""

import platform
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from interp.model import Network


def processor() -> str:
    """The name of the processor, or of its architecture if the system reports no name."""
    listed = Path("/proc/cpuinfo")
    if listed.exists():
        for line in listed.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def device_name(device: torch.device) -> str:
    """The name of a GPU, or of the processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor()


def operations_of_forward(model: Network) -> tuple[str, ...]:
    """The PyTorch operations that compute products and attention in a forward of two tokens.

    Args:
        model: a model that reads tokens.
    """
    with torch.no_grad(), operations_taken() as taken:
        model(*[[[0, 0]] for _ in model.stacks])
    return tuple(taken)


@contextmanager
def operations_taken() -> Generator[dict[str, None]]:
    """Record the PyTorch operations that compute products and attention within the ``with`` block.

    Yields:
        Their names, such as ``aten.addmm``, in the order in which this thread first called them;
        complete when the block ends.
    """
    with _OperationLog() as log:
        yield log.operations


class _OperationLog(TorchDispatchMode):
    """Records the PyTorch operations that compute matrix products and attention."""

    PRODUCTS = ("mm", "linear", "attention")

    def __init__(self) -> None:
        super().__init__()
        self.operations: dict[str, None] = {}
        self._seen: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's signature
        """Record the operation and call it unchanged."""
        if func not in self._seen:
            self._seen.add(func)
            name = str(func.overloadpacket)
            if any(part in name for part in self.PRODUCTS) and "reorder" not in name:
                self.operations[name] = None
        return func(*args, **(kwargs or {}))
