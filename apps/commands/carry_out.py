"""What a command of an analysis does: run it, write its folder, print what was found."""

import json
from pathlib import Path
from typing import Any

from apps.commands.analysis_run import AnalysisRun, Settings, run_analysis
from apps.commands.command import Question
from apps.commands.kept import Kept
from apps.commands.outputs import describe, write_files
from apps.presentation import conclusion, table
from apps.terminal import print_json, print_stderr, print_stdout, print_table, progress
from interp.atomic_folder import atomic_folder

NOT_SETTINGS = ("out", "resume", "json", "top")
"""Shared options on which no number depends."""


def carry_out(question: Question, shared: dict[str, Any], options: dict[str, Any]) -> None:
    """Run a command.

    Args:
        question: what it asks.
        shared: the options that all commands have, by their Python names.
        options: its own.
    """
    out, resume, as_json, top = (shared[name] for name in NOT_SETTINGS)
    given = {name: own for name, own in shared.items() if name not in NOT_SETTINGS}
    own = question.options(given["model"], options)
    settings = Settings(question, options=own, **given)
    model = Path(settings.model).resolve().name
    place = out or Path("reports") / question.folder_name(model, own)
    kept = Kept.beside(place, {})
    _print_what_is_kept(kept, resume=resume)
    with atomic_folder(place) as temporary:
        with progress(question.label.format(**own)) as tick:
            run = run_analysis(settings, tick, place, resume=resume)
        write_files(run, temporary)
    kept.remove()
    if as_json:
        print_json(_as_json(run, place, top))
        return
    print_table(*table(run.result, top))
    print_stdout(f"\n{conclusion(run.result)}")
    print_stdout(f"Report: {place / 'report.html'}")


def _print_what_is_kept(kept: Kept, *, resume: bool) -> None:
    if resume and not kept.exists:
        print_stderr("No stopped run of this folder was kept; the run begins at the start.")
    if kept.exists and not resume:
        print_stderr(
            f"A stopped run is kept in {kept.folder}: --resume goes on from it. Without it, this "
            "run begins at the start and takes its place."
        )


def _as_json(run: AnalysisRun, place: Path, top: int) -> dict[str, Any]:
    """``run.json`` without the prompts' texts, with the folder and the first rows of the table."""
    described = describe(run)
    if described["prompts"] is not None:
        del described["prompts"]["prompts"]
    rows = json.loads(run.result.to_frame().head(top).to_json(orient="records"))
    return {"folder": str(place), **described, "table": rows}
