"""Runs the command of an analysis: computes its result, writes its folder, prints the findings."""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, cast

from analyses.scan_heads import HeadScan, write_headvis
from apps.commands.analysis_run import AnalysisRun, Settings, run_analysis
from apps.commands.command import CommandSpec
from apps.commands.executors import executor_of_options
from apps.commands.options import SWEEPING
from apps.commands.outputs import describe, to_report, write_files
from apps.commands.partial_run import PartialRun
from apps.presentation import conclusion, table
from apps.report import write_head_site
from apps.terminal import print_json, print_stderr, print_stdout, print_table, progress
from apps.torchrun import is_first, n_processes
from interp.errors import InvalidInput
from interp.io import atomic_folder


@dataclass(frozen=True)
class Further:
    """What a command writes into a folder of its own.

    Attributes:
        title: what it is.
        first: the file to open.
        write: writes the files of a run into a folder.
    """

    title: str
    first: str
    write: Callable[[AnalysisRun, Path], None]


def _write_site(run: AnalysisRun, folder: Path) -> None:
    write_head_site(to_report(run), folder)


def _write_headvis(run: AnalysisRun, folder: Path) -> None:
    texts = run.settings.options.get("texts")
    write_headvis(cast(HeadScan, run.result), folder, Path(texts).stem if texts else "texts")


WRITERS = {
    "site": Further("Site", "index.html", _write_site),
    "headvis": Further("HeadVis", "config.json", _write_headvis),
}
"""What options of commands write, by their names."""
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
    further = {name: shared[name] for name in WRITERS if shared.get(name) is not None}
    not_settings = (*NOT_SETTINGS, *WRITERS, *SWEEPING)
    common = {name: value for name, value in shared.items() if name not in not_settings}
    spec_options = spec.options(common["model"], options)
    settings = Settings(spec, options=spec_options, **common)
    model = Path(settings.model).resolve().name
    place = out or Path("reports") / spec.folder_name(model, spec_options)
    parts = {} if settings.per_prompt is None else {"per-prompt": settings.per_prompt}
    _check_apart({"out": place, **further, **parts})
    if not is_first():
        run_analysis(settings, None, place, resume=resume)
        return
    partial = PartialRun.beside(place, {})
    if settings.per_prompt is None:
        _print_notes_on_resuming(spec, partial, resume=resume)
    try:
        with executor_of_options(**{name: shared.get(name) for name in SWEEPING}):
            run = _run_and_write(settings, place, further, resume=resume)
    except KeyboardInterrupt:
        if further and partial.exists and n_processes() == 1:
            _write_stopped(settings, place, further)
        raise
    if spec.is_resumable:  # other commands leave the partial results of another one
        partial.remove()
    if as_json:
        print_json(_as_json(run, place, top))
        return
    print_table(*table(run.result, top))
    print_stdout(f"\n{conclusion(run.result)}")
    print_stdout(f"Report: {place / 'report.html'}")
    for name, folder in further.items():
        print_stdout(f"{WRITERS[name].title}: {folder / WRITERS[name].first}")


def _run_and_write(
    settings: Settings, place: Path, further: Mapping[str, Path], *, resume: bool
) -> AnalysisRun:
    """Run the analysis and write its folder, and the further ones."""
    spec = settings.spec
    with atomic_folder(place) as temporary, _writers(further) as write_further:
        label = (
            spec.label.format(**settings.options)
            if isinstance(spec.label, str)
            else spec.label(settings.options)
        )
        with progress(label) as tick:
            run = run_analysis(settings, tick, place, resume=resume)
        write_files(run, temporary)
        write_further(run)
    return run


@contextmanager
def _writers(further: Mapping[str, Path]) -> Generator[Callable[[AnalysisRun], None]]:
    """A function that writes the further folders, which replace those there when the block ends."""
    with ExitStack() as stack:
        folders = {
            name: stack.enter_context(atomic_folder(folder)) for name, folder in further.items()
        }

        def write(run: AnalysisRun) -> None:
            for name, folder in folders.items():
                WRITERS[name].write(run, folder)

        yield write


def _write_stopped(settings: Settings, place: Path, further: Mapping[str, Path]) -> None:
    """Write the further folders of what a stopped run has done; they say so."""
    with _writers(further) as write_further:
        write_further(run_analysis(settings, None, place, resume=True, until_now=True))
    for folder in further.values():
        print_stderr(f"The files in {folder} show what was done until then.")


def _check_apart(folders: Mapping[str, Path]) -> None:
    """Check that no two folders, each of which is replaced as a whole, are in one another.

    Raises:
        InvalidInput: they are.
    """
    for (first, one), (second, other) in combinations(folders.items(), 2):
        both = one.resolve(), other.resolve()
        if both[0].is_relative_to(both[1]) or both[1].is_relative_to(both[0]):
            raise InvalidInput(
                f"--{first} {one} and --{second} {other} are the same folder, or one is inside "
                "the other. Each is replaced as a whole: choose separate folders."
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
