"""The files of a run: its tables, ``run.json`` and ``report.html``."""

import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from analyses import Ablation, LensTraining, StreamedAttention
from analyses.results import Result
from apps.commands.analysis_run import AnalysisRun
from apps.csv_text import csv_text
from apps.presentation import conclusion, provenance_of
from apps.report import Report, write_report
from apps.wording import ranked_heads

MEASURED = ("metric", "unit", "method")
"""Fields of results that become columns of their tables."""
MAX_PROMPTS_BYTES = 2**20
"""Size in bytes up to which ``run.json`` holds the prompts, so that it can be repeated alone."""
MAX_CSV_ROWS = 2**20 - 1
"""The most rows of a table that is written as CSV: as many as spreadsheet programs open."""
MAX_PROMPT_ROWS = 2**22
"""The most rows of a table by prompt that is written: more would take gigabytes of memory."""
LENS_FILE = "lens.safetensors"
"""Name of the file of a trained lens, in the folder of its run."""


def write_files(run: AnalysisRun, folder: Path) -> None:
    """Write ``report.html``, ``run.json``, tables as CSV and Parquet, and a trained lens."""
    write_tables(run, folder)
    write_run(run, folder)
    if isinstance(run.result, LensTraining):
        run.result.lens.save(folder / LENS_FILE)
    write_report(to_report(run), folder / "report.html")


def write_tables(run: AnalysisRun, folder: Path) -> None:
    """Write the tables as CSV and Parquet; those with very many rows as Parquet alone."""
    for name, frame in tables(run).items():
        if len(frame) <= MAX_CSV_ROWS:
            (folder / f"{name}.csv").write_text(csv_text(frame), encoding="utf-8", newline="")
        # As bytes, because pyarrow opens only UTF-8 paths, even of an open file with pandas 2.
        (folder / f"{name}.parquet").write_bytes(frame.to_parquet(index=False))


def write_run(run: AnalysisRun, folder: Path) -> None:
    """Write ``run.json``: settings, results and provenance."""
    text = json.dumps(describe(run), indent=2, ensure_ascii=False)
    # A path that is not UTF-8 has lone surrogates, which are escaped as JSON does.
    (folder / "run.json").write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def tables(run: AnalysisRun) -> dict[str, pd.DataFrame]:
    """The tables of a run by the names of their files: that of the units, or of the command.

    Where the result has values per prompt, they are a second table, unless it would be too large.
    Where it has a metric, its name, unit and method are columns of both.
    """
    result = run.result
    name = str(run.settings.options.get("units", run.settings.spec.name))
    frames = {name: result.to_frame()}
    is_stream = isinstance(result, StreamedAttention)  # which has no values per prompt
    by_prompt = None if is_stream else getattr(result, "to_prompt_frame", None)
    if by_prompt is not None:
        n_rows = len(frames[name]) * max(1, len(run.prompts))
        if n_rows <= MAX_PROMPT_ROWS:
            frames[f"{name}_by_prompt"] = by_prompt()
        else:
            warnings.warn(
                f"The table {name}_by_prompt is not written: it would have about {n_rows} rows.",
                stacklevel=2,
            )
    fields = {name: str(vars(result)[name]) for name in MEASURED if vars(result).get(name)}
    measured = {
        name: frame.assign(**{n: value for n, value in fields.items() if n not in frame})
        for name, frame in frames.items()
    }
    return {**measured, **result.more_frames()}


def describe(run: AnalysisRun) -> dict[str, Any]:
    """The contents of ``run.json``: everything needed to repeat the run, and its findings."""
    provenance, settings = provenance_of(run.result), run.settings.with_absolute_paths()
    return {
        "command": run.settings.shell_command(settings),
        "settings": settings,
        "prompts": _prompts(run),
        **_of_ablation(run.result),
        "answer": conclusion(run.result),
        "provenance": provenance.to_dict(),
        **run.environment,
        "versions": {**provenance.versions, **run.environment["versions"]},
        "budget": run.budget,
        "started": run.started.isoformat(timespec="seconds"),
        "seconds": round(run.seconds, 3),
    }


def _prompts(run: AnalysisRun) -> dict[str, Any] | None:
    """The path, hash and number of the prompts, and their contents unless they are too large."""
    if run.file is None:
        return None
    fields = [
        {
            name: value
            for name, value in asdict(prompt).items()
            if name != "source" and value is not None
        }
        for prompt in run.file.prompts
    ]
    is_whole = len(fields) == run.n_prompts and len(json.dumps(fields)) <= MAX_PROMPTS_BYTES
    prompts = fields if is_whole else None
    return {
        "file": str(run.file.path.absolute()),
        "sha256": run.file.sha256,
        "n": run.n_prompts,
        "prompts": prompts,
    }


def to_report(run: AnalysisRun, home: str = "") -> Report:
    """The contents of the HTML report; ``home`` is the address of the index of its site."""
    read = {}
    if run.file is not None:
        read["prompts"] = f"{run.settings.prompts} ({run.n_prompts})"
        read["prompts SHA-256"] = run.file.sha256
    facts = {
        "command": run.settings.shell_command(),
        **read,
        "started": f"{run.started:%Y-%m-%d %H:%M:%S} UTC",
        "duration": f"{run.seconds:.1f} s",
    }
    return Report(run.result, run.prompts, facts, home)


def _of_ablation(result: Result) -> dict[str, Any]:
    """The entries of ``run.json`` that only an ablation of heads has."""
    if not (isinstance(result, Ablation) and result.by_layer):
        return {}
    heads = ranked_heads(result)
    return {
        "clean": {
            "metric": result.metric,
            "unit": result.unit,
            "mean": result.clean.mean().item(),
            "per_prompt": result.clean.tolist(),
        },
        "heads_by_size": [head.name for head in heads],
        "significant_heads": [head.name for head in heads if head.significant],
    }
