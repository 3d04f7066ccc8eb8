"""The built documentation in a browser, opened as files: light and dark, wide and narrow.

Run by ``make docs``, which builds it. Pictures of them go to ``build/site-pictures``.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tools.browser import TIMEOUT, chromium

pytestmark = pytest.mark.site
ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "docs"
PICTURES = ROOT / "build" / "site-pictures"
PAGES = {
    "first": "index.html",
    "tutorial": "tutorials/a-circuit.html",
    "how-to": "how-to/from-transformerlens.html",
    "explanation": "explanation/cache.html",
    "reference": "reference/api/execution.html",
    "analyses": "reference/analyses/index.html",
    "analysis": "reference/analyses/neurons.html",
    "notebook": "notebooks/2-induction-heads.html",
}
"""A page of each kind."""
PICTURED = 1800
"""Pixels from the top that a picture has."""
SCHEMES = ("light", "dark")
WIDTHS = (1280, 400)
CONTRAST = 4.5
"""Of text and its background (WCAG 2.2, level AA)."""
LUMINANCES = """element => {
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const luminance = colour => {
        canvas.fillStyle = colour;  // drawn over what is there already
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(x => x / 255)
            .map(x => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b;
    };
    const page = luminance(getComputedStyle(document.body).backgroundColor);
    return [luminance(getComputedStyle(element).color), page];
}"""
"""Of a text, where it is transparent over the page, and of the page."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert (SITE / "index.html").is_file(), "make docs builds the site and runs these tests"
    PICTURES.mkdir(exist_ok=True)
    with chromium() as launched:
        yield launched


@pytest.fixture
def opened(browser):
    """Open a page; at the end of the test, it has complained of nothing and asked no host."""
    contexts, complaints, outside = [], [], []

    def open_page(path: str, *, scheme: str = "light", width: int = 1280) -> Page:
        context = browser.new_context(
            color_scheme=scheme,  # type: ignore[arg-type]
            viewport={"width": width, "height": 900},
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        context.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(("file:", "data:", "blob:"))
                else outside.append(request.url)
            ),
        )
        page.goto((SITE / path).as_uri())
        page.wait_for_load_state("load")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints
    assert not outside


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_window_and_is_readable(opened, name, scheme, width):
    page = opened(PAGES[name], scheme=scheme, width=width)
    clip = {"x": 0, "y": 0, "width": width, "height": PICTURED}
    picture = PICTURES / f"{name}-{scheme}-{width}.png"
    page.screenshot(path=picture, full_page=True, clip=clip)  # type: ignore[arg-type]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert all(page.eval_on_selector_all("img", "all => all.map(one => one.naturalWidth)"))
    text, background = page.locator("article p").first.evaluate(LUMINANCES)
    assert (max(text, background) + 0.05) / (min(text, background) + 0.05) >= CONTRAST
    assert (background < 0.5) == (scheme == "dark")


def test_the_first_page_leads_to_the_others(opened):
    page = opened("index.html")
    targets = page.eval_on_selector_all("a[href]", "all => all.map(one => one.href)")
    files = {target.split("#")[0] for target in targets if target.startswith("file:")}
    assert len(files) > len(PAGES)
    for target in files:
        assert Path(target.removeprefix("file://")).is_file(), target


def test_the_search_finds_a_page_without_a_server(opened):
    page = opened("index.html")
    box = page.get_by_role("textbox", name="Search")
    box.click()
    box.press_sequentially("induction heads")
    first_result = page.locator(".md-search-result__item a").first
    first_result.wait_for(timeout=TIMEOUT)
    assert "induction" in page.locator(".md-search-result__list").inner_text().lower()
