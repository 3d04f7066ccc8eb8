"""Small pictures of the explorer's pages, against which tests compare the pages as they are drawn.

    python -m tools.page_pictures                 # draws all pages again, after a change of one
    python -m tools.page_pictures --only heads

A picture is a screenshot of the whole page in which each pixel is the mean of a square of
:data:`SQUARE` pixels. Letters are then grey, so that fonts and rounding of numbers make little
difference, while a figure that is blank, moved or of another colour makes a large one.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser

from tools.browser import Served, Visit, chromium, served, visit

FOLDER = Path(__file__).parent.parent / "tests" / "apps" / "explorer" / "pictures"
MODEL = "python-2l"
PAGES: dict[str, dict[str, str]] = {
    "prompt": {},
    "heads": {"head": "L1H0"},
    "why": {},
    "graph": {},
    "patch": {},
    "weights": {"head": "L1H0"},
    "corpus": {"head": "L1H0", "corpus": "repeated"},
}
"""The pages, each with further fields of its address."""
WINDOWS = {
    "light": (1280, "light"),
    "dark": (1280, "dark"),
    "narrow": (400, "light"),
}
"""Widths and colour schemes of windows, by name."""
HEIGHT = 800
"""The height of a window, before it becomes as high as its page."""
SCROLLED = "document.querySelector('[data-testid=stMain]').scrollHeight"
MOST_SCREENSHOTS = 60
"""Number of screenshots, half a second apart, within which a page must look the same twice."""
SQUARE = 8
"""Number of pixels along the side of a square that becomes one pixel."""
STEP = 32
"""How much a colour may differ, of 255."""
SHARE = 0.005
"""The share of a picture's pixels that may differ by more."""


@dataclass(frozen=True)
class Difference:
    """How a page differs from its picture.

    Attributes:
        share: the share of pixels whose colour differs by more than :data:`STEP`; 1 for pages of
            another size.
        where: left, top, right and bottom of the part with all of them, in pixels of the page.
    """

    share: float
    where: tuple[int, int, int, int]

    @property
    def is_large(self) -> bool:
        """Whether it is more than fonts and rounding make."""
        return self.share > SHARE


def reduced(screenshot: bytes) -> Image.Image:
    """The picture of a screenshot (PNG)."""
    image = Image.open(BytesIO(screenshot)).convert("RGB")
    size = image.width // SQUARE, image.height // SQUARE
    return image.crop((0, 0, size[0] * SQUARE, size[1] * SQUARE)).resize(size, Image.Resampling.BOX)


def difference(picture: Image.Image, stored: Image.Image) -> Difference:
    """Compare two pictures; a line more or less at the end of a page counts as a difference."""
    after, before = (np.asarray(image.convert("RGB"), dtype=int) for image in (picture, stored))
    height = min(len(after), len(before))
    if after.shape[1] != before.shape[1] or abs(len(after) - len(before)) > 0.1 * len(before):
        return Difference(1.0, (0, 0, picture.width * SQUARE, picture.height * SQUARE))
    differs = np.abs(after[:height] - before[:height]).max(-1) > STEP
    if not differs.any():
        return Difference(0.0, (0, 0, 0, 0))
    rows, columns = np.flatnonzero(differs.any(1)), np.flatnonzero(differs.any(0))
    left, top, right, bottom = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    where = (int(left), int(top), int(right), int(bottom))
    return Difference(float(differs.mean()), tuple(n * SQUARE for n in where))  # pyright: ignore[reportArgumentType] - four


@contextmanager
def opened(browser: Browser, server: Served, page: str) -> Iterator[Visit]:
    """A visitor of a page, once it is drawn."""
    with visit(browser, server, viewport=(1280, HEIGHT)) as visitor:
        visitor.open(server.address(model=MODEL, page=page, **PAGES[page]))
        visitor.finish()
        yield visitor


def picture_of(visitor: Visit, window: str) -> Image.Image:
    """The picture of the page that is open, in a window."""
    width, scheme = WINDOWS[window]
    visitor.page.emulate_media(color_scheme=scheme)  # pyright: ignore[reportArgumentType] - light or dark
    visitor.page.set_viewport_size({"width": width, "height": HEIGHT})
    unchanging_screenshot(visitor)
    whole = visitor.page.evaluate(SCROLLED)
    visitor.page.set_viewport_size({"width": width, "height": whole})
    return reduced(unchanging_screenshot(visitor))


def unchanging_screenshot(visitor: Visit) -> bytes:
    """A screenshot of a page (PNG), as soon as two in a row are equal.

    Figures take a new size some time after the window has it, later on a busy machine.

    Raises:
        TimeoutError: the page still changes after :data:`MOST_SCREENSHOTS`.
    """
    before = b""
    for _ in range(MOST_SCREENSHOTS):
        visitor.finish()
        screenshot = visitor.page.screenshot()
        if screenshot == before:
            return screenshot
        before = screenshot
    raise TimeoutError(f"The page still changes after {MOST_SCREENSHOTS} screenshots.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(PAGES), help="pages, separated by commas")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    with served(MODEL) as server, chromium() as browser:
        for page in options.only.split(","):
            with opened(browser, server, page) as visitor:
                for window in WINDOWS:
                    path = options.out / f"{page}-{window}.png"
                    picture_of(visitor, window).save(path, optimize=True)
                    print(path)


if __name__ == "__main__":
    main()
