"""One run of an analysis, from its settings to its result."""

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import torch

import interp
from analyses import Parts, run_in_parts
from analyses.results import Progress, Result
from apps.commands.command import CommandSpec
from apps.commands.inputs import Inputs
from apps.commands.options import FILES
from apps.commands.partial_run import PartialRun, run_in_slices, run_with_checkpoints
from apps.defaults import LOGIT_DIFF, default_prompts
from apps.devices import load_on
from apps.environment import environment
from apps.report import ReportPrompt
from apps.torchrun import TENSOR_PARALLEL, n_processes
from interp.errors import InvalidInput
from interp.io import as_progress
from interp.kernels import OperationLog
from interp.loading import AUTO, kernel_of
from interp.prompts import (
    ChatRenderer,
    Prompt,
    PromptFile,
    bundled_prompts,
    iter_prompts,
    path_of_prompts,
    read_prompt_file,
    sha256_of_prompts,
)
from interp.sweeps import Budget
from interp.text import visible

METRICS_READ = {
    LOGIT_DIFF: ("target", "distractor"),
    "logit": ("target",),
    "prob": ("target",),
}
"""The fields of prompts that a metric reads."""

LOGGED = 2.0
"""Seconds for which the operations of an analysis are recorded, which makes each of them slower."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes:
        spec: the command.
        model: a bundled name, a folder or ``hub:org/name``.
        prompts: a bundled set or a file; ``None`` means the model's own set.
        options: values of the command's own options, by their Python names.
        device: the device to compute on, or several, as for :func:`apps.devices.load_on`.
        dtype: the data type to compute in; ``None`` means that of the model.
        kernel: ``default``, ``packed`` or ``auto``, as for :func:`interp.load`; of a run, the one
            that was used, or ``auto`` if there was no choice.
        seed: seed of random draws.
        rows: prompts per forward; ``None`` leaves it to the analysis.
        memory: bytes that a sweep may use; ``None`` means a share of the free memory.
        per_prompt: where the numbers of each prompt are written, part by part; ``None`` runs all
            prompts at once.
    """

    spec: CommandSpec
    model: str
    prompts: str | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    device: str = "cpu"
    dtype: str | None = None
    kernel: str = AUTO
    seed: int = 0
    rows: int | None = None
    memory: int | None = None
    per_prompt: Path | None = None

    def plain(self) -> dict[str, Any]:
        """The settings as plain data; data type, kernel, rows and memory only where given."""
        options = {
            name: str(value) if isinstance(value, StrEnum | Path) else value
            for name, value in self.options.items()
        }
        prompts = {"prompts": self.prompts} if self.spec.reads else {}
        dtype = None if self.dtype is None else str(self.dtype)
        kernel = None if self.kernel == AUTO else str(self.kernel)
        folder = None if self.per_prompt is None else str(self.per_prompt)
        how = {
            "dtype": dtype,
            "kernel": kernel,
            "rows": self.rows,
            "memory": self.memory,
            "per_prompt": folder,
        }
        return {
            "model": self.model,
            **prompts,
            **options,
            "device": self.device,
            "seed": self.seed,
            **{name: value for name, value in how.items() if value is not None},
        }

    def with_absolute_paths(self) -> dict[str, Any]:
        """As :meth:`plain`, with absolute paths."""
        files = {
            *FILES,
            "per_prompt",
            *(name for name, value in self.options.items() if isinstance(value, Path)),
        }
        return {
            name: _absolute(value) if name in files and isinstance(value, str) else value
            for name, value in self.plain().items()
        }

    def shell_command(self, settings: dict[str, Any] | None = None) -> str:
        """The shell command that repeats the run, with the settings as :meth:`plain` has them."""
        words = ["interp", self.spec.name]
        for name, value in (settings or self.plain()).items():
            option = f"--{name.replace('_', '-')}"
            if isinstance(value, bool):
                words += [option] if value else []
            else:
                values = value if isinstance(value, list) else [value]
                words += [
                    word for item in values if item is not None for word in (option, str(item))
                ]
        return shlex.join(words)


def _absolute(name: str) -> str:
    """A path as an absolute one; the name of a bundled model or prompt set stays as it is."""
    is_bundled = name in bundled_prompts() or name in interp.bundled()
    return name if is_bundled or not Path(name).exists() else str(Path(name).absolute())


@dataclass(frozen=True, eq=False)
class AnalysisRun:
    """A result with everything that its report shows.

    Attributes:
        settings: the settings, with the prompt set that was used.
        result: the result of the analysis.
        file: the prompt file; ``None`` if the analysis reads no prompts.
        prompts: the prompts as the report shows them, in the order of the result.
        environment: code, machine and kernels; see :mod:`apps.environment`.
        budget: bytes that a sweep could use.
        started: when the run began.
        seconds: how long it took.
    """

    settings: Settings
    result: Result
    file: PromptFile | None
    prompts: tuple[ReportPrompt, ...]
    environment: dict[str, Any]
    budget: int
    started: datetime
    seconds: float

    @property
    def n_prompts(self) -> int:
        """Number of prompts."""
        n = 0 if self.file is None else len(self.file.prompts)
        return self.result.n_prompts if isinstance(self.result, Parts) else n


def run_analysis(  # noqa: PLR0913 - the settings of a run, by keyword
    settings: Settings,
    progress: Progress | None = None,
    out: Path | None = None,
    *,
    resume: bool = False,
    until_now: bool = False,
    budget: int | None = None,
    earlier: Mapping[str, Result] | None = None,
) -> AnalysisRun:
    """Load the model, read the prompts, run the analysis.

    Args:
        settings: the settings of the run.
        progress: called with ``(done, total)``.
        out: the output folder, beside which a resumable analysis keeps its partial results;
            ``None`` keeps none.
        resume: whether to continue from the partial results there.
        until_now: whether to return the result of what is done there, instead of continuing.
        budget: bytes that a sweep may use if the settings do not say; by default a share of the
            free memory.
        earlier: as for :class:`Inputs`.

    Raises:
        ModelLoadError: the model can't be loaded.
        InvalidInput: the prompts, an option or the device can't be used, or the partial results
            belong to a run with other settings.
    """
    started, begin = datetime.now(UTC), time.monotonic()
    dtype = None if settings.dtype is None else getattr(torch, settings.dtype)
    model = load_on(settings.device, settings.model, kernel=str(settings.kernel), dtype=dtype)
    if model.kernel_choice is not None:
        settings = replace(settings, kernel=kernel_of(model))
    settings, file = _read_prompts(settings, model)
    prompts = () if file is None else file.prompts
    budget = settings.memory or budget or Budget.of(model, None).nbytes
    log = OperationLog()
    inputs = Inputs(
        model,
        prompts,
        settings.seed,
        settings.rows,
        settings.memory,
        budget,
        partial(_report, log, time.monotonic() + LOGGED, as_progress(progress, settings.spec.name)),
        earlier=earlier or {},
    )
    analysis = partial(settings.spec.analysis, **settings.options)
    with log:
        if settings.per_prompt is not None:
            result = _run_in_parts(analysis, inputs, settings, resume=resume)
        elif out is None or not settings.spec.is_resumable:
            result = analysis(inputs)
        else:
            content = {} if file is None else {"prompts SHA-256": file.sha256}
            ranks = {"ranks": n_processes()} if settings.device == TENSOR_PARALLEL else {}
            computed = {"command": settings.spec.name, **settings.plain(), **content, **ranks}
            kind = settings.spec.derived.partial or interp.Sweep
            partial_run = PartialRun.beside(out, computed, kind)
            if settings.spec.derived.saves_checkpoints:
                result = run_with_checkpoints(analysis, inputs, partial_run, resume=resume)
            else:
                how = {"resume": resume, "until_now": until_now}
                result = run_in_slices(analysis, inputs, partial_run, **how)
    return AnalysisRun(
        settings,
        result,
        file,
        _report_prompts(model, prompts, settings, result),
        environment(model, [*log.operations]),
        budget,
        started,
        time.monotonic() - begin,
    )


def _run_in_parts(
    analysis: Callable[[Inputs], Result], inputs: Inputs, settings: Settings, *, resume: bool
) -> Parts:
    """Run the analysis on one part of the prompts after another.

    Raises:
        InvalidInput: several processes would write the same files; see also
            :func:`analyses.run_in_parts`.
    """
    if n_processes() > 1:
        raise InvalidInput(
            "--per-prompt can't be combined with --device tensor-parallel, as each process would "
            "write the files. Leave out one of the two."
        )
    return run_in_parts(
        inputs.model,
        _PromptsOfFile(str(settings.prompts), inputs.model.chat),
        lambda _, prompts: analysis(replace(inputs, prompts=prompts, progress=None)),
        settings.per_prompt,
        resume=resume,
        progress=inputs.progress,
    )


@dataclass(frozen=True)
class _PromptsOfFile:
    """The prompts of a file, which are read each time that they are iterated over."""

    source: str
    chat: ChatRenderer

    def __iter__(self) -> Iterator[Prompt]:
        return iter_prompts(self.source, self.chat)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _report(
    log: OperationLog, end: float, show: Callable[[int, int], None] | None, done: int, total: int
) -> None:
    """Report progress, and end the log of operations when its time is over."""
    if time.monotonic() > end:
        log.end()
    if show is not None:
        show(done, total)


def _read_prompts(
    settings: Settings, model: interp.Transformer
) -> tuple[Settings, PromptFile | None]:
    """The settings with the prompt set that is used, and the prompts."""
    if not settings.spec.reads:
        return settings, None
    pairs = "corrupt" in settings.spec.reads
    source = settings.prompts or default_prompts(settings.model, pairs=pairs)
    settings = replace(settings, prompts=source)
    if settings.per_prompt is not None:  # they are read part by part
        return settings, PromptFile(
            path_of_prompts(source), (), sha256_of_prompts(source, model.chat)
        )
    return settings, read_prompt_file(source, model.chat)


def _report_prompts(
    model: interp.Transformer, prompts: Sequence[Prompt], settings: Settings, result: Result
) -> tuple[ReportPrompt, ...]:
    """The prompts as a report shows them, with the fields that the analysis or its metric read."""
    read = {*settings.spec.reads, *METRICS_READ.get(str(settings.options.get("metric")), ())}
    notes = _notes(result, settings.spec.name, len(prompts))

    def tokens(text: str) -> tuple[str, ...]:
        return tuple(model.to_labels(model.to_tokens(text)[0]))

    return tuple(
        ReportPrompt(
            tokens(prompt.text),
            target=_printable(prompt.target) if "target" in read else None,
            distractor=_printable(prompt.distractor) if "distractor" in read else None,
            corrupt=tokens(prompt.corrupt or "") if "corrupt" in read else (),
            note=note,
        )
        for prompt, note in zip(prompts, notes, strict=True)
    )


def _notes(result: Result, command: str, n: int) -> list[str]:
    """The note below each prompt: its metric without ablation or patching, if the result has it."""
    fields = vars(result)
    if "clean" not in fields or "unit" not in fields:
        return [""] * n
    what = f"{fields['metric']} {'without ablation' if command == 'ablate' else 'clean'}"
    return [f"{what}: {clean:.3g} {fields['unit']}" for clean in fields["clean"].tolist()]


def _printable(text: str | None) -> str | None:
    return None if text is None else visible(text.encode())
