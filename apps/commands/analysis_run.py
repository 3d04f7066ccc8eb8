"""One run of an analysis: from its settings to its result."""

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import interp
from analyses.effects import Progress
from analyses.result import Result
from apps.commands.inputs import Inputs
from apps.defaults import LOGIT_DIFF, default_prompts
from apps.devices import parse_device
from apps.report import ReportPrompt
from interp.loading import load
from interp.text.prompts import Prompt, PromptFile, read_prompt_file
from interp.text.token_bytes import visible

METRICS_READ = {
    LOGIT_DIFF: ("target", "distractor"),
    "logit": ("target",),
    "prob": ("target",),
}
"""The fields of prompts that a metric reads."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes:
        command: the name of the command.
        model: a bundled name or a folder.
        prompts: a bundled set or a file; ``None`` means the model's own set.
        options: the analysis's own options, as Python names them.
        device: where to compute.
        reads: the fields of prompts that are read; none if the analysis reads no prompts.
    """

    command: str
    model: str
    prompts: str | None
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    device: str = "cpu"
    reads: tuple[str, ...] = ("text",)

    def plain(self) -> dict[str, Any]:
        """The settings as JSON has them."""
        options = {
            name: str(value) if isinstance(value, StrEnum | Path) else value
            for name, value in self.options.items()
        }
        prompts = {"prompts": self.prompts} if self.reads else {}
        return {"model": self.model, **prompts, **options, "device": self.device}

    @property
    def shell_command(self) -> str:
        """The shell command that repeats the run."""
        words = ["interp", self.command]
        for name, value in self.plain().items():
            option = f"--{name.replace('_', '-')}"
            if isinstance(value, bool):
                words += [option] if value else []
            else:
                values = value if isinstance(value, list) else [value]
                words += [word for one in values if one is not None for word in (option, str(one))]
        return shlex.join(words)


@dataclass(frozen=True, eq=False)
class AnalysisRun:
    """A result with everything that its report shows.

    Attributes:
        settings: with the prompt set that was used.
        result: of the analysis.
        file: the prompts; ``None`` if the analysis reads none.
        prompts: what the report shows of them, in the order of the result.
        started: when the run began.
        seconds: how long it took.
    """

    settings: Settings
    result: Result
    file: PromptFile | None
    prompts: tuple[ReportPrompt, ...]
    started: datetime
    seconds: float


def run_analysis(
    analysis: Callable[..., Result], settings: Settings, progress: Progress | None = None
) -> AnalysisRun:
    """Load the model, read the prompts, run the analysis.

    Raises:
        ModelLoadError: there is no such model.
        InvalidInput: prompts, options or a device that can't be used.
    """
    started, begin = datetime.now(UTC), time.monotonic()
    model = load(settings.model, parse_device(settings.device))
    settings, file = _read_prompts(settings)
    given = () if file is None else file.prompts
    result = analysis(Inputs(model, given, progress), **settings.options)
    prompts = _report_prompts(model, given, settings, result)
    return AnalysisRun(settings, result, file, prompts, started, time.monotonic() - begin)


def _read_prompts(settings: Settings) -> tuple[Settings, PromptFile | None]:
    """The prompts, and the settings with the name of their set."""
    if not settings.reads:
        return settings, None
    pairs = "corrupt" in settings.reads
    source = settings.prompts or default_prompts(settings.model, pairs=pairs)
    return replace(settings, prompts=source), read_prompt_file(source)


def _report_prompts(
    model: interp.Transformer, prompts: Sequence[Prompt], settings: Settings, result: Result
) -> tuple[ReportPrompt, ...]:
    """What a report shows of the prompts: what was read of them."""
    read = {*settings.reads, *METRICS_READ.get(str(settings.options.get("metric")), ())}
    notes = _notes(result, settings.command, len(prompts))

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
    """What is noted below each prompt: the metric without a change, of results that have it."""
    fields = vars(result)
    if "clean" not in fields or "unit" not in fields:
        return [""] * n
    what = f"{fields['metric']} {'without ablation' if command == 'ablate' else 'clean'}"
    return [f"{what}: {clean:.3g} {fields['unit']}" for clean in fields["clean"].tolist()]


def _printable(text: str | None) -> str | None:
    return None if text is None else visible(text.encode())
