"""``interp report``: several analyses of a model on one page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.commands import commands
from apps.commands.command import CommandSpec
from apps.commands.options import (
    DEFAULT_MODEL,
    SHARED,
    Address,
    Device,
    DType,
    ExecutorName,
    ExecutorOption,
    JobTimeout,
    Kernel,
    KernelName,
    Memory,
    Model,
    Prompts,
    Rows,
    Seed,
    Workers,
)
from apps.terminal import Tick, print_stderr, print_stdout, progress
from apps.torchrun import is_first

if TYPE_CHECKING:
    from analyses.results import Result
    from apps.commands.analysis_run import AnalysisRun, Settings

SECTIONS = (
    "roles",
    "ablate",
    "attribute",
    "explain",
    "circuits",
    "order",
)
"""The commands whose results are on the page by default, in this order."""


def report(  # noqa: PLR0913 - the options of a command
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with analyses, models and prompts: write a site with an index, and "
            "run only what changed since it was last written."
        ),
    ] = None,
    model: Model = DEFAULT_MODEL,
    prompts: Prompts = None,
    section: Annotated[
        list[str] | None,
        typer.Option(
            help="An analysis, by the name of its command; may be repeated.",
            show_default=", ".join(SECTIONS),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder, created if missing.", show_default="reports/MODEL"),
    ] = None,
    device: Device = "cpu",
    dtype: DType = None,
    kernel: Kernel = KernelName.AUTO,
    seed: Seed = 0,
    rows: Rows = None,
    memory: Memory = None,
    executor: ExecutorOption = ExecutorName.LOCAL,
    workers: Workers = None,
    address: Address = None,
    job_timeout: JobTimeout = None,
) -> None:
    """Write several analyses on one page, or as a site that a file describes.

    Each analysis also gets a folder with its tables. With --config, the file names the analyses and
    their options; without it, --section names them, and they run with default options, on the same
    prompts if --prompts is given. --rows and --memory apply to the analyses that take them.
    """
    shared = {
        "model": model,
        "prompts": prompts,
        "device": device,
        "dtype": dtype,
        "kernel": kernel,
        "seed": seed,
        "rows": rows,
        "memory": memory,
    }
    from apps.commands.executors import executor_of_options  # noqa: PLC0415

    if config is not None:
        changed = [f"--{name}" for name, value in shared.items() if value != SHARED[name][1]]
        changed += ["--section"] if section else []
        if changed:
            from interp.errors import InvalidInput  # noqa: PLC0415

            raise InvalidInput(
                f"{' and '.join(changed)} can't be combined with --config: settings are in the "
                "file."
            )
        with executor_of_options(executor, workers, address, job_timeout):
            _site(config, out)
        return
    from apps.presentation import conclusion  # noqa: PLC0415
    from interp.io import atomic_folder  # noqa: PLC0415

    specs = _specs(section or SECTIONS)
    if not is_first():
        _run(specs, shared)
        return
    place = out or Path("reports") / Path(model).resolve().name
    with (
        atomic_folder(place) as temporary,
        executor_of_options(executor, workers, address, job_timeout),
    ):
        runs, left_out = _run(specs, shared)
        _write(runs, left_out, temporary)
    for name, run in runs.items():
        print_stdout(f"{name}: {conclusion(run.result)}")
    for name, reason in left_out.items():
        print_stdout(f"{name}: left out. {reason}")
    print_stdout(f"Report: {place / 'report.html'}")


def _site(config: Path, out: Path | None) -> None:
    """Write the site that a file describes."""
    from shutil import rmtree  # noqa: PLC0415

    from apps.commands.report_config import read_config  # noqa: PLC0415
    from apps.commands.report_pages import write_pages  # noqa: PLC0415
    from apps.report.site import write_site  # noqa: PLC0415
    from interp.io import (  # noqa: PLC0415 - imports torch
        atomic_folder,
        beside,
        refuse_link,
    )

    site = read_config(config)
    place = out or Path("reports") / config.stem
    finished = beside(place.resolve(), "kept")
    refuse_link(finished)
    with atomic_folder(place) as temporary:
        with progress("Writing pages") as tick:
            try:
                written = write_pages(site.pages, temporary, (place,), finished, tick)
            except KeyboardInterrupt as error:
                finished_pages = [page for page in site.pages if (finished / page).is_dir()]
                raise KeyboardInterrupt(
                    _interrupted(finished_pages, len(site.pages), finished)
                ) from error
        write_site(site.title, written.pages, written.left_out, temporary)
    if finished.exists():
        rmtree(finished)
    for name, page in written.pages.items():
        print_stdout(f"{name}: {page.conclusion}")
    for name, reason in written.left_out.items():
        print_stdout(f"{name}: left out. {reason}")
    unchanged = len(written.pages) - len(written.computed)
    print_stdout(f"{len(written.computed)} pages run, {unchanged} unchanged.")
    print_stdout(f"Site: {place / 'index.html'}")


def _interrupted(pages: Sequence[str], total: int, folder: Path) -> str:
    """The message of a stopped run: what it keeps, and how to continue."""
    if not pages:
        return "Interrupted before the first page was finished; nothing was written."
    return (
        f"Interrupted; {len(pages)} of {total} pages are finished and kept in {folder}. The same "
        "command uses them, and runs the rest."
    )


def _specs(names: tuple[str, ...] | list[str]) -> dict[str, CommandSpec]:
    """The commands of these names.

    Raises:
        InvalidInput: a name is not that of the command of an analysis.
    """
    from interp.errors import InvalidInput, shorten  # noqa: PLC0415

    specs = commands()
    for name in names:
        if name not in specs:
            raise InvalidInput(f"--section {shorten(name)} is not one of {', '.join(specs)}.")
    return {name: specs[name] for name in names}


def _run(
    specs: Mapping[str, CommandSpec], shared: Mapping[str, Any]
) -> "tuple[dict[str, AnalysisRun], dict[str, str]]":
    """Run each analysis; returns the runs, and the reasons why analyses were left out.

    Sections differ in length, so each has its own progress, and its time is printed.

    Raises:
        InvalidInput: all analyses were left out.
    """
    from apps.commands.analysis_run import AnalysisRun, Settings  # noqa: PLC0415
    from interp.errors import InvalidInput  # noqa: PLC0415

    runs: dict[str, AnalysisRun] = {}
    left_out: dict[str, str] = {}
    for number, (name, spec) in enumerate(specs.items(), 1):
        label = f"Section {number} of {len(specs)}, {name}"
        try:
            settings = Settings(spec, options=spec.options(shared["model"], {}), **shared)
            with progress(label) as tick:
                earlier = {name: run.result for name, run in runs.items()}
                runs[name] = _run_with_what_it_takes(settings, tick, earlier)
        except InvalidInput as error:
            left_out[name] = str(error)
        else:
            print_stderr(f"{label}: {runs[name].seconds:.0f} s")
    if not runs:
        raise InvalidInput("; ".join(f"{name}: {reason}" for name, reason in left_out.items()))
    return runs, left_out


def _run_with_what_it_takes(
    settings: "Settings", tick: Tick, earlier: "Mapping[str, Result]"
) -> "AnalysisRun":
    """Run an analysis, without ``--rows`` or ``--memory`` if it takes no such setting."""
    from apps.commands.analysis_run import run_analysis  # noqa: PLC0415
    from apps.commands.inputs import OptionWithoutEffect  # noqa: PLC0415

    try:
        return run_analysis(settings, tick, earlier=earlier)
    except OptionWithoutEffect as error:
        return _run_with_what_it_takes(replace(settings, **{error.option: None}), tick, earlier)


def _write(runs: "Mapping[str, AnalysisRun]", left_out: Mapping[str, str], folder: Path) -> None:
    """Write the page, and for each section a folder with its tables and ``run.json``."""
    from apps.commands.outputs import to_report, write_run, write_tables  # noqa: PLC0415
    from apps.report.sections import Section, sections_page  # noqa: PLC0415

    for name, run in runs.items():
        (folder / name).mkdir()
        write_tables(run, folder / name)
        write_run(run, folder / name)
    page = sections_page([Section(name, to_report(run)) for name, run in runs.items()], left_out)
    (folder / "report.html").write_text(page, encoding="utf-8", errors="backslashreplace")
