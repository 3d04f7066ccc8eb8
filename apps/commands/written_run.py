"""A saved run, read from its ``run.json`` so that it can be repeated."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from analyses.results import Progress
from apps.commands import commands
from apps.commands.analysis_run import AnalysisRun, Settings, run_analysis
from apps.commands.outputs import describe, tables
from apps.commands.partial_run import MAX_BUDGET
from apps.commands.saved_table import saved_table
from interp.errors import InterpError, InvalidInput, reason, shorten
from interp.io import UNREADABLE, parse_json, read_file_or_pipe, value_of
from interp.loading import AUTO
from interp.model import DEFAULT
from interp.prompts import path_of_prompts, sha256_of_prompts

FILE = "run.json"
MAX_BYTES = 2**26
COMPARED = (
    *("provenance.weights", "provenance.tokens", "provenance.dtype", "provenance.products"),
    *("code.version", "code.commit", "code.changed", "device", "threads", "kernels", "versions"),
)
"""Entries of ``run.json`` that are compared when a run is repeated."""

SETTINGS = ("model", "device", "dtype", "kernel", "seed", "rows", "memory")
"""Shared options that affect the numbers."""


@dataclass(frozen=True)
class SavedPrompts:
    """The entry of ``run.json`` on prompts; see :func:`apps.commands.outputs.describe`."""

    file: str
    sha256: str
    n: int
    prompts: list[dict[str, str]] | None


@dataclass(frozen=True, eq=False)
class WrittenRun:
    """A saved run.

    Attributes:
        file: the path of its ``run.json``.
        contents: the parsed contents of that file.
        budget: bytes that its sweep could use.
        prompts: its prompts; ``None`` if it read none.
    """

    file: Path
    contents: dict[str, Any]
    budget: int | None
    prompts: SavedPrompts | None

    @property
    def words(self) -> list[str]:
        """The words of its command line."""
        return shlex.split(self.contents["command"])

    @property
    def name(self) -> str:
        """The name of its command."""
        return self.words[1]

    def again(self, progress: Progress | None = None, **others: str | None) -> AnalysisRun:
        """Repeat the run with the same memory budget, and with the kernel that it used.

        A run that names no kernel had no choice and used the default one; so does a run on another
        device or in another dtype, where weights may not be packed.

        Args:
            progress: called with ``(done, total)``.
            others: settings that replace those of the run, unless ``None``.

        Raises:
            InvalidInput: the command, the prompts or a setting can't be used any more.
        """
        spec = commands().get(self.name)
        if spec is None:
            raise InvalidInput(f"{self.file}: this version of interp has no command {self.name}.")
        options = spec.parse(self.words[2:], str(self.file))
        spec_options = {name: options[name] for name in spec.parameters}
        how: dict[str, Any] = {name: options[name] for name in SETTINGS}
        others = {name: value for name, value in others.items() if value is not None}
        if others or how["kernel"] == AUTO:
            how["kernel"] = DEFAULT
        how |= others
        with TemporaryDirectory() as folder:
            prompts = self._prompts(options.get("prompts"), Path(folder))
            parts = None if options.get("per_prompt") is None else Path(folder) / "numbers"
            settings = Settings(
                spec, prompts=prompts, options=spec_options, per_prompt=parts, **how
            )
            return run_analysis(settings, progress, budget=self.budget)

    def _prompts(self, source: str | None, folder: Path) -> str | None:
        """The prompts of the run: their file if it is unchanged, else a copy from ``run.json``."""
        then = self.prompts
        if source is None or then is None:
            return source
        if path_of_prompts(source).is_file() and sha256_of_prompts(source) == then.sha256:
            return source
        if then.prompts is None:
            raise InvalidInput(
                f"The prompts {source} are missing or have changed since {self.file} was written, "
                "and they were too large to be stored in it."
            )
        file = folder / "prompts.jsonl"
        lines = (json.dumps(prompt, ensure_ascii=False) for prompt in then.prompts)
        file.write_text("\n".join(lines), encoding="utf-8")
        return str(file)

    def compared(self, again: AnalysisRun) -> Iterator[tuple[str, str, bool]]:
        """For each table beside ``run.json``: its name, how it compares, and whether it is equal.

        Raises:
            InvalidInput: there is no table to compare, or one can't be read.
        """
        new, any_table = tables(again), False
        for file in sorted(self.file.parent.glob("*.parquet")):
            if file.stem in new:
                any_table = True
                verdict = difference(saved_table(file, new[file.stem]), new[file.stem])
                yield file.stem, verdict or "the same numbers, bit for bit", not verdict
        if not any_table:
            raise InvalidInput(f"{self.file.parent} contains no table of this run to compare with.")


def read_run(path: Path) -> WrittenRun:
    """Read the run of a ``run.json``, or of a folder that contains one.

    Raises:
        InvalidInput: the file is missing or damaged.
    """
    file = path / FILE if path.is_dir() else path
    try:
        contents = parse_json(read_file_or_pipe(file, MAX_BYTES).decode())
    except UNREADABLE as error:
        raise InvalidInput(f"{file} can't be read: {reason(error)}.") from error
    command = contents.get("command") if isinstance(contents, dict) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        words = []
    if words[:1] != ["interp"] or len(words) < 2:  # noqa: PLR2004 - interp, and a command
        raise InvalidInput(
            f'{file}: expected a "command" such as "interp ablate …", got {shorten(command)}.'
        )
    try:
        budget = value_of(int | None, contents.get("budget"), "budget")
        prompts = value_of(SavedPrompts | None, contents.get("prompts"), "prompts")
    except InterpError as error:
        raise InvalidInput(f"{file}: {error}") from error
    if budget is not None and not 0 < budget < MAX_BUDGET:
        raise InvalidInput(f"{file}: the budget {shorten(budget)} is no number of bytes.")
    return WrittenRun(file, contents, budget, prompts)


def difference(then: pd.DataFrame, now: pd.DataFrame) -> str:
    """Describe how two tables differ; ``""`` if they are equal."""
    if [*then.columns] != [*now.columns] or len(then) != len(now):
        return (
            f"{len(then)} rows of {', '.join(then.columns)} before, {len(now)} of "
            f"{', '.join(now.columns)} now"
        )
    differences: list[str] = []
    for name in then.columns:
        old, new = then[name], now[name]
        if old.equals(new.astype(old.dtype) if old.dtype != new.dtype else new):
            continue
        if pd.api.types.is_float_dtype(old) and pd.api.types.is_float_dtype(new):
            largest, scale = (old - new).abs().max(), old.abs().max()
            differences.append(f"{name} by up to {largest:.2g} (values up to {scale:.3g})")
        else:
            rows = int((old.astype(str) != new.astype(str)).sum())
            differences.append(f"{name} in {rows} of {len(old)} rows")
    return f"differs: {'; '.join(differences)}" if differences else ""


def what_differs(then: dict[str, Any], again: AnalysisRun) -> dict[str, tuple[Any, Any]]:
    """The entries of :data:`COMPARED` that have changed, as (before, now), by their names."""
    now = json.loads(json.dumps(describe(again)))
    both = {name: (_value(then, name), _value(now, name)) for name in COMPARED}
    return {name: values for name, values in both.items() if values[0] != values[1]}


def _value(contents: dict[str, Any], name: str) -> Any:  # noqa: ANN401 - any JSON
    """The value at a path such as ``provenance.weights``; ``None`` if it is missing."""
    value: Any = contents
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
