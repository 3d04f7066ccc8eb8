"""What a run keeps while it sweeps, so that it can go on after it was stopped or killed.

A sweep runs in slices: it is cancelled after some seconds, what it has is written beside the
output folder, and it is resumed. The numbers do not depend on that, bit for bit, as long as the
memory that forwards may take is the same; so that is written too.

    .NAME.interp-kept/run.json             what is computed, and the memory
    .NAME.interp-kept/sweep.safetensors    the cells that are done
"""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import interp
from analyses.result import Result
from apps.commands.inputs import Inputs
from interp.errors import InvalidInput
from interp.files import beside, read_file_or_pipe, write_whole
from interp.json_text import parse_json

SLICE = 10.0
"""Seconds after which a sweep is written, at least."""
PREPARATIONS = 20
"""Times that a slice lasts as long as what a resumed analysis computes anew."""
MAX_BYTES = 2**20


@dataclass(frozen=True)
class Kept:
    """What is kept of one run.

    Attributes:
        folder: where it is written.
        computed: what the numbers depend on, as plain data; that of a run to go on with is equal.
    """

    folder: Path
    computed: dict[str, Any]

    @classmethod
    def beside(cls, out: Path, computed: dict[str, Any]) -> "Kept":
        """What is kept of the run that writes the folder ``out``."""
        return cls(beside(out.resolve(), "kept"), json.loads(json.dumps(computed)))

    @property
    def exists(self) -> bool:
        """Whether a run that was stopped left something."""
        return (self.folder / "sweep.safetensors").is_file()

    def read(self) -> tuple[interp.Sweep, int]:
        """The sweep, and the memory that its forwards could take.

        Raises:
            InvalidInput: it is of a run that computes something else, or can't be read.
        """
        file = self.folder / "run.json"
        try:
            kept = parse_json(read_file_or_pipe(file, MAX_BYTES).decode())
            computed, budget = kept["computed"], int(kept["budget"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"{file} can't be read: {error}. Leave out --resume.") from error
        for name in sorted({*computed, *self.computed}):
            then, now = computed.get(name), self.computed.get(name)
            if then != now:
                raise InvalidInput(
                    f"The run kept in {self.folder} had {name} {then!r}, this one has {now!r}. "
                    "Give the same, or leave out --resume to begin anew."
                )
        return interp.Sweep.load(self.folder / "sweep.safetensors"), budget

    def write(self, sweep: interp.Sweep, budget: int) -> None:
        """Keep a sweep; a process that is killed meanwhile leaves the one before.

        Raises:
            OutOfResources: it can't be written.
        """
        self.folder.mkdir(exist_ok=True)
        text = json.dumps({"computed": self.computed, "budget": budget}, indent=1)
        write_whole(self.folder / "run.json", lambda path: path.write_text(text, encoding="utf-8"))
        sweep.save(self.folder / "sweep.safetensors")

    def remove(self) -> None:
        """Remove what is kept, of a run that has ended."""
        if self.folder.exists():
            shutil.rmtree(self.folder)


class Slice:
    """The time of one slice, as ``cancelled=`` of a sweep: True when it is over."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._prepared: float | None = None

    @property
    def asked(self) -> bool:
        """Whether a sweep has asked, so that what it returns can be resumed."""
        return self._prepared is not None

    def __call__(self) -> bool:
        """Whether the sweep should stop after this forward."""
        elapsed = time.monotonic() - self._began
        if self._prepared is None:
            self._prepared = elapsed
        return elapsed > max(SLICE, PREPARATIONS * self._prepared)


def run_in_slices(
    analysis: Callable[[Inputs], Result], inputs: Inputs, kept: Kept, *, resume: bool
) -> Result:
    """The result of an analysis, of which what is done is kept as it goes.

    Args:
        analysis: of the inputs alone.
        inputs: with a budget.
        kept: where it is kept.
        resume: whether to go on from there.

    Raises:
        KeyboardInterrupt: it was interrupted; the message says what is kept.
    """
    sweep, budget = None, int(inputs.memory or inputs.budget or 0)
    if resume and kept.exists:
        sweep, budget = kept.read()
    while True:
        clock = Slice()
        try:
            result = analysis(replace(inputs, budget=budget, cancelled=clock, resume=sweep))
        except interp.Interrupted as error:
            if not clock.asked:
                raise
            kept.write(error.result, budget)
            done, total = int(error.result.done.sum()), error.result.done.numel()
            raise KeyboardInterrupt(
                f"Interrupted with {done} of {total} cells done, which are kept: the same command "
                "with --resume goes on from there."
            ) from error
        sweep = getattr(result, "partial", None)
        if sweep is None:
            return result
        kept.write(sweep, budget)
