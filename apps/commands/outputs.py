"""The files of a run: its tables, ``run.json`` and ``report.html``."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from analyses import (
    HeadAblation,
    LensTraining,
)
from analyses.result import Result
from apps.commands.analysis_run import AnalysisRun
from apps.presentation import conclusion, provenance_of
from apps.report import Report, write_report
from apps.wording import ranked_heads

LENS_FILE = "lens.safetensors"
"""The lens that was trained, in the folder of its run."""


def write_files(run: AnalysisRun, folder: Path) -> None:
    """Write ``report.html``, ``run.json`` and tables as CSV and Parquet into ``folder``.

    And the lens of a training.
    """
    write_tables(run, folder)
    write_run(run, folder)
    if isinstance(run.result, LensTraining):
        run.result.lens.save(folder / LENS_FILE)
    write_report(to_report(run), folder / "report.html")


def write_tables(run: AnalysisRun, folder: Path) -> None:
    """Write the tables as CSV and Parquet."""
    for name, frame in tables(run).items():
        frame.to_csv(folder / f"{name}.csv", index=False)
        # As bytes: pyarrow opens UTF-8 paths alone, also those of an open file with pandas 2.
        (folder / f"{name}.parquet").write_bytes(frame.to_parquet(index=False))


def write_run(run: AnalysisRun, folder: Path) -> None:
    """Write ``run.json``: settings, results and provenance."""
    text = json.dumps(describe(run), indent=2, ensure_ascii=False)
    # A path that is not UTF-8 has lone surrogates, which are escaped as JSON does.
    (folder / "run.json").write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def tables(run: AnalysisRun) -> dict[str, pd.DataFrame]:
    """Frames by the name of their files: that of the units, or of the command."""
    name = str(run.settings.options.get("units", run.settings.command))
    return {name: run.result.to_frame(), **run.result.more_frames()}


def describe(run: AnalysisRun) -> dict[str, Any]:
    """The contents of ``run.json``: settings, results and provenance as plain data."""
    file, provenance = run.file, provenance_of(run.result)
    prompts = file and {"file": str(file.path), "sha256": file.sha256, "n": len(file.prompts)}
    return {
        "command": run.settings.shell_command,
        "settings": run.settings.plain(),
        "prompts": prompts,
        **_of_ablation(run.result),
        "answer": conclusion(run.result),
        "provenance": provenance.to_dict(),
        "versions": {**provenance.versions, **_versions()},
        "started": run.started.isoformat(timespec="seconds"),
        "seconds": round(run.seconds, 3),
    }


def to_report(run: AnalysisRun) -> Report:
    """The contents of the HTML report."""
    read = {}
    if run.file is not None:
        read["prompts"] = f"{run.settings.prompts} ({len(run.file.prompts)})"
        read["prompts SHA-256"] = run.file.sha256
    facts = {
        "command": run.settings.shell_command,
        **read,
        "started": f"{run.started:%Y-%m-%d %H:%M:%S} UTC",
        "duration": f"{run.seconds:.1f} s",
    }
    return Report(run.result, run.prompts, facts)


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


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("numpy", "pandas", "plotly", "tokenizers")}
