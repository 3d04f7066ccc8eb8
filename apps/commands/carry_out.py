"""Runs the command of an analysis: computes its result, writes its folder, prints the findings."""

import json
from pathlib import Path
from typing import Any

from apps.commands.analysis_run import AnalysisRun, Settings, run_analysis
from apps.commands.command import CommandSpec
from apps.commands.outputs import describe, write_files
from apps.commands.partial_run import PartialRun
from apps.presentation import conclusion, table
from apps.terminal import print_json, print_stderr, print_stdout, print_table, progress
from interp.io import atomic_folder

NOT_SETTINGS = ("out", "resume", "json", "top")
"""Shared options that do not affect the numbers."""


def carry_out(spec: CommandSpec, shared: dict[str, Any], options: dict[str, Any]) -> None:
    """Run a command.

    Args:
        spec: the command.
        shared: values of the options that all commands share, by their Python names.
        options: values of the command's own options.
    """
    out, resume, as_json, top = (shared[name] for name in NOT_SETTINGS)
    common = {name: value for name, value in shared.items() if name not in NOT_SETTINGS}
    spec_options = spec.options(common["model"], options)
    settings = Settings(spec, options=spec_options, **common)
    model = Path(settings.model).resolve().name
    place = out or Path("reports") / spec.folder_name(model, spec_options)
    partial = PartialRun.beside(place, {})
    _print_notes_on_resuming(spec, partial, resume=resume)
    with atomic_folder(place) as temporary:
        label = (
            spec.label.format(**spec_options)
            if isinstance(spec.label, str)
            else spec.label(spec_options)
        )
        with progress(label) as tick:
            run = run_analysis(settings, tick, place, resume=resume)
        write_files(run, temporary)
    if spec.is_resumable:  # other commands leave the partial results of another one
        partial.remove()
    if as_json:
        print_json(_as_json(run, place, top))
        return
    print_table(*table(run.result, top))
    print_stdout(f"\n{conclusion(run.result)}")
    print_stdout(f"Report: {place / 'report.html'}")


def _print_notes_on_resuming(spec: CommandSpec, partial: PartialRun, *, resume: bool) -> None:
    if not spec.is_resumable:
        if resume:
            print_stderr(
                f"interp {spec.name} keeps no partial results, so --resume has no effect: the run "
                "starts from the beginning."
            )
    elif resume and not partial.exists:
        print_stderr(
            "There are no partial results for this output folder: the run starts from the "
            "beginning."
        )
    elif partial.exists and not resume:
        print_stderr(
            f"{partial.folder} holds the partial results of a run that was stopped. Without "
            "--resume, this run starts from the beginning and deletes them."
        )


def _as_json(run: AnalysisRun, place: Path, top: int) -> dict[str, Any]:
    """``run.json`` without the prompts' texts, with the folder and the first rows of the table."""
    described = describe(run)
    if described["prompts"] is not None:
        del described["prompts"]["prompts"]
    rows = json.loads(run.result.to_frame().head(top).to_json(orient="records"))
    return {"folder": str(place), **described, "table": rows}
