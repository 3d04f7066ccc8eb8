"""Memory, disks, folders and the browser."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import typer

from apps.commands.options import parse_bytes
from apps.doctor.finding import Finding, as_expected, warning

REPORTS = Path("reports")
"""The folder that commands write to by default."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
GIB = 2**30
EXPLORER = "INTERP_EXPLORE_MEMORY"
"""The environment variable with the memory that the explorer may use for what it keeps."""
LITTLE_MEMORY, LITTLE_DISK = 2 * GIB, GIB


def places() -> Iterator[Finding]:
    """The findings of this module's checks except :func:`memory`, for the current folder."""
    yield writable("working folder", Path.cwd(), "choose another folder with --out")
    yield disk(REPORTS.absolute(), shutil.disk_usage(existing(REPORTS.absolute())).free)
    yield hub_cache()
    yield browser(find_browser())


def memory_here() -> Iterator[Finding]:
    """:func:`memory` and :func:`explorer` for this machine."""
    from apps.devices import free_memory  # noqa: PLC0415

    free = free_memory()
    yield memory(free)
    yield explorer(free, os.environ.get(EXPLORER))


def memory(free: int) -> Finding:
    """Whether there is enough free memory, in bytes."""
    state = f"{free / GIB:.1f} GiB free"
    if free < LITTLE_MEMORY:
        advice = "Sweeps run in smaller batches and are slow: close other programs."
        return warning("memory", state, advice)
    return as_expected("memory", state)


def explorer(free: int, setting: str | None) -> Finding:
    """How much the explorer would keep for its visitors if it were started now.

    Args:
        free: free memory in bytes.
        setting: the value of ``INTERP_EXPLORE_MEMORY``; ``None`` if it is not set.
    """
    from apps.devices import default_budget  # noqa: PLC0415

    rest = "beside its models; interp explore --memory sets another"
    if setting is None:
        budget = default_budget(free)
        state = f"keeps up to {budget / GIB:.1f} GiB, a quarter of the free memory, {rest}"
        return as_expected("explorer", state)
    try:
        budget = parse_bytes(setting)
    except typer.BadParameter as error:
        return warning("explorer", f"{EXPLORER}: {error.message}", f"Change or unset {EXPLORER}.")
    state = f"keeps up to {budget / GIB:.1f} GiB ({EXPLORER}={setting}) {rest}"
    if budget > free:
        return warning("explorer", state, f"That is more than is free: lower {EXPLORER}.")
    return as_expected("explorer", state)


def existing(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def disk(folder: Path, free: int) -> Finding:
    """Whether there is enough space, in bytes, in the folder that commands write to by default."""
    state = f"{free / GIB:.1f} GiB free for {folder}"
    if free < LITTLE_DISK:
        return warning("disk", state, "Free some space, or choose another disk with --out.")
    return as_expected("disk", state)


def writable(what: str, folder: Path, otherwise: str) -> Finding:
    """Whether files can be written in a folder; writes a temporary one."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"interp")
            file.flush()
    except OSError as error:
        reason = error.strerror or str(error)
        advice = f"Make it writable, or {otherwise}."
        return warning(what, f"{folder} can't be written: {reason}", advice)
    return as_expected(what, f"{folder} can be written")


def hub_cache() -> Finding:
    """Where models of the Hugging Face hub are cached, and whether they can be downloaded."""
    from huggingface_hub import constants  # noqa: PLC0415 - slow to import

    folder = Path(constants.HF_HUB_CACHE)
    finding = writable("hub cache", existing(folder), "set HF_HOME to another folder")
    if finding.advice:
        return finding
    models = len(list(folder.glob("models--*")))
    offline = "; HF_HUB_OFFLINE is set: nothing is downloaded" if constants.HF_HUB_OFFLINE else ""
    return as_expected("hub cache", f"{models} models in {folder}{offline}")


def find_browser() -> str | None:
    """The path of Chromium or Chrome; ``None`` if there is neither."""
    named = os.environ.get("BROWSER_PATH")  # read by Kaleido
    browsers = [
        path for path in map(shutil.which, [*([named] if named else []), *BROWSERS]) if path
    ]
    return browsers[0] if browsers else None


def browser(path: str | None) -> Finding:
    """Whether there is a browser that can be automated."""
    if path is None:
        return warning(
            "Chromium",
            "not found; only needed for PNG files of Plotly figures and for the browser tests. "
            "Reports and the explorer open in any browser",
            "Install it with apt install chromium, or with plotly_get_chrome",
        )
    return as_expected("Chromium", path)
