"""Each page looks as in its stored picture, light, narrow and dark; and its texts can be read."""

from collections.abc import Iterator
from itertools import chain, count, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser
from readable import LEAST, assert_readable, contrasts

from apps.explorer import view
from apps.explorer.pages.report import REPORT
from apps.explorer.pages.story import STORY
from tools.browser import Served, Visit, visit
from tools.page_pictures import (
    FOLDER,
    MODEL,
    PAGES,
    WINDOWS,
    difference,
    opened,
    picture_of,
    unchanging_screenshot,
)


def stored(page: str = "heads", window: str = "light") -> Image.Image:
    return Image.open(FOLDER / f"{page}-{window}.png").convert("RGB")


@pytest.mark.browser
@pytest.mark.parametrize("page", PAGES)
def test_a_page_looks_as_in_its_picture_and_every_text_stands_out(
    page, chromium: Browser, server: Served, tmp_path
):
    with opened(chromium, server, page) as visitor:
        assert_looks_as_in_its_picture(visitor, page, "light", tmp_path)
        assert_readable(visitor, fewest=30)
        assert_drawn_without_a_complaint(visitor)


@pytest.mark.browser
@pytest.mark.nightly
@pytest.mark.parametrize("page", PAGES)
def test_a_page_looks_as_in_its_narrow_and_dark_pictures(
    page, chromium: Browser, server: Served, tmp_path
):
    with opened(chromium, server, page) as visitor:
        for window in ("narrow", "dark"):
            assert_looks_as_in_its_picture(visitor, page, window, tmp_path)


def assert_looks_as_in_its_picture(visitor: Visit, page: str, window: str, folder: Path) -> None:
    name = f"{page}-{window}.png"
    picture = picture_of(visitor, window)
    picture.save(folder / name)
    changed = difference(picture, stored(page, window))
    assert not changed.is_large, (
        f"{name}: {changed.share:.1%} differ within {changed.where}; see {folder / name}. If it "
        "should look so: python -m tools.page_pictures"
    )


@pytest.mark.browser
def test_every_text_of_a_story_stands_out(chromium: Browser, server: Served):
    with visit(chromium, server) as visitor:
        visitor.open(server.address(model=MODEL, page="story"))
        assert_readable(visitor, fewest=15)
        assert_drawn_without_a_complaint(visitor)


def assert_drawn_without_a_complaint(visitor: Visit) -> None:
    assert visitor.page.locator("[data-testid=stException], [data-testid=stAlert]").count() == 0
    assert visitor.received < 3e6
    assert not visitor.outside
    assert not visitor.complaints


@pytest.mark.browser
def test_a_text_that_is_hardly_darker_than_its_paper_is_found(chromium: Browser):
    """Black on white has the contrast 21; the grey #aaa has 2.3, whatever element has the white.

    A text that stands beside the black box that it is a part of is not on it.
    """
    page = chromium.new_page()
    page.set_content(
        '<body style="background: #fff"><p style="color: #000">black</p>'
        '<div><span style="color: #aaa">grey</span></div><p hidden>hidden</p>'
        '<div style="position: relative; background: #000; color: #aaa; width: 90px">on'
        '<span style="position: absolute; left: 200px; color: #000">beside</span></div></body>'
    )
    found = {text: round(ratio, 1) for ratio, text in contrasts(Visit(page))}
    assert found == {"black": 21.0, "grey": 2.3, "onbeside": 9.0, "beside": 21.0}
    assert found["grey"] < LEAST
    page.close()


def test_each_page_has_its_pictures_and_no_other():
    names = {f"{page}-{window}.png" for page in PAGES for window in WINDOWS}
    assert {file.name for file in FOLDER.iterdir()} == names
    assert {*PAGES, STORY.name, REPORT.name} == set(view.PAGES)


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
