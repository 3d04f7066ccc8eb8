"""The folder of the numbers of each prompt: a Parquet file per part, and an index of them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from analyses.run_in_parts.computed import Computed, Numbers
from interp.errors import InvalidInput, OutOfResources, reason
from interp.io import UNREADABLE, build, read_json, write_text_whole, write_whole
from interp.metrics import relative_rounding
from interp.prompts import Prompt

INDEX = "_parts.json"
"""The name of the index; pandas and pyarrow ignore files that begin with ``_``."""
MAX_BYTES = 2**28


def digest_of(items: Sequence[Any]) -> str:
    """SHA-256 of the items of a part."""

    def plain(item: Any) -> Any:  # noqa: ANN401 - as given
        if isinstance(item, Tensor):
            return item.tolist()
        if isinstance(item, Prompt):
            return item.fields()
        return [plain(each) for each in item] if isinstance(item, list | tuple) else item

    return hashlib.sha256(repr([plain(item) for item in items]).encode()).hexdigest()


@dataclass(frozen=True)
class Part:
    """A file of numbers.

    Attributes:
        prompts: SHA-256 of the prompts.
        numbers: SHA-256 of the file.
        noise: as in :class:`Numbers`.
        metric_sum: likewise.
    """

    prompts: str
    numbers: str
    noise: float
    metric_sum: float | None


@dataclass(frozen=True)
class Index:
    """The contents of the index file.

    Attributes:
        size: number of prompts in a part.
        depends: what the numbers of the first part depend on besides its prompts.
        parts: the parts that are there.
    """

    size: int
    depends: dict[str, Any]
    parts: tuple[Part, ...] = ()


@dataclass
class WrittenParts:
    """The parts that are there, which are read or written in turn.

    Attributes:
        folder: the folder.
        index: what is in it.
        at: number of the part that comes next.
    """

    folder: Path
    index: Index
    at: int = 0

    @classmethod
    def open(cls, folder: Path, size: int, *, resume: bool) -> "WrittenParts":
        """A folder without files, which is made if it is not there; or that of an earlier call.

        Raises:
            InvalidInput: it can't be used.
        """
        try:
            folder.mkdir(exist_ok=True)
            has_files = any(folder.iterdir())
        except OSError as error:
            raise InvalidInput(f"{folder} can't be used: {reason(error)}") from error
        if not has_files:
            return cls(folder, Index(size, {}))
        if not resume:
            raise InvalidInput(
                f"{folder} has files already: give a new folder, or resume=True (--resume) to "
                "continue with them."
            )
        try:
            index = build(Index, read_json(folder / INDEX, MAX_BYTES), "it")
        except (*UNREADABLE, InvalidInput) as error:
            raise InvalidInput(
                f"{folder / INDEX} can't be read ({reason(error)}), so nothing can be resumed: "
                "give a new folder."
            ) from error
        if index.size != size:
            raise InvalidInput(
                f"The parts in {folder} have {index.size} prompts each, not {size}: give size="
                f"{index.size}, or a new folder."
            )
        return cls(folder, index)

    def next(self, digest: str) -> Numbers | None:
        """The numbers of the next part; ``None`` if they are not there.

        Raises:
            InvalidInput: those there are of other prompts, or damaged.
        """
        if self.at == len(self.index.parts):
            return None
        part, path = self.index.parts[self.at], self._path(self.at)
        if part.prompts != digest:
            raise InvalidInput(
                f"{path} has the numbers of other prompts: give those of the earlier call, or a "
                "new folder."
            )
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InvalidInput(f"{path} can't be read: {reason(error)}") from error
        if hashlib.sha256(content).hexdigest() != part.numbers:
            raise InvalidInput(f"{path} is damaged: give a new folder.")
        frame = pd.read_parquet(BytesIO(content))
        frame = frame.assign(prompt=frame["prompt"] - self.at * self.index.size)
        self.at += 1
        return Numbers(frame, part.noise, part.metric_sum)

    def check_or_write(self, digest: str, stored: Numbers | None, computed: Computed) -> None:
        """Write the numbers of a part, or check that they are those that were there.

        Args:
            digest: the hash of its prompts.
            stored: the numbers that were there, if any.
            computed: the part.

        Raises:
            InvalidInput: those that were there are of another call.
            OutOfResources: a file can't be written.
        """
        if stored is None:
            self._write(digest, computed)
            return
        now, then = computed.depends_on(), self.index.depends
        differing = [name for name, value in now.items() if then.get(name) != value]
        tolerance = relative_rounding(getattr(torch, computed.provenance.dtype))
        if differing or not _are_close(stored.frame, computed.numbers.frame, tolerance):
            what = f" ({', '.join(differing)} differ)" if differing else ""
            raise InvalidInput(
                f"{self.folder} has the numbers of another call{what}: give the same model, "
                "analysis and settings as then, or a new folder."
            )

    def check_end(self) -> None:
        """Check that all parts that are there were read.

        Raises:
            InvalidInput: there are more, of prompts that were not given.
        """
        if self.at < len(self.index.parts):
            raise InvalidInput(
                f"{self._path(self.at)} has the numbers of more prompts than were given: give "
                "those of the earlier call, or a new folder."
            )

    def _write(self, digest: str, computed: Computed) -> None:
        path, numbers = self._path(self.at), computed.numbers
        frame = numbers.frame
        numbered = frame.assign(prompt=frame["prompt"] + self.at * self.index.size)
        content = numbered.to_parquet(index=False)
        digest_of_file = hashlib.sha256(content).hexdigest()
        part = Part(digest, digest_of_file, numbers.noise, numbers.metric_sum)
        depends = self.index.depends or computed.depends_on()
        self.index = replace(self.index, depends=depends, parts=(*self.index.parts, part))
        try:
            write_whole(path, lambda aside: aside.write_bytes(content))
            write_text_whole(self.folder / INDEX, json.dumps(asdict(self.index), indent=1))
        except OSError as error:
            raise OutOfResources(f"{path} can't be written: {reason(error)}") from error
        self.at += 1

    def _path(self, number: int) -> Path:
        return self.folder / f"prompts-{number * self.index.size:010d}.parquet"


def _are_close(then: pd.DataFrame, now: pd.DataFrame, tolerance: float) -> bool:
    """Whether two tables have the same rows, and numbers that are equal within rounding."""
    if [*then] != [*now] or len(then) != len(now):
        return False
    for name in then:
        if not pd.api.types.is_float_dtype(then[name]):
            if [*then[name]] != [*now[name]]:
                return False
            continue
        first, second = (frame[name].to_numpy(dtype=float) for frame in (then, now))
        largest = max(1.0, np.abs(np.nan_to_num(first)).max(initial=0.0))
        if not np.allclose(first, second, rtol=0, atol=tolerance * largest, equal_nan=True):
            return False
    return True
