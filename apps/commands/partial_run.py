"""The partial results that a run keeps during a sweep, from which a stopped run is resumed.

A sweep, or a pass over a corpus, runs in slices: it is cancelled after some seconds, its partial
result is written beside the output folder, and it is resumed. The numbers stay the same, bit for
bit, as long as the forwards may use the same memory; so that number is written too. A training is
not cancelled: it gives its state after each step, which is written now and then.

    .NAME.interp-kept/run.json             what is computed, and the memory
    .NAME.interp-kept/sweep.safetensors    what is done: cells, texts, or steps
"""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import interp
from analyses.results import Progress, Result
from analyses.train_lens import Training
from apps.commands.inputs import Inputs
from apps.torchrun import agreed, is_first
from interp.errors import InterpError, InvalidInput, WorkerFailed, reason, shorten
from interp.executors import current_threads, set_threads_of_workers, start_workers
from interp.io import UNREADABLE, as_progress, beside, build, read_json, refuse_link, write_whole

SLICE = 10.0
"""Least duration of a slice, in seconds."""
PREPARATIONS = 20
"""Least duration of a slice, as a multiple of the time that a resumed analysis takes to prepare."""
MAX_BYTES = 2**20
MAX_BUDGET = 2**60


class Partial(Protocol):
    """A partial result that files can hold, such as :class:`interp.Sweep`."""

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        ...

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote."""
        ...


@dataclass(frozen=True)
class Contents:
    """The contents of the file beside a partial sweep.

    Attributes:
        computed: as for :class:`PartialRun`.
        budget: the memory in bytes that its forwards could use.
        threads: threads of PyTorch that they used; of workers, in each.
    """

    computed: dict[str, Any]
    budget: int
    threads: int | None = None


@dataclass(frozen=True)
class PartialRun:
    """The files that let one stopped run be resumed.

    Attributes:
        folder: the folder of these files.
        computed: what the numbers depend on, as plain data; a run can be resumed only by one for
            which this is equal.
        kind: the class of the partial result.
    """

    folder: Path
    computed: dict[str, Any]
    kind: type[Partial] = interp.Sweep

    @classmethod
    def beside(
        cls, out: Path, computed: dict[str, Any], kind: type[Partial] = interp.Sweep
    ) -> "PartialRun":
        """The partial run of the output folder ``out``."""
        return cls(beside(out.resolve(), "kept"), json.loads(json.dumps(computed)), kind)

    @property
    def exists(self) -> bool:
        """Whether a stopped run left a partial result.

        Raises:
            OutOfResources: the folder is a link.
        """
        refuse_link(self.folder)
        return (self.folder / "sweep.safetensors").is_file()

    def read(self) -> tuple[Partial, int]:
        """Read the partial result, and the memory in bytes that its forwards could use.

        Workers that are started later get the threads that its forwards used, which affect
        rounding.

        Raises:
            InvalidInput: the files belong to a run with other settings, or can't be read.
        """
        file = self.folder / "run.json"
        try:
            contents = build(Contents, read_json(file, MAX_BYTES), "it")
        except (*UNREADABLE, InterpError) as error:
            raise InvalidInput(
                f"{file} can't be read: {reason(error).rstrip('.')}. Leave out --resume."
            ) from error
        if not 0 < contents.budget < MAX_BUDGET:
            raise InvalidInput(
                f"{file} has a budget of {shorten(contents.budget)} bytes. Leave out --resume."
            )
        computed, budget = contents.computed, contents.budget
        for name in sorted({*computed, *self.computed}):
            then, now = computed.get(name), self.computed.get(name)
            if then != now:
                raise InvalidInput(
                    f"The stopped run in {self.folder} had {name} {shorten(then)}, this one has "
                    f"{shorten(now)}. Give the same, or leave out --resume to start from the "
                    "beginning."
                )
        if contents.threads is not None:
            set_threads_of_workers(contents.threads)
        return self.kind.load(self.folder / "sweep.safetensors"), budget

    def write(self, sweep: Partial, budget: int) -> None:
        """Write a partial result; a process killed meanwhile leaves the previous one intact.

        Of several processes of torchrun, the first writes it.

        Raises:
            OutOfResources: the files can't be written.
        """
        if not is_first():
            return
        refuse_link(self.folder)
        self.folder.mkdir(exist_ok=True)
        contents = {"computed": self.computed, "budget": budget, "threads": current_threads()}
        text = json.dumps(contents, indent=1)
        write_whole(self.folder / "run.json", lambda path: path.write_text(text, encoding="utf-8"))
        sweep.save(self.folder / "sweep.safetensors")

    def remove(self) -> None:
        """Delete the files, after the run has finished."""
        if self.folder.exists():
            shutil.rmtree(self.folder)


class Slice:
    """The time limit of one slice, for ``cancelled=`` of a sweep: True when the time is over.

    Args:
        report: called with the progress of the sweep, if given.
    """

    def __init__(self, report: Progress | None = None) -> None:
        self._report = as_progress(report, "cells")
        self._began = time.monotonic()
        self._prepared: float | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the sweep has made progress, so that its partial result can be resumed."""
        return self._prepared is not None

    def progress(self, done: int, total: int) -> None:
        """Report progress; the preparation ends before the first."""
        if self._prepared is None:
            self._prepared = time.monotonic() - self._began
        if self._report is not None:
            self._report(done, total)

    def __call__(self) -> bool:
        """Whether the sweep should stop after this forward; never while it is prepared."""
        elapsed = time.monotonic() - self._began
        prepared = self._prepared
        return prepared is not None and elapsed > max(SLICE, PREPARATIONS * prepared)


def run_in_slices(
    analysis: Callable[[Inputs], Result],
    inputs: Inputs,
    partial: PartialRun,
    *,
    resume: bool,
    until_now: bool = False,
) -> Result:
    """Run an analysis and keep its partial result while it runs.

    Args:
        analysis: function of the inputs alone.
        inputs: the inputs, with a budget.
        partial: where partial results are kept.
        resume: whether to start from the partial result there.
        until_now: whether to return the result of what is done there, instead of continuing.

    Raises:
        KeyboardInterrupt: it was interrupted; the message says how much was kept.
        WorkerFailed: a worker failed; likewise.
    """
    sweep, budget = None, int(inputs.memory or inputs.budget or 0)
    if resume and partial.exists:
        sweep, budget = partial.read()
    if until_now:
        return analysis(replace(inputs, budget=budget, resume=sweep, cancelled=lambda: True))
    start_workers(inputs.model)  # beforehand, as a slice is as long as many preparations
    while True:
        clock = Slice(inputs.progress)
        is_over = agreed(clock, inputs.model)
        timed = replace(inputs, budget=budget, progress=clock.progress, cancelled=is_over)
        try:
            result = analysis(replace(timed, resume=sweep))
        except (KeyboardInterrupt, WorkerFailed) as error:
            stopped = getattr(error, "result", None)
            if stopped is None or not clock.has_begun:
                raise
            partial.write(stopped, budget)
            raise _with_advice(error, _how_much(stopped)) from error
        sweep = getattr(result, "partial", None)
        if sweep is None:
            return result
        partial.write(sweep, budget)


class Checkpoints:
    """Writes the state of a training, at most so often that writing takes a twentieth of the time.

    Args:
        partial: where it is written.
        budget: the memory that is written beside it.
    """

    def __init__(self, partial: PartialRun, budget: int) -> None:
        self._partial, self._budget = partial, budget
        self._last, self._wait = time.monotonic(), SLICE
        self.done = ""

    def __call__(self, state: Partial) -> None:
        """Write a state, if it is time to."""
        begin = time.monotonic()
        if begin - self._last < self._wait:
            return
        self._partial.write(state, self._budget)
        self._last, self.done = time.monotonic(), _how_much(state)
        self._wait = max(SLICE, PREPARATIONS * (self._last - begin))


def run_with_checkpoints(
    analysis: Callable[[Inputs], Result], inputs: Inputs, partial: PartialRun, *, resume: bool
) -> Result:
    """Run an analysis that gives its state while it runs.

    Args:
        analysis: function of the inputs alone.
        inputs: the inputs.
        partial: where the state is kept.
        resume: whether to start from the state there.

    Raises:
        KeyboardInterrupt: it was interrupted; the message says how much was kept.
    """
    state, budget = None, int(inputs.memory or inputs.budget or 0)
    if resume and partial.exists:
        state, budget = partial.read()
    checkpoints = Checkpoints(partial, budget)
    try:
        return analysis(replace(inputs, resume=state, checkpoint=checkpoints))
    except KeyboardInterrupt as error:
        if not checkpoints.done:
            raise
        raise _with_advice(error, checkpoints.done) from error


def _with_advice(error: KeyboardInterrupt | WorkerFailed, done: str) -> BaseException:
    """The error that says how much is done, and how to continue."""
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt(
            f"Interrupted with {done} done, which are kept: the same command with --resume "
            "continues from there."
        )
    return WorkerFailed(
        f"{error} {done} are done and kept: the same command with --resume computes the rest."
    )


def _how_much(partial: Any) -> str:  # noqa: ANN401 - a partial result
    """How much of the work a partial result holds."""
    if isinstance(partial, interp.Sweep):
        return f"{int(partial.done.sum())} of {partial.done.numel()} cells"
    if isinstance(partial, Training):
        return f"{len(partial.kl)} of {partial.settings.steps} steps"
    return f"{partial.n_texts} texts"
