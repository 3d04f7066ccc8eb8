"""One head-ablation report: from its settings to the four files in a folder."""

import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import interp
from analyses import HeadAblation, ablate_heads
from analyses.effects import Progress
from apps.devices import parse_device
from apps.report import Report, ReportPrompt, write_report
from apps.wording import conclusion, ranked_heads
from interp.errors import InvalidInput
from interp.loading import AT_STEP, bundled, load
from interp.loading import MODEL_FOLDER as MODELS
from interp.metrics.prompts import logit_diff_of_prompts
from interp.text.prompts import Prompt, PromptFile, bundled_prompts, read_prompt_file
from interp.text.token_bytes import visible
from interp.zoo.card import FILE as CARD
from interp.zoo.card import Card, read_card

LOSS, LOGIT_DIFF = "loss", "logit-diff"
"""The metrics, by the names that the command line gives them."""


@dataclass(frozen=True)
class Settings:
    """The settings of one ablation.

    Attributes:
        model: a bundled name or a folder.
        prompts: a bundled set or a file; ``None`` means the model's own set.
        metric: ``loss`` or ``logit-diff``.
        method: ``zero``, ``mean`` or ``resample``.
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
        """The shell command that repeats the ablation."""
        words = ["interp", "ablate", "--model", self.model, "--prompts", self.prompts or ""]
        words += ["--metric", self.metric, "--method", self.method, "--seed", str(self.seed)]
        return shlex.join([*words, "--device", self.device])


@dataclass(frozen=True, eq=False)
class AblationRun:
    """An ablation with everything that its report shows.

    Attributes:
        settings: with the prompt set that was used.
        result: the ablation.
        file: the prompts, in the order of the result.
        tokens: printable labels of each prompt's tokens.
        started: when the ablation began.
        seconds: how long it took.
    """

    settings: Settings
    result: HeadAblation
    file: PromptFile
    tokens: tuple[tuple[str, ...], ...]
    started: datetime
    seconds: float


def run_ablation(settings: Settings, progress: Progress | None = None) -> AblationRun:
    """Load the model, read the prompts, ablate every head.

    Raises:
        ModelLoadError: there is no such model.
        InvalidInput: prompts, a metric or a device that can't be used.
    """
    started, begin = datetime.now(UTC), time.monotonic()
    model = load(settings.model, parse_device(settings.device))
    source = settings.prompts or default_prompts(settings.model)
    settings = replace(settings, prompts=source)
    file = read_prompt_file(source)
    result = ablate_prompts(
        model, file.prompts, settings.metric, settings.method, settings.seed, progress
    )
    return AblationRun(
        settings,
        result,
        file,
        tuple(tuple(token_labels(model, prompt.text)) for prompt in file.prompts),
        started,
        time.monotonic() - begin,
    )


def ablate_prompts(
    model: interp.Transformer,
    prompts: Sequence[Prompt],
    metric: str,
    method: str,
    seed: int = 0,
    progress: Progress | None = None,
) -> HeadAblation:
    """Ablate every head on some prompts; ``metric`` is :data:`LOSS` or :data:`LOGIT_DIFF`.

    Raises:
        InvalidInput: see :func:`ablate_heads`; or a prompt lacks a target or a distractor.
    """
    measured = (
        logit_diff_of_prompts(model.to_single_token, prompts) if metric == LOGIT_DIFF else LOSS
    )
    texts = [prompt.text for prompt in prompts]
    return ablate_heads(model, texts, metric=measured, method=method, seed=seed, progress=progress)


def write_files(ablation: AblationRun, folder: Path) -> None:
    """Write ``report.html``, ``heads.csv``, ``heads.parquet`` and ``run.json`` into ``folder``."""
    frame = ablation.result.to_frame()
    frame.to_csv(folder / "heads.csv", index=False)
    with (folder / "heads.parquet").open("wb") as file:  # pyarrow opens no path that is not UTF-8
        frame.to_parquet(file, index=False)
    text = json.dumps(describe(ablation), indent=2, ensure_ascii=False)
    # A path that is not UTF-8 has lone surrogates, which are escaped as JSON does.
    (folder / "run.json").write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
    write_report(to_report(ablation), folder / "report.html")


def describe(ablation: AblationRun) -> dict[str, Any]:
    """The contents of ``run.json``: settings, results and provenance as plain data."""
    result, settings = ablation.result, ablation.settings
    matter = [head.name for head in ranked_heads(result) if head.matters]
    return {
        "command": settings.command,
        "settings": vars(settings),
        "prompts": {
            "file": str(ablation.file.path),
            "sha256": ablation.file.sha256,
            "n": len(ablation.file.prompts),
        },
        "clean": {
            "metric": result.metric,
            "unit": result.unit,
            "mean": result.clean.mean().item(),
            "per_prompt": result.clean.tolist(),
        },
        "heads_that_matter": matter,
        "answer": conclusion(result),
        "provenance": result.provenance.to_dict(),
        "versions": {**result.provenance.versions, **_versions()},
        "started": ablation.started.isoformat(timespec="seconds"),
        "seconds": round(ablation.seconds, 3),
    }


def to_report(ablation: AblationRun) -> Report:
    """The contents of the HTML report."""
    facts = {
        "command": ablation.settings.command,
        "prompts": f"{ablation.settings.prompts} ({len(ablation.file.prompts)})",
        "prompts SHA-256": ablation.file.sha256,
        "started": f"{ablation.started:%Y-%m-%d %H:%M:%S} UTC",
        "duration": f"{ablation.seconds:.1f} s",
    }
    compared = ("target", "distractor") if ablation.settings.metric == LOGIT_DIFF else ()
    prompts = [
        ReportPrompt(tokens, **{name: _printable(getattr(prompt, name)) for name in compared})
        for tokens, prompt in zip(ablation.tokens, ablation.file.prompts, strict=True)
    ]
    return Report(ablation.result, tuple(prompts), facts)


def token_labels(model: interp.Transformer, text: str) -> list[str]:
    """Printable labels of the tokens of a text."""
    return model.to_labels(model.to_tokens(text)[0])


def default_prompts(model: str) -> str:
    """The bundled prompt set that a model's card names.

    Raises:
        InvalidInput: the model has no card.
    """
    card = _card_of(model)
    if card is None:
        known = ", ".join(bundled_prompts())
        raise InvalidInput(
            f"{model!r} has no prompts of its own: give --prompts, a file or a bundled set "
            f"({known}) that its vocabulary can encode."
        )
    return card.prompts


def default_metric(model: str) -> str:
    """The metric that a model's card names; ``loss`` without a card."""
    card = _card_of(model)
    return LOSS if card is None else card.metric


def _card_of(model: str) -> Card | None:
    """The card of a bundled model or of a model folder, also given as ``name@step``, if any."""
    checkpoint = AT_STEP.fullmatch(model)
    for name in (model, checkpoint["model"]) if checkpoint else (model,):
        folder = MODELS / name if name in bundled() else Path(name)
        if (folder / CARD).is_file():
            return read_card(folder)
    return None


def _printable(text: str | None) -> str | None:
    return None if text is None else visible(text.encode())


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("numpy", "pandas", "plotly", "tokenizers")}
