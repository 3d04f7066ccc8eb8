"""Screenshots of every page of the explorer, light and dark, 1280 and 400 pixels wide.

    make screenshots
    make screenshots SHOTS="--only heads,why --out /tmp/pictures"

The screenshots are for review by a person: an overlapping label, a figure without unit and an empty
corner are defects. ``--docs`` also writes the screenshots of the documentation.
"""

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from playwright.sync_api import ViewportSize

from interp.loading import PACKAGED, installed
from tools.browser import DRAWN, chromium, served, visit

WIDTHS = {1280: 800, 400: 900}
"""Width and height of the window."""
HEIGHTS = {"smollm2": 1130}
"""Heights of windows that show more: a map of 30 layers."""
SCHEMES = ("light", "dark")
ADDRESSES: dict[str, dict[str, str]] = {
    "smollm2": {
        "page": "heads",
        "model": "smollm2-135m",
        "text": "When Mary and John went to the store, John gave a drink to",
        "target": " Mary",
        "distractor": " John",
        "head": "L23H0",
    },
    "prompt": {"page": "prompt", "model": "python-4l"},
    "heads": {"page": "heads", "model": "python-4l"},
    "why": {"page": "why", "model": "python-2l"},
    "graph": {"page": "graph", "model": "python-4l", "units": "features"},
    "patch": {"page": "patch", "model": "python-2l"},
    "weights": {"page": "weights", "model": "python-2l", "head": "L1H0"},
    "composition": {"page": "weights", "model": "python-2l", "weights": "composition"},
    "positions": {"page": "weights", "model": "dates", "weights": "positions"},
    "order": {"page": "weights", "model": "rasp-reverse", "weights": "order"},
    "cross": {"page": "heads", "model": "dates", "attention": "cross"},
    "encoder": {"page": "prompt", "model": "python-mlm"},
}
FOLDER = Path("docs/images")
IN_DOCS = ("smollm2", "heads", "why", "patch", "graph", "prompt")
FIRST = ("light", 1280)
"""Colour scheme and width of the screenshots in the documentation."""
REPORT: ViewportSize = {"width": 1000, "height": 800}
"""The window of a report."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Take the screenshots."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("reports/screenshots"))
    missing = {*PACKAGED} - {*installed()}
    available = [name for name, fields in ADDRESSES.items() if fields["model"] not in missing]
    parser.add_argument("--only", default=",".join(available), help="names, separated by commas")
    parser.add_argument("--docs", action="store_true", help=f"also write {FOLDER}")
    parser.add_argument("--report", type=Path, help="take a picture of this report instead")
    options = parser.parse_args(arguments)
    if options.report:
        take_report(options.report)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    with served() as server, chromium() as browser:
        for name, scheme, width in product(options.only.split(","), SCHEMES, WIDTHS):
            size = width, HEIGHTS.get(name, WIDTHS[width])
            with visit(browser, server, viewport=size, color_scheme=scheme) as visitor:
                visitor.open(server.address(**ADDRESSES[name]))
                visitor.finish()
                file = options.out / f"{name}-{width}-{scheme}.png"
                visitor.page.screenshot(path=file, full_page=True)
                print(file)
                if options.docs and name in IN_DOCS and (scheme, width) == FIRST:
                    visitor.page.screenshot(path=FOLDER / f"explorer-{name}.png")


def take_report(report: Path) -> None:
    """Take a picture of the top of a report, for the documentation."""
    with chromium() as browser:
        page = browser.new_page(viewport=REPORT, color_scheme="light")
        page.goto(report.resolve().as_uri())
        page.wait_for_selector(DRAWN)
        page.screenshot(path=FOLDER / "report.png")


if __name__ == "__main__":
    main()
