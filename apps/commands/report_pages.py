"""The pages of a site: computed, or copied from an earlier site if nothing changed."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import torch

import analyses
import apps
import interp
from apps.commands.analysis_run import AnalysisRun, Settings, run_analysis
from apps.commands.options import FILES
from apps.commands.outputs import to_report, write_run, write_tables
from apps.presentation import conclusion, table
from apps.report import write_report
from apps.report.site import MAX_BYTES, PAGE_FACTS, PageFacts
from apps.terminal import Tick
from interp.errors import InvalidInput
from interp.io import UNREADABLE, atomic_folder, read_json
from interp.loading import AT_STEP, MODEL_FOLDER, PACKAGED, bundled, hub
from interp.prompts import path_of_prompts

HOME = "../index.html"


@dataclass(frozen=True)
class Written:
    """The pages of a site.

    Attributes:
        pages: the pages, by the name of their folder.
        left_out: the reason for each page that was left out, since the model or its prompts do not
            allow it.
        computed: the names of the pages that were computed.
    """

    pages: dict[str, PageFacts]
    left_out: dict[str, str]
    computed: tuple[str, ...]


def write_pages(
    settings: Mapping[str, Settings],
    folder: Path,
    earlier: tuple[Path, ...],
    finished: Path,
    tick: Tick,
) -> Written:
    """Write a folder for each page.

    Args:
        settings: the settings of the pages, by the names of their folders.
        folder: the folder of the site.
        earlier: folders of sites whose pages are copied if nothing changed.
        finished: where each page is written first, so that it is kept if a later one is
            interrupted.
        tick: called with the number of finished pages and the total.

    Raises:
        InvalidInput: all pages were left out.
    """
    pages: dict[str, PageFacts] = {}
    left_out: dict[str, str] = {}
    computed: list[str] = []
    for done, (name, page_settings) in enumerate(settings.items()):
        tick(done, len(settings), name)
        key = key_of(page_settings)
        sites = (*earlier, finished)
        source = next((site / name for site in sites if _key_in(site / name) == key), None)
        if source is None:
            try:
                run = run_analysis(page_settings)
            except InvalidInput as error:
                left_out[name] = str(error)
                continue
            source = finished / name
            with atomic_folder(source) as temporary:
                write_page(run, key, temporary)
            computed.append(name)
        shutil.copytree(source, folder / name)
        pages[name] = PageFacts.read(folder / name)
    if not pages:
        raise InvalidInput("; ".join(f"{name}: {why}" for name, why in left_out.items()))
    return Written(pages, left_out, tuple(computed))


def write_page(run: AnalysisRun, key: str, folder: Path) -> None:
    """Write the files of a page: those of its command, and the facts that the index lists."""
    write_tables(run, folder)
    write_run(run, folder)
    write_report(to_report(run, home=HOME), folder / "report.html")
    columns, rows = table(run.result)
    facts = PageFacts.of(run.result, columns, rows, conclusion(run.result))
    contents = {"key": key, **facts.plain()}
    text = json.dumps(contents, indent=1, ensure_ascii=False)
    (folder / PAGE_FACTS).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def key_of(settings: Settings) -> str:
    """A hash of all that a page depends on: settings, files, the commit of a hub model, code."""
    depends = {
        "command": settings.spec.name,
        "settings": settings.plain(),
        "files": {name: _content(name, value) for name, value in settings.plain().items()},
        "code": _code(),
        "torch": torch.__version__,
    }
    return sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()


def _key_in(folder: Path) -> str | None:
    """The key of an existing page; ``None`` if there is no such page, or it can't be copied."""
    try:
        if folder.is_symlink() or not all(map(_is_plain, folder.rglob("*"))):
            return None
        PageFacts.read(folder)
        return read_json(folder / PAGE_FACTS, MAX_BYTES)["key"]
    except (*UNREADABLE, InvalidInput):
        return None


def _is_plain(path: Path) -> bool:
    return not path.is_symlink() and (path.is_file() or path.is_dir())


def _content(name: str, value: Any) -> str | None:  # noqa: ANN401 - any option
    """The hash of the file or folder that an option names; ``None`` if it names neither.

    A model of the hub is identified by its commit, and downloaded if the cache lacks it.
    """
    if name not in FILES or not isinstance(value, str):
        return None
    if value.startswith(hub.PREFIX):
        return hub.fetch(value)[1]
    at_step = AT_STEP.fullmatch(value)
    model = at_step["model"] if at_step else value
    if value in PACKAGED:
        return PACKAGED[value].distribution
    path = MODEL_FOLDER / model if model in bundled() else path_of_prompts(value)
    return _hash(path.resolve()) if path.exists() else None


@cache
def _hash(path: Path) -> str:
    """The hash of a file, or of all files below a folder."""
    if path.is_file():
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    files = sorted(file for file in path.rglob("*") if file.is_file())
    lines = (f"{file.relative_to(path)} {_hash(file)}" for file in files)
    return sha256("\n".join(lines).encode()).hexdigest()


@cache
def _code() -> str:
    """The hash of the Python files of these packages."""
    roots = [Path(package.__file__ or "").parent for package in (interp, analyses, apps)]
    files = sorted(file for root in roots for file in root.rglob("*.py"))
    return sha256("\n".join(_hash(file) for file in files).encode()).hexdigest()
