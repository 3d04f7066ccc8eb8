"""``interp report``: several analyses of a model on one page."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands import COMMANDS
from apps.commands.command import DEFAULT_MODEL, Device, Model, Question, question_of
from apps.terminal import Tick, print_stdout, progress

if TYPE_CHECKING:
    from apps.commands.analysis_run import AnalysisRun

SECTIONS = (
    "roles",
    "ablate",
    "attribute",
    "explain",
    "circuits",
    "order",
)
"""The commands whose results are on the page if none are asked for, in its order."""


def report(
    *,
    model: Model = DEFAULT_MODEL,
    section: Annotated[
        list[str] | None,
        typer.Option(
            help="The command of an analysis; may be repeated.", show_default=", ".join(SECTIONS)
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder, created if missing.", show_default="reports/MODEL"),
    ] = None,
    device: Device = "cpu",
) -> None:
    """Write one page with several analyses: roles of heads, ablation, attribution, a circuit.

    Each is that of its command without options, and has a folder with its tables.
    """
    from apps.presentation import conclusion  # noqa: PLC0415
    from interp.atomic_folder import atomic_folder  # noqa: PLC0415

    questions = _questions(section or SECTIONS)
    place = out or Path("reports") / Path(model).resolve().name
    with atomic_folder(place) as temporary:
        with progress("Writing sections") as tick:
            runs, left_out = _run(questions, model, device, tick)
        _write(runs, left_out, temporary)
    for name, run in runs.items():
        print_stdout(f"{name}: {conclusion(run.result)}")
    for name, reason in left_out.items():
        print_stdout(f"{name}: left out. {reason}")
    print_stdout(f"Report: {place / 'report.html'}")


def _questions(names: tuple[str, ...] | list[str]) -> dict[str, Question]:
    """What the commands of these names ask.

    Raises:
        InvalidInput: a name is that of no command of an analysis.
    """
    from interp.errors import InvalidInput, shorten  # noqa: PLC0415

    known = {command.__name__: question_of(command) for command in COMMANDS}
    for name in names:
        if name not in known:
            raise InvalidInput(f"--section {shorten(name)} is not one of {', '.join(known)}.")
    return {name: known[name] for name in names}


def _run(
    questions: Mapping[str, Question], model: str, device: str, tick: Tick
) -> "tuple[dict[str, AnalysisRun], dict[str, str]]":
    """The run of each analysis; and why others are refused.

    Raises:
        InvalidInput: all of them are.
    """
    from apps.commands.analysis_run import AnalysisRun, Settings, run_analysis  # noqa: PLC0415
    from interp.errors import InvalidInput  # noqa: PLC0415

    runs: dict[str, AnalysisRun] = {}
    left_out: dict[str, str] = {}
    for done, (name, question) in enumerate(questions.items()):
        tick(done, len(questions), name)
        options = question.defaults(model)
        try:
            settings = Settings(name, model, None, options, device, question.reads)
            runs[name] = run_analysis(question.analysis, settings)
        except InvalidInput as error:
            left_out[name] = str(error)
    if not runs:
        raise InvalidInput("; ".join(f"{name}: {reason}" for name, reason in left_out.items()))
    return runs, left_out


def _write(runs: "Mapping[str, AnalysisRun]", left_out: Mapping[str, str], folder: Path) -> None:
    """The page, and a folder for each section with its tables and ``run.json``."""
    from apps.commands.outputs import to_report, write_run, write_tables  # noqa: PLC0415
    from apps.report.sections import Section, sections_page  # noqa: PLC0415

    for name, run in runs.items():
        (folder / name).mkdir()
        write_tables(run, folder / name)
        write_run(run, folder / name)
    page = sections_page([Section(name, to_report(run)) for name, run in runs.items()], left_out)
    (folder / "report.html").write_text(page, encoding="utf-8", errors="backslashreplace")
