"""What is one head-ablation report made of? From the settings to the four files in a folder."""

import hashlib
import json
import shlex
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import interp
from analyses import HeadAblation, ablate_heads
from analyses.ablate_heads import Progress
from apps.devices import device_of
from apps.report import Report, Shown, write_report
from apps.wording import answer, heads_of
from interp.errors import InvalidInput
from interp.loading import AT_STEP, bundled, load
from interp.loading import MODEL_FOLDER as MODELS
from interp.metrics.prompts import logit_diff_of_prompts
from interp.text.prompts import (
    PROMPT_FOLDER,
    Prompt,
    bundled_prompts,
    read_prompts,
)
from interp.text.token_bytes import visible
from interp.zoo.card import FILE as CARD
from interp.zoo.card import Card, read_card


@dataclass(frozen=True)
class Settings:
    """What was asked for.

    Attributes:
        model: a bundled name or a folder.
        prompts: a bundled set or a file; ``None`` means the set made for the model.
        metric: ``loss`` or ``logit-diff``.
        method: how heads are replaced.
        seed: of the resampling.
        device: where to compute.
    """

    model: str
    prompts: str | None
    metric: str
    method: str
    seed: int = 0
    device: str = "cpu"

    @property
    def command(self) -> str:
        """What to type to get the same again."""
        words = ["interp", "ablate", "--model", self.model, "--prompts", self.prompts or ""]
        words += ["--metric", self.metric, "--method", self.method, "--seed", str(self.seed)]
        return shlex.join([*words, "--device", self.device])


@dataclass(frozen=True, eq=False)
class Finding:
    """An ablation with all that a report tells of it.

    Attributes:
        settings: what was asked for, the prompts settled.
        result: what came out.
        prompts: what the model read.
        tokens: each prompt's tokens, visibly.
        prompts_hash: SHA-256 of the prompt file.
        started: when.
        seconds: how long it took.
    """

    settings: Settings
    result: HeadAblation
    prompts: tuple[Prompt, ...]
    tokens: tuple[tuple[str, ...], ...]
    prompts_hash: str
    started: datetime
    seconds: float


def find(settings: Settings, progress: Progress | None = None) -> Finding:
    """Load, read, ablate.

    Raises:
        ModelLoadError: there is no such model.
        InvalidInput: prompts, a metric or a device that can't be used.
    """
    started, begin = datetime.now(UTC), time.monotonic()
    model = load(settings.model, device_of(settings.device))
    source = settings.prompts or prompts_for(settings.model)
    settings = replace(settings, prompts=source)
    prompts = read_prompts(source)
    metric = (
        logit_diff_of_prompts(model.to_single_token, prompts)
        if settings.metric == "logit-diff"
        else "loss"
    )
    result = ablate_heads(
        model,
        [prompt.text for prompt in prompts],
        metric=metric,
        method=settings.method,
        seed=settings.seed,
        progress=progress,
    )
    return Finding(
        settings,
        result,
        tuple(prompts),
        tuple(tuple(labels_of(model, prompt.text)) for prompt in prompts),
        hashlib.sha256(_file_of(source).read_bytes()).hexdigest(),
        started,
        time.monotonic() - begin,
    )


def write_files(finding: Finding, folder: Path) -> None:
    """Write ``report.html``, ``heads.csv``, ``heads.parquet`` and ``run.json`` into ``folder``."""
    frame = finding.result.to_frame()
    frame.to_csv(folder / "heads.csv", index=False)
    frame.to_parquet(folder / "heads.parquet", index=False)
    described = json.dumps(describe(finding), indent=2, ensure_ascii=False)
    (folder / "run.json").write_text(described + "\n", encoding="utf-8")
    write_report(to_report(finding), folder / "report.html")


def describe(finding: Finding) -> dict[str, Any]:
    """Where the numbers come from, as plain data."""
    result, settings = finding.result, finding.settings
    matter = [head.name for head in heads_of(result) if head.matters]
    return {
        "command": settings.command,
        "settings": vars(settings),
        "prompts": {
            "file": str(_file_of(settings.prompts or "")),
            "sha256": finding.prompts_hash,
            "n": len(finding.prompts),
        },
        "clean": {
            "metric": result.metric,
            "unit": result.unit,
            "mean": result.clean.mean().item(),
            "per_prompt": result.clean.tolist(),
        },
        "heads_that_matter": matter,
        "answer": answer(result),
        "provenance": result.provenance.to_dict(),
        "versions": {**result.provenance.versions, **_versions()},
        "started": finding.started.isoformat(timespec="seconds"),
        "seconds": round(finding.seconds, 3),
    }


def to_report(finding: Finding) -> Report:
    """What the HTML report shows of it."""
    facts = {
        "command": finding.settings.command,
        "prompts": f"{finding.settings.prompts} ({len(finding.prompts)})",
        "prompts SHA-256": finding.prompts_hash,
        "started": f"{finding.started:%Y-%m-%d %H:%M:%S} UTC",
        "duration": f"{finding.seconds:.1f} s",
    }
    shown = [
        Shown(tokens, _visibly(prompt.target), _visibly(prompt.distractor))
        for tokens, prompt in zip(finding.tokens, finding.prompts, strict=True)
    ]
    return Report(finding.result, tuple(shown), facts)


def labels_of(model: interp.Transformer, text: str) -> list[str]:
    """The tokens of a text, visibly."""
    return model.to_labels(model.to_tokens(text)[0])


def prompts_for(model: str) -> str:
    """The bundled prompt set made for a model.

    Raises:
        InvalidInput: there is none.
    """
    made = _card_of(model)
    if made is None:
        known = ", ".join(bundled_prompts())
        raise InvalidInput(
            f"No prompts come with {model!r}: give a file with --prompts, or a bundled set "
            f"({known}) that suits its vocabulary."
        )
    return made.prompts


def metric_for(model: str) -> str:
    """What is measured of a model unless something is asked for: the loss, where it has one."""
    known = _card_of(model)
    return "loss" if known is None else known.metric


def _card_of(model: str) -> Card | None:
    """The card of a bundled model, or of one in a folder, at whatever step; none if it has none."""
    told = AT_STEP.fullmatch(model)
    for name in (model, told["model"]) if told else (model,):
        folder = MODELS / name if name in bundled() else Path(name)
        if (folder / CARD).is_file():
            return read_card(folder)
    return None


def _visibly(text: str | None) -> str | None:
    return None if text is None else visible(text.encode())


def _file_of(prompts: str) -> Path:
    return PROMPT_FOLDER / f"{prompts}.jsonl" if prompts in bundled_prompts() else Path(prompts)


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("numpy", "pandas", "plotly", "tokenizers")}
