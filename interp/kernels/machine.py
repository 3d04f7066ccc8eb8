"""The hardware that a forward runs on, and the PyTorch operations that it uses."""

import platform
from pathlib import Path
from typing import Any

from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode


def processor() -> str:
    """The name of the processor, or of its architecture if the system reports no name."""
    listed = Path("/proc/cpuinfo")
    if listed.exists():
        for line in listed.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


class DispatchMode(TorchDispatchMode):
    """A dispatch mode without PyTorch's guard against its compiler, which slows every operation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled within the mode."""
        return False


class OperationLog(DispatchMode):
    """Records the PyTorch operations that compute products and attention within its ``with`` block.

    Attributes:
        operations: their names, such as ``aten.addmm``, in the order in which they were first
            called in this thread.
    """

    PRODUCTS = ("mm", "linear", "attention")

    def __init__(self) -> None:
        super().__init__()
        self.operations: dict[str, None] = {}
        self._seen: set[Any] = set()
        self._is_ended = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's signature
        """Record the operation and call it unchanged."""
        if func not in self._seen:
            self._seen.add(func)
            name = str(func.overloadpacket)
            if any(part in name for part in self.PRODUCTS) and "reorder" not in name:
                self.operations[name] = None
        return func(*args, **(kwargs or {}))

    def end(self) -> None:
        """Stop recording, which slows operations; without effect in the block of another mode."""
        innermost = _python_dispatch._get_current_dispatch_mode()  # pyright: ignore[reportPrivateUsage]
        if not self._is_ended and innermost is self:
            self._is_ended = True
            super().__exit__(None, None, None)

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401 - as of any context
        """End the log, if it has not ended."""
        if not self._is_ended:
            super().__exit__(*error)
