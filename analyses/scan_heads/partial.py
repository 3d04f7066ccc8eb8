"""A scan that was stopped: its numbers so far, from which it is resumed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from analyses.methods.described_tensors import FileKind
from interp.errors import InvalidInput, shorten
from interp.io import as_object

FILE = FileKind("interp.heads", 1, "a scan of heads", "PartialScan.save(path)")


@dataclass(frozen=True, eq=False)
class PartialScan:
    """The numbers of the texts that a scan has read; :func:`scan_heads` reads the others.

    Attributes:
        settings: what the numbers depend on: model, weights, settings and the texts so far.
        tensors: the numbers, by name.
    """

    settings: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def n_texts(self) -> int:
        """Number of texts that were read."""
        return int(self.tensors["counts"][0])

    def __repr__(self) -> str:
        return f"PartialScan({self.n_texts} texts of {self.settings.get('model')})"

    def save(self, path: str | Path) -> None:
        """Write the scan to a file, atomically; :meth:`load` reads it, and it can be resumed.

        Raises:
            InvalidInput: the path is that of a folder, or its folder does not exist.
            OutOfResources: the file can't be written.
        """
        FILE.write(path, {"settings": self.settings}, self.tensors)

    @classmethod
    def load(cls, path: str | Path) -> "PartialScan":
        """Read a scan that :meth:`save` wrote.

        Raises:
            InvalidInput: there is no such file, or it is damaged, of another kind or version.
        """

        def make(description: object, tensors: dict[str, Tensor]) -> PartialScan:
            settings = as_object(as_object(description, "header").get("settings"), "settings")
            if tensors.get("counts", torch.empty(0)).dtype != torch.long:
                raise ValueError("it has no counts")
            return cls(settings, tensors)

        return FILE.read(path, make)


class ScanInterrupted(KeyboardInterrupt):
    """Ctrl-C during a scan; ``result`` has the numbers of the texts that were read until then.

    ``scan_heads(..., resume=error.result)`` reads the others.
    """

    def __init__(self, result: PartialScan) -> None:
        super().__init__(
            f"The scan was stopped after {result.n_texts} texts; the same call with "
            "resume=error.result reads the others."
        )
        self.result = result

    def __reduce__(self) -> tuple[type["ScanInterrupted"], tuple[PartialScan]]:
        """Pickle the exception with its result."""
        return ScanInterrupted, (self.result,)


def check_same(partial: object, settings: dict[str, Any]) -> PartialScan:
    """Check that a partial scan is one of this model with these settings.

    Raises:
        InvalidInput: it is not; the message names what differs.
    """
    if not isinstance(partial, PartialScan):
        raise InvalidInput(
            f"resume= takes the .partial of a scan that was stopped; got {shorten(partial)}."
        )
    for name, now in settings.items():
        then = partial.settings.get(name)
        if then != now:
            raise InvalidInput(
                f"The stopped scan had {name} {shorten(then)}, this one has {shorten(now)}. Give "
                "the same, or leave out resume= to start from the beginning."
            )
    return partial
