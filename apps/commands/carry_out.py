"""Runs the command of an analysis: computes its result, writes its folder, prints the findings."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from apps.commands.analysis_run import AnalysisRun, Settings, run_analysis
from apps.commands.command import CommandSpec
from apps.commands.outputs import describe, to_report, write_files
from apps.commands.partial_run import PartialRun
from apps.presentation import conclusion, table
from apps.report import write_head_site
from apps.terminal import print_json, print_stderr, print_stdout, print_table, progress
from interp.errors import InvalidInput
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
    site: Path | None = shared.get("site")
    not_settings = (*NOT_SETTINGS, "site")
    common = {name: value for name, value in shared.items() if name not in not_settings}
    spec_options = spec.options(common["model"], options)
    settings = Settings(spec, options=spec_options, **common)
    model = Path(settings.model).resolve().name
    place = out or Path("reports") / spec.folder_name(model, spec_options)
    _check_apart(place, site)
    partial = PartialRun.beside(place, {})
    _print_notes_on_resuming(spec, partial, resume=resume)
    try:
        run = _run_and_write(settings, place, site, resume=resume)
    except KeyboardInterrupt:
        if site is not None and partial.exists:
            _write_stopped(settings, place, site)
        raise
    if spec.is_resumable:  # other commands leave the partial results of another one
        partial.remove()
    if as_json:
        print_json(_as_json(run, place, top))
        return
    print_table(*table(run.result, top))
    print_stdout(f"\n{conclusion(run.result)}")
    print_stdout(f"Report: {place / 'report.html'}")
    if site is not None:
        print_stdout(f"Site: {site / 'index.html'}")


def _run_and_write(
    settings: Settings, place: Path, site: Path | None, *, resume: bool
) -> AnalysisRun:
    """Run the analysis and write its folder, and the pages of its site."""
    spec = settings.spec
    with (
        atomic_folder(place) as temporary,
        nullcontext() if site is None else atomic_folder(site) as pages,
    ):
        label = (
            spec.label.format(**settings.options)
            if isinstance(spec.label, str)
            else spec.label(settings.options)
        )
        with progress(label) as tick:
            run = run_analysis(settings, tick, place, resume=resume)
        write_files(run, temporary)
        if pages is not None:
            write_head_site(to_report(run), pages)
    return run


def _write_stopped(settings: Settings, place: Path, site: Path) -> None:
    """Write the pages of what a stopped run has done, which say so."""
    with atomic_folder(site) as pages:
        run = run_analysis(settings, None, place, resume=True, until_now=True)
        write_head_site(to_report(run), pages)
    print_stderr(f"The pages in {site} show what was done until then.")


def _check_apart(out: Path, site: Path | None) -> None:
    """Check that the two folders, each of which is replaced as a whole, are not in one another.

    Raises:
        InvalidInput: they are.
    """
    if site is None:
        return
    both = out.resolve(), site.resolve()
    if both[0].is_relative_to(both[1]) or both[1].is_relative_to(both[0]):
        raise InvalidInput(
            f"--site {site} and the output folder {out} are the same, or one is inside the other. "
            "Each is replaced as a whole: choose separate folders."
        )


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
