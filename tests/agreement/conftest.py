"""Prints the largest error of each family; writes docs/reference/models.md if asked to."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from agreement.comparing import WORST
from agreement.table import to_markdown, to_text

LEFT_OUT = pytest.mark.filterwarnings(
    "ignore:.* is left out:UserWarning",
    "ignore:.* the context ends at:UserWarning",
    "ignore::interp.errors.IgnoredFieldsWarning",
)
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "models.md"


def pytest_collection_modifyitems(items):
    """Ignore warnings about parts and fields that are left out, which tests/loading checks."""
    for item in items:
        if "agreement" in item.keywords:
            item.add_marker(LEFT_OUT)


@pytest.hookimpl
def pytest_terminal_summary(terminalreporter, config):
    if not WORST:
        return
    terminalreporter.section("largest difference from Hugging Face, float64, of the largest number")
    terminalreporter.write_line(to_text(WORST))
    if config.getoption("--write-models"):
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(to_markdown(WORST), encoding="utf-8")
        terminalreporter.write_line(f"written to {DOCUMENT}")
