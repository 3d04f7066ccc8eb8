"""One run of an analysis: from its settings to the files in a folder."""

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any

from analyses import HeadAblation
from analyses.effects import Progress
from analyses.result import Result
from apps.commands.inputs import Inputs
from apps.defaults import LOGIT_DIFF, default_prompts
from apps.devices import parse_device
from apps.presentation import conclusion, provenance_of
from apps.report import Report, ReportPrompt, write_report
from apps.wording import ranked_heads
from interp.execution.provenance import Provenance
from interp.loading import load
from interp.text.prompts import PromptFile, read_prompt_file
from interp.text.token_bytes import visible


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes:
        command: the name of the command.
        model: a bundled name or a folder.
        prompts: a bundled set or a file; ``None`` means the model's own set.
        options: the analysis's own options, as Python names them.
        device: where to compute.
        reads: the fields of prompts that are read beside the text.
    """

    command: str
    model: str
    prompts: str | None
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    device: str = "cpu"
    reads: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """The settings as JSON has them."""
        options = {
            name: value.value if isinstance(value, StrEnum) else value
            for name, value in self.options.items()
        }
        return {"model": self.model, "prompts": self.prompts, **options, "device": self.device}

    @property
    def shell_command(self) -> str:
        """The shell command that repeats the run."""
        words = ["interp", self.command]
        for name, value in self.plain().items():
            option = f"--{name.replace('_', '-')}"
            if isinstance(value, bool):
                words += [option] if value else []
            elif value is not None:
                words += [option, str(value)]
        return shlex.join(words)


@dataclass(frozen=True, eq=False)
class AnalysisRun:
    """A result with everything that its report shows.

    Attributes:
        settings: with the prompt set that was used.
        result: of the analysis.
        file: the prompts, in the order of the result.
        tokens: printable labels of each prompt's tokens.
        started: when the run began.
        seconds: how long it took.
    """

    settings: Settings
    result: Result
    file: PromptFile
    tokens: tuple[tuple[str, ...], ...]
    started: datetime
    seconds: float

    @property
    def provenance(self) -> Provenance:
        """What the numbers depend on."""
        return provenance_of(self.result)


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
    source = settings.prompts or default_prompts(settings.model)
    file = read_prompt_file(source)
    result = analysis(Inputs(model, file.prompts, progress), **settings.options)
    tokens = tuple(
        tuple(model.to_labels(model.to_tokens(prompt.text)[0])) for prompt in file.prompts
    )
    seconds = time.monotonic() - begin
    return AnalysisRun(replace(settings, prompts=source), result, file, tokens, started, seconds)


def write_files(run: AnalysisRun, folder: Path) -> None:
    """Write ``report.html``, ``run.json`` and the table as CSV and Parquet into ``folder``."""
    frame, name = run.result.to_frame(), table_name(run)
    frame.to_csv(folder / f"{name}.csv", index=False)
    with (folder / f"{name}.parquet").open("wb") as file:  # pyarrow opens no path that is not UTF-8
        frame.to_parquet(file, index=False)
    text = json.dumps(describe(run), indent=2, ensure_ascii=False)
    # A path that is not UTF-8 has lone surrogates, which are escaped as JSON does.
    (folder / "run.json").write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
    write_report(to_report(run), folder / "report.html")


def table_name(run: AnalysisRun) -> str:
    """The name of the files with the table, without its ending: ``heads``, or the command."""
    return "heads" if isinstance(run.result, HeadAblation) else run.settings.command


def describe(run: AnalysisRun) -> dict[str, Any]:
    """The contents of ``run.json``: settings, results and provenance as plain data."""
    return {
        "command": run.settings.shell_command,
        "settings": run.settings.plain(),
        "prompts": {
            "file": str(run.file.path),
            "sha256": run.file.sha256,
            "n": len(run.file.prompts),
        },
        **_of_ablation(run.result),
        "answer": conclusion(run.result),
        "provenance": run.provenance.to_dict(),
        "versions": {**run.provenance.versions, **_versions()},
        "started": run.started.isoformat(timespec="seconds"),
        "seconds": round(run.seconds, 3),
    }


def to_report(run: AnalysisRun) -> Report:
    """The contents of the HTML report."""
    settings = run.settings
    facts = {
        "command": settings.shell_command,
        "prompts": f"{settings.prompts} ({len(run.file.prompts)})",
        "prompts SHA-256": run.file.sha256,
        "started": f"{run.started:%Y-%m-%d %H:%M:%S} UTC",
        "duration": f"{run.seconds:.1f} s",
    }
    compared = ("target", "distractor") if settings.options.get("metric") == LOGIT_DIFF else ()
    notes = _prompt_notes(run)
    prompts = [
        ReportPrompt(
            tokens,
            note=note,
            **{name: _printable(getattr(prompt, name)) for name in {*settings.reads, *compared}},
        )
        for tokens, prompt, note in zip(run.tokens, run.file.prompts, notes, strict=True)
    ]
    return Report(run.result, prompts, facts)


def _prompt_notes(run: AnalysisRun) -> list[str]:
    """What is noted below each prompt: the metric without ablation, of results that have it."""
    fields = vars(run.result)
    if "clean" not in fields:
        return [""] * len(run.tokens)
    metric, unit = fields["metric"], fields["unit"]
    return [f"{metric} without ablation: {clean:.3g} {unit}" for clean in fields["clean"].tolist()]


def _of_ablation(result: Result) -> dict[str, Any]:
    """What ``run.json`` has of an ablation of heads alone."""
    if not isinstance(result, HeadAblation):
        return {}
    return {
        "clean": {
            "metric": result.metric,
            "unit": result.unit,
            "mean": result.clean.mean().item(),
            "per_prompt": result.clean.tolist(),
        },
        "heads_that_matter": [head.name for head in ranked_heads(result) if head.matters],
    }


def _printable(text: str | None) -> str | None:
    return None if text is None else visible(text.encode())


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("numpy", "pandas", "plotly", "tokenizers")}
