"""Stories, differences and a server that stops, in a real browser."""

import json
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, expect

from tools.browser import TIMEOUT, Served, Visit, served, visit

pytestmark = pytest.mark.browser

MODEL = "induction-by-hand"
TEXT = "abcdefab"
EVIL = "</script><img src=x onerror=alert(1)> \u05e9\u05dc\u05d5\u05dd \u202e\u200b"


@pytest.fixture
def visitor(chromium: Browser, server: Served) -> Iterator[Visit]:
    with visit(chromium, server) as visitor:
        yield visitor
        assert not visitor.outside
        assert not visitor.complaints


def panel(visitor: Visit) -> None:
    """Open the story's panel."""
    field = visitor.page.get_by_role("button", name="Open a story file")
    if not field.is_visible():
        visitor.page.locator("[class*=st-key-story_panel] summary").click()
    field.wait_for(timeout=TIMEOUT)


def saved(visitor: Visit, button: str, file: Path) -> Path:
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name=button, exact=True).click()
    download.value.save_as(file)
    return file


def test_a_story_is_exported_opens_from_a_file_and_outlives_a_reload(
    visitor, server, chromium, tmp_path
):
    page = visitor.page
    visitor.open(server.address(model=MODEL, page="heads", text=TEXT, head="L1H0"))
    visitor.finish()
    panel(visitor)
    page.get_by_label("A sentence about this view", exact=True).fill(EVIL)
    page.get_by_role("button", name="Add this view").click()
    page.get_by_text("Added.").wait_for(timeout=TIMEOUT)
    page.reload()
    page.get_by_text("Story: 1 view").wait_for(timeout=TIMEOUT)
    visitor.settle()
    page.get_by_role("radio", name="Story", exact=True).click()
    page.wait_for_url(lambda url: "page=story" in url, timeout=TIMEOUT)
    visitor.view("heads").wait_for(timeout=TIMEOUT)
    visitor.finish()
    html = saved(visitor, "HTML page", tmp_path / "story.html")
    file = saved(visitor, "JSON", tmp_path / "story.json")
    figures = saved(visitor, "Save all figures as SVG (zip)", tmp_path / "figures.zip")
    with zipfile.ZipFile(figures) as archive:
        assert archive.testzip() is None
        assert len(archive.namelist()) == 3
        for name in archive.namelist():
            assert ElementTree.fromstring(archive.read(name)).tag.endswith("svg")
    page.get_by_role("button", name="Remove", exact=True).click()
    page.get_by_text("This story has no views yet").wait_for(timeout=TIMEOUT)
    panel(visitor)
    page.locator("input[type=file]").set_input_files(file)
    page.get_by_text("Story: 1 view").wait_for(timeout=TIMEOUT)
    assert json.loads(file.read_text())["views"][0]["sentence"] == EVIL

    alone = chromium.new_context(offline=True).new_page()
    complaints: list[str] = []
    alone.on("console", lambda message: complaints.append(message.text))
    alone.on("pageerror", lambda error: complaints.append(str(error)))
    alone.goto(html.as_uri())
    heads = alone.locator("[data-view=heads][data-ready=true]")
    expect(heads).to_have_attribute("data-head", "1,0")
    heads.locator("[tabindex='0']").first.press("}")
    expect(heads).to_have_attribute("data-head", "1,1")
    assert alone.locator(".sentence").text_content() == EVIL
    assert alone.locator("img").count() == 0
    assert complaints == []
    alone.context.close()


def test_a_difference_is_drawn_in_place_of_both_and_its_link_too(visitor, server):
    page = visitor.page
    ablated = {"heads": "L0H0", "ablated": "True"}
    pinned = f"page=heads&model={MODEL}&text={TEXT}"
    view = {"model": MODEL, "page": "heads", "text": TEXT, "head": "L1H0", **ablated}
    visitor.open(server.address(**view, pinned=pinned))
    visitor.finish()
    expect(visitor.view("heads")).to_have_count(2)
    page.get_by_role("radio", name="A − B").click()
    page.wait_for_url(lambda url: "subtract=True" in url, timeout=TIMEOUT)
    visitor.finish()
    for _ in range(2):
        heads = visitor.view("heads")
        expect(heads).to_have_count(1)
        expect(heads).to_have_attribute("data-title", f"A − B: {MODEL}: attention of each head")
        expect(heads.locator(".w-legend")).to_have_attribute(
            "aria-label", re.compile(r"^from −[\d.]+ to [\d.]+ attention, A − B$")
        )
        expect(heads.locator(".w-run")).to_contain_text("L0H0 ablated (mean)")
        # The induction head loses its pattern without the previous-token head.
        heads.locator(".w-right [tabindex='0']").press("ArrowUp")
        assert abs(float(heads.get_attribute("data-value"))) <= 1
        visitor.open(page.url)


def test_a_server_that_stops_is_named_and_a_reload_restores_the_view(chromium, tmp_path):
    with served(MODEL, folder=tmp_path) as first:
        port = first.url.rpartition(":")[2]
        with visit(chromium, first) as visitor:
            page = visitor.page
            visitor.open(first.address(model=MODEL, page="heads", text=TEXT, head="L1H2"))
            visitor.finish()
            message = page.get_by_text("server has stopped")
            assert message.count() == 0
            first.process.terminate()
            first.process.wait(timeout=30)
            message.wait_for(timeout=TIMEOUT)
            expect(page.locator("[data-testid=stDialog]:visible")).to_have_count(0)
            command = [*first.process.args]
            assert port in command
            again = subprocess.Popen(
                command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                expect(message).to_have_count(0, timeout=TIMEOUT)
                page.reload()
                page.wait_for_selector("[data-view][data-ready=true]", timeout=TIMEOUT)
                visitor.settle()
                expect(visitor.view("heads")).to_have_attribute("data-head", "1,2")
                assert page.get_by_label("Prompt", exact=True).input_value() == TEXT
            finally:
                again.terminate()
                again.wait(timeout=30)
