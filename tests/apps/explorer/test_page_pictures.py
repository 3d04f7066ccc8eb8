"""Each page looks as in its stored picture, in light, narrow and dark windows."""

from collections.abc import Iterator
from itertools import chain, count, repeat
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser

from tools.browser import Served, served
from tools.page_pictures import (
    FOLDER,
    MODEL,
    PAGES,
    WINDOWS,
    difference,
    pictures_of,
    unchanging_screenshot,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(MODEL) as running:
        yield running


def stored(page: str = "heads", window: str = "light") -> Image.Image:
    return Image.open(FOLDER / f"{page}-{window}.png").convert("RGB")


@pytest.mark.browser
@pytest.mark.parametrize(
    "windows",
    [
        pytest.param(("light",), marks=pytest.mark.slow, id="light"),
        pytest.param(("narrow", "dark"), marks=pytest.mark.nightly, id="narrow, dark"),
    ],
)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_looks_as_in_its_picture(page, windows, chromium: Browser, server: Served, tmp_path):
    for name, picture in pictures_of(chromium, server, page, windows):
        picture.save(tmp_path / name)
        changed = difference(picture, Image.open(FOLDER / name))
        assert not changed.is_large, (
            f"{name}: {changed.share:.1%} differ within {changed.where}; see {tmp_path / name}. If "
            "it should look so: python -m tools.page_pictures"
        )


def test_each_page_has_its_pictures_and_no_other():
    names = {f"{page}-{window}.png" for page in PAGES for window in WINDOWS}
    assert {file.name for file in FOLDER.iterdir()} == names


def changed_by(change) -> bool:
    pixels = np.asarray(stored(), dtype=int).copy()
    changed = np.clip(change(pixels), 0, 255).astype(np.uint8)
    return difference(Image.fromarray(changed), stored()).is_large


def test_a_blank_map_is_a_difference():
    def blank(pixels):
        pixels[40:51, 42:92] = 255
        return pixels

    assert changed_by(blank)


def test_a_figure_that_has_moved_is_a_difference():
    assert changed_by(lambda pixels: np.roll(pixels, 2, axis=0))


def test_another_shade_of_letters_is_no_difference():
    noise = np.random.default_rng(0)
    assert not changed_by(lambda pixels: pixels + noise.integers(-20, 20, pixels.shape))


def test_a_page_of_another_size_is_a_difference():
    assert difference(stored("heads", "narrow"), stored()).is_large
    longer = stored().resize((stored().width, stored().height * 2))
    assert difference(longer, stored()).is_large


def visitor_who_sees(screenshots: Iterator[bytes]) -> Any:
    """A visitor of a page that looks different at each screenshot."""
    page = SimpleNamespace(screenshot=lambda: next(screenshots))
    return SimpleNamespace(page=page, finish=lambda: None)


def test_a_page_is_pictured_when_two_screenshots_in_a_row_are_equal():
    moving = iter([b"narrow", b"wider", b"wide"])
    assert unchanging_screenshot(visitor_who_sees(chain(moving, repeat(b"drawn")))) == b"drawn"


def test_a_page_that_changes_without_end_is_refused():
    with pytest.raises(TimeoutError, match="still changes"):
        unchanging_screenshot(visitor_who_sees(str(n).encode() for n in count()))
