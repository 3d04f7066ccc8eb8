"""The files that commands write, and read again: of a run, a page, a report, a stopped sweep."""

from functools import cache
from pathlib import Path

import torch

import interp
from apps.commands import COMMANDS
from apps.commands.analysis_run import AnalysisRun, Settings, run_analysis
from apps.commands.partial_run import PartialRun
from apps.commands.report_config import read_config
from apps.commands.report_pages import write_page
from apps.commands.written_run import read_run, what_differs
from apps.report.site import PageFacts, write_site
from apps.report.written import read_written
from interp.loading import MODEL_FOLDER

MODEL = "rasp-duplicates"
PAGE = "page"
CONFIG = """
title = "Heads"
models = ["rasp-duplicates", "python-2l"]
prompts = "letters"
seed = 1

[[analyses]]
command = "ablate"
method = "zero"

[[analyses]]
command = "circuits"
heads = ["L0H0", "L1H0"]
ov = "{head}"
"""


def write_files_of_page(folder: Path) -> None:
    """Write the folder of a page of a site, which has the files of every other run too."""
    (folder / PAGE).mkdir()
    write_page(_run(), "key", folder / PAGE)


def read_page(folder: Path) -> object:
    """Write the index, the results by head and the summary of a site with this page."""
    write_site("a", {PAGE: PageFacts.read(folder / PAGE)}, {}, folder)
    return folder


def repeat(folder: Path) -> object:
    """What ``interp repeat`` does, except that the analysis is not run again."""
    written = read_run(folder / PAGE)
    return written.name, [*written.compared(_run())], what_differs(written.contents, _run())


def read_reports(folder: Path) -> object:
    """The reports of a folder."""
    return read_written(folder)


def write_config(folder: Path) -> None:
    """Write the file that ``interp report --config`` reads."""
    (folder / "site.toml").write_text(CONFIG, encoding="utf-8")


def read_report_config(folder: Path) -> object:
    """Read that file."""
    return read_config(folder / "site.toml")


def write_partial(folder: Path) -> None:
    """Write the files of a stopped run."""
    model = interp.load(MODEL_FOLDER / MODEL)
    heads = [interp.edits.zero("z", layer=n, head=0) for n in range(model.n_layers)]
    tokens, cancelled = torch.zeros(2, 3, dtype=torch.long), iter([False, True]).__next__
    options = {"memory": 20_000, "cancelled": cancelled}
    sweep = interp.sweep(model, tokens, heads, interp.metrics.loss(), **options)
    _partial(folder).write(sweep, 10**6)


def resume(folder: Path) -> object:
    """What ``--resume`` reads."""
    return _partial(folder).read()


def _partial(folder: Path) -> PartialRun:
    return PartialRun(folder, {"model": MODEL, "seed": 0})


@cache
def _run() -> AnalysisRun:
    spec = next(command for command in COMMANDS if command.name == "ablate")
    return run_analysis(Settings(spec, MODEL, options=spec.options(MODEL, {})))
