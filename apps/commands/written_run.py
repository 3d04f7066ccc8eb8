"""A run that was written, read from its ``run.json`` so that it can be run again."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from analyses.effects import Progress
from apps.commands import COMMANDS
from apps.commands.analysis_run import AnalysisRun, Settings, run_analysis
from apps.commands.command import parsed, question_of
from apps.commands.outputs import describe, tables
from interp.errors import InvalidInput, reason, shorten
from interp.files import UNREADABLE, read_file_or_pipe
from interp.json_text import parse_json
from interp.text.prompts import path_of_prompts, read_prompt_file

FILE = "run.json"
MAX_BYTES = 2**26
COMPARED = (
    *("provenance.weights", "provenance.tokens", "provenance.dtype", "provenance.products"),
    *("code.version", "code.commit", "code.changed", "device", "threads", "kernels", "versions"),
)
"""What is said of a repeated run where it is not as it was."""

SETTINGS = ("model", "device", "dtype", "seed", "rows", "memory")
"""Options that all commands have, and that numbers depend on."""


@dataclass(frozen=True, eq=False)
class WrittenRun:
    """A run that was written.

    Attributes:
        file: its ``run.json``.
        contents: of it.
    """

    file: Path
    contents: dict[str, Any]

    @property
    def words(self) -> list[str]:
        """Its command, as a shell splits it."""
        return shlex.split(self.contents["command"])

    @property
    def name(self) -> str:
        """Of its command."""
        return self.words[1]

    def again(self, progress: Progress | None = None, **others: str | None) -> AnalysisRun:
        """Run it again, in as much memory as then.

        Args:
            progress: called with what is done and the total.
            others: settings to run it with in place of its own, unless ``None``.

        Raises:
            InvalidInput: its command, its prompts or a setting can't be used now.
        """
        command = next((one for one in COMMANDS if question_of(one).name == self.name), None)
        if command is None:
            raise InvalidInput(f"{self.file}: this version of interp has no command {self.name}.")
        options = parsed(command, self.words[2:], str(self.file))
        question = question_of(command)
        own = {name: options[name] for name in question.parameters}
        how: dict[str, Any] = {name: options[name] for name in SETTINGS}
        how |= {name: value for name, value in others.items() if value is not None}
        budget = self.contents.get("budget")
        with TemporaryDirectory() as folder:
            prompts = self._prompts(options.get("prompts"), Path(folder))
            settings = Settings(question, prompts=prompts, options=own, **how)
            return run_analysis(settings, progress, budget=budget)

    def _prompts(self, source: str | None, folder: Path) -> str | None:
        """The prompts of then: their file if it is unchanged, else those that the run holds."""
        then = self.contents.get("prompts")
        if source is None or then is None:
            return source
        if path_of_prompts(source).is_file() and read_prompt_file(source).sha256 == then["sha256"]:
            return source
        if then.get("prompts") is None:
            raise InvalidInput(
                f"The prompts {source} are missing or have changed since {self.file} was written, "
                "and they were too many to be held in it."
            )
        file = folder / "prompts.jsonl"
        lines = (json.dumps(prompt, ensure_ascii=False) for prompt in then["prompts"])
        file.write_text("\n".join(lines), encoding="utf-8")
        return str(file)

    def compared(self, again: AnalysisRun) -> Iterator[tuple[str, str, bool]]:
        """Of each table beside ``run.json``: its name, how it compares, and whether it is equal.

        Raises:
            InvalidInput: there are none.
        """
        new, found = tables(again), False
        for file in sorted(self.file.parent.glob("*.parquet")):
            if file.stem in new:
                found = True
                verdict = difference(pd.read_parquet(file), new[file.stem])
                yield file.stem, verdict or "the same numbers, bit for bit", not verdict
        if not found:
            raise InvalidInput(f"{self.file.parent} holds no table of this run to compare with.")


def read_run(path: Path) -> WrittenRun:
    """The run of a ``run.json``, or of a folder that holds one.

    Raises:
        InvalidInput: there is none, or it is damaged.
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
    return WrittenRun(file, contents)


def difference(then: pd.DataFrame, now: pd.DataFrame) -> str:
    """In what two tables differ; ``""`` if they are equal."""
    if [*then.columns] != [*now.columns] or len(then) != len(now):
        return (
            f"{len(then)} rows of {', '.join(then.columns)} then, {len(now)} of "
            f"{', '.join(now.columns)} now"
        )
    found: list[str] = []
    for name in then.columns:
        old, new = then[name], now[name]
        if old.equals(new.astype(old.dtype) if old.dtype != new.dtype else new):
            continue
        if pd.api.types.is_float_dtype(old) and pd.api.types.is_float_dtype(new):
            largest, scale = (old - new).abs().max(), old.abs().max()
            found.append(f"{name} by up to {largest:.2g} (values up to {scale:.3g})")
        else:
            rows = int((old.astype(str) != new.astype(str)).sum())
            found.append(f"{name} in {rows} of {len(old)} rows")
    return f"differs: {'; '.join(found)}" if found else ""


def what_differs(then: dict[str, Any], again: AnalysisRun) -> dict[str, tuple[Any, Any]]:
    """What the numbers depend on that is not as it was, by its name in ``run.json``."""
    now = json.loads(json.dumps(describe(again)))
    both = {name: (_value(then, name), _value(now, name)) for name in COMPARED}
    return {name: values for name, values in both.items() if values[0] != values[1]}


def _value(contents: dict[str, Any], name: str) -> Any:  # noqa: ANN401 - any JSON
    """A value by its path, such as ``provenance.weights``; ``None`` without it."""
    value: Any = contents
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
