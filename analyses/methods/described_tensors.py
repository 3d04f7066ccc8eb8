"""Files of named tensors and a JSON object that describes them: safetensors with a checksum.

A tuned lens, the state of its training and a scan that was stopped are such files.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from torch import Tensor

from interp.errors import InvalidInput, OutOfResources, reason
from interp.io import (
    DAMAGED,
    as_path,
    is_file,
    parse_json,
    read_header,
    save_tensors,
    verify_checksum,
    without_version,
    write_whole,
)

T = TypeVar("T")


@dataclass(frozen=True)
class FileKind:
    """One kind of these files.

    Attributes:
        entry: the entry of the metadata that holds the description.
        version: of the format.
        content: what a file holds, for errors.
        writer: the call that writes one, for errors.
    """

    entry: str
    version: int
    content: str
    writer: str

    def write(
        self, path: str | Path, description: Mapping[str, Any], tensors: dict[str, Tensor]
    ) -> None:
        """Write a file atomically.

        Raises:
            InvalidInput: the path is that of a folder, or its folder does not exist.
            OutOfResources: the file can't be written.
        """
        path = as_path(path)
        metadata = {self.entry: json.dumps({"version": self.version, **description})}
        try:
            if path.is_dir() or not path.parent.is_dir():
                raise InvalidInput(
                    f"{path} should be a file in an existing folder; create it first."
                )
            write_whole(path, lambda aside: save_tensors(tensors, aside, metadata))
        except OSError as error:
            raise OutOfResources(f"{path} can't be written: {reason(error)}.") from error

    def read(
        self,
        path: str | Path,
        make: Callable[[object, dict[str, Tensor]], T],
        device: torch.device | None = None,
    ) -> T:
        """What ``make(description, tensors)`` makes of a file, whose tensors are on ``device``.

        Raises:
            InvalidInput: there is no such file; it is damaged, of another kind or version; or
                ``make`` raised a KeyError or a ValueError.
        """
        path = as_path(path)
        if not is_file(path):
            raise InvalidInput(f"{path} is not a file; {self.writer} writes one.")
        try:
            header = read_header(path)
            verify_checksum(path, header)
            if self.entry not in header.metadata:
                raise ValueError(f"its metadata is not that of {self.content}")
            described = parse_json(header.metadata[self.entry])
            description = without_version(described, self.version, "header")
            with safe_open(path, framework="pt", device=str(device or "cpu")) as file:
                tensors = {name: file.get_tensor(name).clone() for name in header.entries}
            return make(description, tensors)
        except (*DAMAGED, KeyError) as error:
            raise InvalidInput(
                f"{path} is not what {self.writer} writes: {reason(error)}."
            ) from error
