"""The explorer in a real browser: links, Back, jobs, keys, errors, and nothing sent elsewhere."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from layout_shifts import assert_little_moved, watch_layout_shifts
from playwright.sync_api import Browser, FloatRect, Locator, expect

import interp
from analyses import ablate, attention_pattern
from apps.explorer.view import from_address
from interp.loading import load
from tools.browser import TIMEOUT, Served, Visit, served, visit

pytestmark = pytest.mark.browser

MODEL = "induction-by-hand"
TEXT = "abcdefab"
CLICK = 12_000
"""The most bytes that a click on a head may take; the widget's script alone has 119 kB."""
EVIL = "</script><img src=x onerror=alert(1)>"


@pytest.fixture
def visitor(chromium: Browser, server: Served) -> Iterator[Visit]:
    """A visitor who may have met no error, and asked nobody else, at the end."""
    with visit(chromium, server) as visitor:
        yield visitor
        assert not visitor.outside
        assert not visitor.complaints


def opened(visitor: Visit, server: Served, **fields: object) -> Visit:
    visitor.open(server.address(model=MODEL, **fields))
    return visitor


def chosen_head(visitor: Visit) -> str:
    return str(visitor.view("heads").get_attribute("data-head"))


def press(visitor: Visit, view: str, *keys: str) -> None:
    """Press keys on a view's own tab stop."""
    box = visitor.view(view).locator("[tabindex='0']:not([role=region])").first
    box.focus()
    for key in keys:
        box.press(key)


def address(visitor: Visit) -> dict[str, str]:
    """The query parameters of the address bar."""
    from urllib.parse import parse_qsl, urlsplit  # noqa: PLC0415

    return dict(parse_qsl(urlsplit(visitor.page.url).query))


def until_address(visitor: Visit, name: str, value: str) -> None:
    visitor.page.wait_for_url(lambda url: f"{name}={value}" in url, timeout=TIMEOUT)
    visitor.settle()


def test_a_page_is_drawn_without_a_complaint(visitor, server):
    """Each page is, in test_page_pictures.py."""
    visitor.open(server.address(model="rasp-duplicates", page="patch"))
    visitor.finish()
    assert visitor.page.locator("[data-testid=stException], [data-testid=stAlert]").count() == 0
    assert visitor.received < 3e6


def test_a_head_is_chosen_in_the_browser_and_followed_by_the_address(visitor, server):
    """The server then sends what has changed alone: no script, no patterns, no scores."""
    opened(visitor, server, page="heads", text=TEXT, head="L0H1")
    visitor.finish()
    assert chosen_head(visitor) == "0,1"
    before = visitor.received
    press(visitor, "heads", "]")
    assert chosen_head(visitor) == "1,1"
    until_address(visitor, "head", "L1H1")
    assert 0 < visitor.received - before < CLICK


def test_each_visitor_is_new_to_the_server(chromium, server):
    """Also one who comes while another is there, or after another has left."""

    def assert_new(visitor: Visit) -> None:
        visitor.page.goto(f"{server.url}/_stcore/health")
        stored = visitor.page.evaluate("[document.cookie, ...Object.keys(localStorage)].join()")
        assert "seen" not in stored
        visitor.page.evaluate("localStorage.seen = document.cookie = 'seen=1'")
        assert visitor.page.evaluate("document.cookie + localStorage.seen").count("seen") == 2

    for _ in range(2):
        with visit(chromium, server) as first, visit(chromium, server) as second:
            assert_new(first)
            assert_new(second)


def test_back_three_times_restores_three_views(visitor, server):
    opened(visitor, server, page="heads", text=TEXT, head="L0H1")
    visitor.finish()
    seen = [address(visitor)]
    press(visitor, "heads", "]")
    until_address(visitor, "head", "L1H1")
    seen.append(address(visitor))
    visitor.page.get_by_role("radio", name="Weights").click()
    until_address(visitor, "page", "weights")
    seen.append(address(visitor))
    visitor.page.get_by_role("radio", name="Composition").click()
    until_address(visitor, "weights", "composition")
    for expected in reversed(seen):
        visitor.page.go_back()
        visitor.page.wait_for_selector("[data-view][data-ready=true]", timeout=TIMEOUT)
        visitor.settle()
        assert from_address(address(visitor)) == from_address(expected)
    expect(visitor.view("heads")).to_have_attribute("data-head", "0,1")


FOCUSED = """() => {
    let own = document.activeElement;
    while (own.shadowRoot && own.shadowRoot.activeElement) own = own.shadowRoot.activeElement;
    return Boolean(CONDITION);
}"""


def tab_until(visitor: Visit, condition: str) -> None:
    """Press Tab until the focused element, ``own``, meets a condition."""
    for _ in range(80):
        if visitor.page.evaluate(FOCUSED.replace("CONDITION", condition)):
            return
        visitor.page.keyboard.press("Tab")
    raise AssertionError(f"no tab stop with {condition}")


def test_the_keyboard_alone_leads_from_page_to_page(visitor, server):
    """Another head, a pin, the page Weights and back, without a pointer."""
    opened(visitor, server, page="heads", text=TEXT, head="L0H1")
    tab_until(visitor, "own.closest('[data-view=heads] .w-plot')")
    visitor.page.keyboard.press("]")
    until_address(visitor, "head", "L1H1")
    tab_until(visitor, "own.closest('[data-view=heads] .w-plot')")
    visitor.page.keyboard.press("p")
    until_address(visitor, "pinned", "")
    tab_until(visitor, "own.getAttribute('role') === 'radio' && own.innerText === 'Prompt'")
    for name in ("Heads", "Why", "Graph", "Patch", "Weights"):
        visitor.page.keyboard.press("ArrowRight")
        visitor.page.wait_for_function(f"document.activeElement.innerText === '{name}'")
    visitor.page.keyboard.press("Enter")
    until_address(visitor, "page", "weights")
    assert address(visitor)["head"] == "L1H1"


def test_a_link_shows_the_same_in_a_new_context(visitor, server, chromium):
    opened(visitor, server, page="heads", text=TEXT, head="L0H1")
    press(visitor, "heads", "}", "]")
    until_address(visitor, "head", "L1H2")
    with visit(chromium, server) as other:
        other.open(visitor.page.url)
        assert chosen_head(other) == chosen_head(visitor) == "1,2"
        assert address(other) == address(visitor)
        assert not other.complaints


def test_the_page_shows_the_value_of_the_analysis(visitor, server):
    """The selected cell's weight, as sent in 8 bits."""
    opened(visitor, server, page="heads", text=TEXT, head="L1H0", query=8, key=3)
    drawn = float(visitor.view("heads").get_attribute("data-value"))
    weight = attention_pattern(load(MODEL), TEXT, 1, 0).pattern[8, 3]
    assert abs(drawn - float(weight)) <= 1 / 510 + 1e-6


def test_two_contexts_ablate_differently(visitor, server, chromium):
    opened(visitor, server, page="heads", text=TEXT, method="zero", head="L0H0")
    with visit(chromium, server) as other:
        opened(other, server, page="heads", text=TEXT, method="mean", head="L0H0")
        for context, method in ((visitor, "zero"), (other, "mean")):
            context.finish()
            expect(context.view("heads").get_by_text(f"{method} ablation").first).to_be_attached()
    effects = [ablate(load(MODEL), [TEXT], method=method).effect for method in ("zero", "mean")]
    assert not torch.allclose(*effects)


def test_markup_in_a_prompt_is_text(visitor, server):
    opened(visitor, server, page="heads", text=TEXT)
    visitor.page.get_by_label("Prompt", exact=True).fill(EVIL)
    visitor.page.get_by_role("button", name="Run").click()
    visitor.page.get_by_text("can't be encoded").first.wait_for(timeout=TIMEOUT)
    assert visitor.page.locator("img[src=x]").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_window_has_no_sideways_scroll(chromium, server, scheme):
    with visit(chromium, server, viewport=(400, 900), color_scheme=scheme) as visitor:
        opened(visitor, server, page="heads", text=TEXT)
        main = visitor.page.locator("[data-testid=stMain]")
        assert main.evaluate("element => element.scrollWidth") <= 400
        ink, paper = (
            main.evaluate(
                f"element => getComputedStyle(element.closest('[data-testid=stApp]')).{name}"
            )
            for name in ("color", "backgroundColor")
        )
        assert contrast(ink, paper) >= 7
        assert not visitor.complaints


def contrast(colour: str, other: str) -> float:
    """Of two CSS colours, as WCAG 2 defines it."""
    bright, dark = sorted((luminance(colour), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_another_head_is_chosen_while_a_sweep_runs_and_cancelled_cells_stay(visitor, server):
    """A sweep that no other test asks for; Continue takes up what Cancel left."""
    view = {"model": "python-4l", "page": "heads", "prompts": "examples", "method": "resample"}
    visitor.page.goto(server.address(**view))
    # Cancelled earlier, it would have no cells that stay.
    visitor.page.get_by_text(re.compile(r"ablation: [1-9]\d* of 32")).wait_for(timeout=TIMEOUT)
    visitor.page.get_by_role("button", name="Cancel", exact=True).first.click(timeout=TIMEOUT)
    visitor.view("heads").wait_for(timeout=TIMEOUT)
    before = chosen_head(visitor)
    press(visitor, "heads", "{")
    assert chosen_head(visitor) != before
    # The rows of other jobs move the button when they end.
    visitor.finish()
    so_far = visitor.view("heads").get_by_text("heads so far")
    expect(so_far).to_have_count(1)
    visitor.page.get_by_role("button", name="Continue", exact=True).click()
    expect(so_far).to_have_count(0, timeout=TIMEOUT)


def test_from_the_strongest_head_to_the_weights_of_the_one_before_it(visitor, server, chromium):
    """Ablate an induction head and its partner; why, upstream, its OV; pin it, share the link."""
    page = visitor.page
    visitor.open(server.address(model="python-2l", page="heads"))
    visitor.finish()
    assert chosen_head(visitor) == "0,5"
    press(visitor, "heads", "s", "]", "{", "{", "{", "{", "{", "s")
    expect(visitor.view("heads")).to_have_attribute("data-head", "1,0")
    page.get_by_text("Ablate L0H5, L1H0").first.click()
    until_address(visitor, "ablated", "True")
    page.get_by_role("radio", name="Prompt", exact=True).click()
    until_address(visitor, "page", "prompt")
    page.get_by_role("radio", name="change").click()
    expect(visitor.view("tokens").get_by_text("Change of each token").first).to_be_visible()
    page.get_by_role("radio", name="Why").click()
    until_address(visitor, "page", "why")
    visitor.finish()
    # The first rows: the head that adds most, and what that head reads most of.
    press(visitor, "components", "ArrowDown", "Enter")
    until_address(visitor, "component", "L1H0")
    visitor.finish()
    press(visitor, "upstream", "ArrowDown", "Enter")
    until_address(visitor, "component", "L0H5")
    visitor.finish()
    page.get_by_role("radio", name="Weights").click()
    until_address(visitor, "page", "weights")
    expect(visitor.view("OV_out").get_by_text("L0H5").first).to_be_visible()
    press(visitor, "OV_out", "p")
    expect(visitor.view("OV_out")).to_have_count(2, timeout=TIMEOUT)
    until_address(visitor, "pinned", "")
    with visit(chromium, server) as other:
        other.open(page.url)
        expect(other.view("OV_out")).to_have_count(2, timeout=TIMEOUT)
        assert address(other) == address(visitor)
        assert not other.complaints


def test_a_pinned_view_stands_beside_the_current_one_on_one_scale(visitor, server):
    opened(visitor, server, page="heads", text=TEXT, head="L0H1", method="zero")
    visitor.finish()
    press(visitor, "heads", "p")
    expect(visitor.view("heads")).to_have_count(2, timeout=TIMEOUT)
    visitor.settle()
    visitor.page.get_by_role("radio", name="mean").click()
    # The default is not written; that of the pinned view is, and is encoded.
    visitor.page.wait_for_url(lambda url: "&method=" not in url, timeout=TIMEOUT)
    visitor.finish()
    expect(visitor.view("heads").get_by_text("zero ablation").first).to_be_attached()
    expect(visitor.view("heads").get_by_text("mean ablation").first).to_be_attached()
    again = visitor.view("heads").last.locator(".w-plot[tabindex='0']").first
    again.press("p")
    expect(visitor.view("heads")).to_have_count(1, timeout=TIMEOUT)


def test_a_new_prompt_while_a_sweep_runs_keeps_what_was_computed(visitor, server):
    """Asked again, the first sweep resumes from its cells; titles are those of the prompt shown."""
    first = server.address(model="python-4l", page="heads", prompts="examples")
    visitor.open(first)
    visitor.page.get_by_label("Prompt", exact=True).fill("def f(x):")
    visitor.page.get_by_role("button", name="Run").click()
    # The address is whole once the head of the new prompt is chosen.
    visitor.page.wait_for_url(lambda url: "def+f" in url and "head=" in url, timeout=TIMEOUT)
    visitor.settle()
    visitor.page.go_back()
    expect(visitor.page.get_by_text("heads so far")).to_have_count(0, timeout=TIMEOUT)
    visitor.finish()
    visitor.page.wait_for_url(lambda url: "def+f" not in url, timeout=TIMEOUT)


def test_what_is_typed_stays_while_cells_come(visitor, server):
    visitor.open(server.address(model="python-4l", page="heads", prompts="examples", metric="loss"))
    box = visitor.page.get_by_label("Prompt", exact=True)
    box.fill("not sent yet")
    visitor.finish()
    expect(box).to_have_value("not sent yet")


def test_a_token_in_the_middle_is_masked_by_a_double_click_and_shown_again(visitor, server):
    visitor.open(server.address(model="python-mlm", page="prompt", text="def f(x): return x"))
    visitor.finish()
    token = visitor.view("tokens").get_by_text("return", exact=False).first
    token.dblclick()
    visitor.page.wait_for_url(lambda url: "hidden=" in url, timeout=TIMEOUT)
    visitor.finish()
    assert "return" in address(visitor)["hidden"]
    assert "return" not in address(visitor)["text"]
    assert address(visitor)["target"].strip() == "return"
    mask = visitor.view("tokens").get_by_text("<|mask|>").first
    mask.dblclick()
    visitor.page.wait_for_url(lambda url: "hidden=" not in url, timeout=TIMEOUT)
    visitor.finish()
    assert address(visitor)["text"] == "def f(x): return x"


def test_a_click_on_a_token_that_was_written_asks_why(visitor, server):
    opened(visitor, server, page="prompt", text=TEXT, asked="continuation", temperature="0.0")
    visitor.finish()
    visitor.view("sample_0").get_by_text("d", exact=True).first.click()
    until_address(visitor, "page", "why")
    visitor.finish()
    assert (address(visitor)["text"], address(visitor)["target"]) == (f"{TEXT}c", "d")
    assert visitor.page.locator("[data-testid=stAlert]").count() == 0


MOVE = """() => {
    document.querySelector('[data-testid=stMainBlockContainer]').style.paddingTop = '300px';
}"""


def test_nothing_moves_when_a_job_starts_or_ends(visitor, server):
    """After another method of ablation was chosen; what moves soon after the click counts too."""
    visitor.open(server.address(model="python-4l", page="heads", prompts="examples", method="zero"))
    visitor.finish()
    box = visitor.view("heads").locator(".w-scored").bounding_box()
    watch_layout_shifts(visitor)
    visitor.page.get_by_role("radio", name="resample").click()
    resampled = visitor.view("heads").get_by_text("resample ablation").first
    expect(resampled).to_be_attached(timeout=TIMEOUT)
    visitor.finish()
    assert_little_moved(visitor)
    assert visitor.view("heads").locator(".w-scored").bounding_box() == box
    visitor.page.evaluate(MOVE)
    visitor.page.wait_for_function("() => window.shifts.at(-1)?.[0] > 0.05", timeout=TIMEOUT)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The explorer with random weights of 48 layers and 32 heads."""
    source = load("python-4l")
    stack = replace(
        source.config.decoder,
        n_layers=48,
        attention=replace(source.config.decoder.attention, n_heads=32, d_head=4),
        mlp=replace(source.config.decoder.mlp, d_mlp=16),
    )
    config = replace(source.config, d_model=16, decoder=stack, name="random")
    folder = tmp_path_factory.mktemp("models") / "many"
    torch.manual_seed(0)
    interp.Transformer(config, tokenizer=source.tokenizer).save(folder)
    with served(str(folder), folder=folder.parent) as running:
        yield running


def box_of(drawn: Locator, is_so: Callable[[FloatRect], bool] = lambda _: True) -> FloatRect:
    """The box of an element once it is so; there is none while the element is replaced."""
    end, box = time.monotonic() + TIMEOUT / 1000, None
    while time.monotonic() < end:
        box = drawn.bounding_box()
        if box is not None and is_so(box):
            return box
        drawn.page.wait_for_timeout(50)
    raise AssertionError(f"the box of {drawn} is still {box}")


def test_1536_heads_are_on_one_screen(chromium, many):
    """Map, pattern and evidence in the window; few small patterns; folding, zoom and ranking."""
    with visit(chromium, many, viewport=(1440, 900)) as visitor:
        visitor.open(many.address(model="many", page="heads", text="a b c d", method="zero"))
        heads = visitor.view("heads")
        heads.locator("[role=option]").first.wait_for(timeout=TIMEOUT)
        for pane in (".w-scored", ".w-right", ".w-evidence"):
            box = box_of(heads.locator(pane))
            assert box["y"] >= 0
            assert box["y"] + box["height"] <= 900
        assert box_of(heads.locator(".w-all canvas").first)["height"] < 300
        assert heads.locator("[role=option]").count() < 60
        assert heads.locator("[role=listbox]").get_attribute("aria-label").startswith("1536 heads")
        heads.get_by_role("button", name="fold").click()
        map_ = heads.locator(".w-scored .w-over")
        folded = box_of(map_)
        map_.click(position={"x": 60, "y": 60})  # in the first group, which opens
        grown = box_of(map_, lambda box: box["height"] > folded["height"])
        assert int(chosen_head(visitor).split(",")[0]) < 6
        heads.get_by_role("button", name="larger cells").click()
        box_of(map_, lambda box: box["width"] > grown["width"])
        heads.get_by_text("all", exact=True).click()
        # As high as the box and a little more, however many patterns there are.
        assert box_of(heads.locator(".w-all canvas").first)["height"] < 1200
        assert not visitor.complaints


def test_the_report_of_a_page_opens_as_a_file(visitor, server, chromium, tmp_path):
    opened(visitor, server, page="heads", text=TEXT, head="L0H1", method="zero")
    visitor.finish()
    visitor.page.get_by_text("Python code and downloads").click()
    button = visitor.page.get_by_role("button", name="HTML")
    button.first.wait_for(timeout=TIMEOUT)
    with visitor.page.expect_download(timeout=TIMEOUT) as begun:
        button.first.click()
    file = tmp_path / "report.html"
    begun.value.save_as(file)
    with visit(chromium, server) as reader:
        reader.page.goto(file.as_uri())
        reader.page.wait_for_selector("[data-view][data-ready=true]", timeout=TIMEOUT)
        assert MODEL in reader.page.inner_text("body")
        assert not reader.complaints
        assert reader.outside == [file.as_uri()]
