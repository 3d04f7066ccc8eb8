"""A pytest plugin that writes the events of the GPU-marked tests as lines of JSON.

    python -m pytest -p tools.gpu.plugin --gpu-events FILE ...

Each line is flushed, so that the file of a killed run has all events up to then.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from tools.gpu.hypothesis_stand_in import install
from tools.gpu.marked_tests import MARK

# Before any conftest.py is imported.
install()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the name of the file."""
    parser.addoption("--gpu-events", type=Path, help="write events as lines of JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Start writing if a file is given, and accept the mark of pytest-timeout without it."""
    config.addinivalue_line("markers", "timeout(seconds): of pytest-timeout")
    if path := config.getoption("--gpu-events"):
        config.pluginmanager.register(EventWriter(path))


class EventWriter:
    """Writes an event for each file that fails to import, each marked test and each warning."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _write(self, **event: Any) -> None:  # noqa: ANN401 - JSON
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write that a file cannot be imported."""
        if report.failed:
            self._write(event="not collected", file=report.nodeid, text=report.longreprtext)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Write all marked tests, before other plugins deselect some of them."""
        for item in items:
            if item.get_closest_marker(MARK):
                self._write(event="collected", test=item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the outcome of a test: of its call, or of a setup or teardown that did not pass."""
        if report.when == "call" or not report.passed:
            self._write(
                event="outcome",
                test=report.nodeid,
                outcome=report.outcome,
                seconds=report.duration,
                text=_reason(report),
            )

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        """Write a warning with its category."""
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        self._write(event="warning", text=text)


def _reason(report: pytest.TestReport) -> str:
    """Why a test was skipped, or the text of its failure."""
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    return report.longreprtext
