"""The reports given on the command line; a link can name one of them, but never a file."""

from pathlib import Path

from apps.explorer.store import stored
from apps.report.written import Written, read_written

_paths: list[Path] = []


def open_reports(paths: list[Path]) -> None:
    """Offer the reports at these paths."""
    _paths[:] = paths


def reports() -> dict[str, Written]:
    """The reports, by unique names.

    Raises:
        InvalidInput: a report can no longer be read.
    """
    return _read(tuple(_paths))


@stored
def _read(paths: tuple[Path, ...]) -> dict[str, Written]:
    named: dict[str, Written] = {}
    for report in (report for path in paths for report in read_written(path)):
        again = sum(name.partition(" (")[0] == report.name for name in named)
        named[f"{report.name} ({again + 1})" if again else report.name] = report
    return named
