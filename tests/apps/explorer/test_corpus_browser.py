"""The page Corpus in a browser: a click on a point chooses the head on all pages."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tools.browser import TIMEOUT, Served, Visit, visit

pytestmark = pytest.mark.browser

MODEL = "induction-by-hand"


@pytest.fixture
def visitor(chromium: Browser, server: Served) -> Iterator[Visit]:
    with visit(chromium, server) as visitor:
        yield visitor
        assert not visitor.outside
        assert not visitor.complaints


def rank_of(visitor: Visit) -> str:
    return visitor.view("ranking").locator(".w-note").inner_text().partition(".")[0]


def test_a_head_is_chosen_in_the_plane_by_keys_and_in_the_ranking_by_a_click(visitor, server):
    """The other pages show the same head, and the figure needs no scrolling."""
    page = visitor.page
    visitor.open(server.address(model=MODEL, page="corpus", head="L0H0"))
    visitor.view("ranking").wait_for(timeout=TIMEOUT)
    visitor.finish()
    assert rank_of(visitor).startswith("L0H0 is ")
    box = visitor.view("scatter").bounding_box()
    assert box["y"] + 380 < 800
    plot = visitor.view("scatter").locator("[tabindex='0']:not([role=region])").first
    plot.focus()
    for key in ("ArrowUp", "ArrowUp", "Enter"):
        plot.press(key)
    page.wait_for_url(lambda url: "head=L0H0" not in url, timeout=TIMEOUT)
    visitor.settle()
    row = visitor.view("ranking").locator("tr", has_text="L1H2")
    row.click()
    page.wait_for_url(lambda url: "head=L1H2" in url, timeout=TIMEOUT)
    expect(visitor.view("texts")).to_have_attribute("data-title", "Texts of L1H2, by decile")
    expect(visitor.view("ranking").locator("tr.w-chosen")).to_contain_text("L1H2")
    page.get_by_role("radio", name="Heads").click()
    visitor.view("heads").wait_for(timeout=TIMEOUT)
    expect(visitor.view("heads")).to_have_attribute("data-head", "1,2")


def test_a_token_of_a_text_shows_where_the_head_looks(visitor, server):
    visitor.open(server.address(model=MODEL, page="corpus", head="L1H0"))
    visitor.view("texts").wait_for(timeout=TIMEOUT)
    visitor.finish()
    texts = visitor.view("texts")
    texts.locator(".w-text .w-token").nth(5).hover()
    expect(visitor.page.locator(".w-tip:visible")).to_contain_text("position 5")
