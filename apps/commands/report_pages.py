"""The pages of a site: run, or taken from an earlier site where nothing changed."""

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
from apps.report.site import PAGE_FACTS, PageFacts
from apps.terminal import Tick
from interp.atomic_folder import atomic_folder
from interp.errors import InvalidInput
from interp.loading import AT_STEP, MODEL_FOLDER, bundled, hub
from interp.text.prompts import path_of_prompts

HOME = "../index.html"


@dataclass(frozen=True)
class Written:
    """The pages of a site.

    Attributes:
        pages: by the name of their folder.
        left_out: of pages that a model or its prompts do not allow, why.
        computed: the names of the pages that were run.
    """

    pages: dict[str, PageFacts]
    left_out: dict[str, str]
    computed: tuple[str, ...]


def write_pages(
    settings: Mapping[str, Settings],
    folder: Path,
    earlier: tuple[Path, ...],
    kept: Path,
    tick: Tick,
) -> Written:
    """Write a folder for each page.

    Args:
        settings: of the pages, by the names of their folders.
        folder: where they are written.
        earlier: folders of sites whose pages are taken where nothing changed.
        kept: where a page is written first, so that it is there if a later one is interrupted.
        tick: called with the pages done and their number.

    Raises:
        InvalidInput: all pages are refused.
    """
    pages: dict[str, PageFacts] = {}
    left_out: dict[str, str] = {}
    computed: list[str] = []
    for done, (name, own) in enumerate(settings.items()):
        tick(done, len(settings), name)
        key = key_of(own)
        source = next((one / name for one in (*earlier, kept) if _key_in(one / name) == key), None)
        if source is None:
            try:
                run = run_analysis(own)
            except InvalidInput as error:
                left_out[name] = str(error)
                continue
            source = kept / name
            with atomic_folder(source) as temporary:
                _write(run, key, temporary)
            computed.append(name)
        shutil.copytree(source, folder / name)
        pages[name] = PageFacts.read(folder / name)
    if not pages:
        raise InvalidInput("; ".join(f"{name}: {why}" for name, why in left_out.items()))
    return Written(pages, left_out, tuple(computed))


def _write(run: AnalysisRun, key: str, folder: Path) -> None:
    """The files of a page: as its command writes them, and what an index says of it."""
    write_tables(run, folder)
    write_run(run, folder)
    write_report(to_report(run, home=HOME), folder / "report.html")
    columns, rows = table(run.result)
    facts = PageFacts.of(run.result, columns, rows, conclusion(run.result))
    contents = {"key": key, **facts.plain()}
    text = json.dumps(contents, indent=1, ensure_ascii=False)
    (folder / PAGE_FACTS).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def key_of(settings: Settings) -> str:
    """A hash of all that a page's numbers depend on: files, the commit of a hub model, and code."""
    depends = {
        "command": settings.question.name,
        "settings": settings.plain(),
        "files": {name: _content(name, value) for name, value in settings.plain().items()},
        "code": _code(),
        "torch": torch.__version__,
    }
    return sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()


def _key_in(folder: Path) -> str | None:
    """The key of a page that was written; ``None`` if there is none."""
    try:
        return json.loads((folder / PAGE_FACTS).read_text(encoding="utf-8"))["key"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _content(name: str, value: Any) -> str | None:  # noqa: ANN401 - any option
    """The hash of the file or folder that an option names; ``None`` if it names none.

    A model of the hub is its name and commit. It is downloaded if the cache lacks it.
    """
    if name not in FILES or not isinstance(value, str):
        return None
    if value.startswith(hub.PREFIX):
        return hub.fetch(value)[1]
    at_step = AT_STEP.fullmatch(value)
    model = at_step["model"] if at_step else value
    path = MODEL_FOLDER / model if model in bundled() else path_of_prompts(value)
    return _hash(path.resolve()) if path.exists() else None


@cache
def _hash(path: Path) -> str:
    """Of a file, or of all files below a folder."""
    if path.is_file():
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    files = sorted(one for one in path.rglob("*") if one.is_file())
    lines = (f"{one.relative_to(path)} {_hash(one)}" for one in files)
    return sha256("\n".join(lines).encode()).hexdigest()


@cache
def _code() -> str:
    """Of the Python files of this package."""
    roots = [Path(package.__file__ or "").parent for package in (interp, analyses, apps)]
    files = sorted(file for root in roots for file in root.rglob("*.py"))
    return sha256("\n".join(_hash(file) for file in files).encode()).hexdigest()
