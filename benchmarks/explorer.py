"""How long a visitor of the explorer waits, measured in the browser, and how much is sent.

The model is ``python-4l``, with a prompt of about 64 tokens; browser and server share this machine.
Changes of the head and of the cell under the pointer happen in the browser alone, and are timed by
its clock from the event to the drawn frame. Changes that need the server are timed from the click
until the page shows the result. Each time is compared with its limit.
"""

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from statistics import median
from typing import Any

from benchmarks.bench import Bench
from benchmarks.table import Mark, Row

MODEL = "python-4l"
LINES = "def total(values):\n    result = {n}\n    for value in values:\n        result += value\n"
TEXT = 2 * LINES + "total(values)\nfor value in result:\n    print"
"""A prompt of 64 to 66 tokens."""
FRAME, CLICK, PROMPT, CELLS, PICTURE = 0.016, 0.5, 1.0, 1.0, 2.0
"""Limits in seconds for a change in the browser, a click that needs the server, a new prompt, the
first ablated cells and the first picture of a page."""
VISITORS = 3
"""Number of visitors who open the page, after the first."""
HEADS = "[data-view=heads]"
KEY = """async (box, key) => {
  const began = performance.now();
  box.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, composed: true }));
  await new Promise((done) => requestAnimationFrame(() => done()));
  return (performance.now() - began) / 1000;
}"""
HOVER = """async (canvas, [x, y]) => {
  const { left, top, width, height } = canvas.getBoundingClientRect();
  const [clientX, clientY] = [left + x * width, top + y * height];
  const began = performance.now();
  canvas.dispatchEvent(
    new PointerEvent("pointermove", { clientX, clientY, bubbles: true, composed: true }));
  await new Promise((done) => requestAnimationFrame(() => done()));
  return (performance.now() - began) / 1000;
}"""
Act = Callable[[int], None]


def explorer(bench: Bench) -> Iterator[Row]:
    """The waits of a visitor, after a first visit in which the server imports and loads all."""
    missing = [name for name in ("playwright", "streamlit", "plotly") if find_spec(name) is None]
    if missing or bench.setting.quick:
        why = f"{', '.join(missing)} is not installed" if missing else "--quick leaves it out"
        yield Row(section="explorer", work="the explorer in a browser", kernel="", why=why)
        return
    from tools.browser import chromium, served, visit  # noqa: PLC0415 - not on every machine

    opened: list[float] = []
    rows: list[Row] = []
    with served(MODEL) as server, chromium() as browser:
        for visitor_number in range(1 + VISITORS):
            with visit(browser, server) as visitor:
                address = server.address(model=MODEL, page="heads", text=TEXT.format(n=0))
                opened.append(_seconds_to_open(visitor, address))
                if visitor_number in (0, VISITORS):
                    rows = [*_rows(visitor, bench.setting.rounds)]
        yield _row("a page with all patterns", opened[1:], PICTURE)
        yield from rows


def _seconds_to_open(visitor: Any, address: str) -> float:  # noqa: ANN401 - a visit
    """Seconds from requesting the address until the patterns are drawn."""
    began = time.perf_counter()
    visitor.page.goto(address)
    visitor.page.wait_for_selector(f"{HEADS}[data-ready=true]")
    visitor.settle()
    taken = time.perf_counter() - began
    visitor.finish()
    return taken


def _rows(visitor: Any, rounds: int) -> Iterator[Row]:  # noqa: ANN401 - a visit
    page = visitor.page

    def drawn(selector: str) -> None:
        page.wait_for_selector(f"{selector}[data-ready=true]")
        visitor.settle()

    def seconds(act: Act, times: int) -> list[float]:
        taken: list[float] = []
        for n in range(times):
            began = time.perf_counter()
            act(n)
            taken.append(time.perf_counter() - began)
            visitor.finish()
        return taken

    def turns(n: int) -> None:
        page.get_by_role("radio", name=("Weights", "Heads")[n % 2]).click()
        drawn(("[data-view=OV_out]", HEADS)[n % 2])

    def asks(n: int) -> None:
        page.get_by_label("Prompt", exact=True).fill(TEXT.format(n=n + 1))
        page.get_by_role("button", name="Run").click()
        page.wait_for_url(lambda url: f"result+%3D+{n + 1}" in url)
        drawn(HEADS)

    def ablates(_: int) -> None:
        page.get_by_role("radio", name="zero").click()
        visitor.view("heads").get_by_text("zero ablation").first.wait_for(state="attached")

    sent = visitor.received / 1e6
    yield Row(section="explorer", work="sent for it", kernel="", ours=sent, unit="MB")
    box = visitor.view("heads").locator("[tabindex='0']").first
    changes = [box.evaluate(KEY, key) for key in ("]", "}", "[", "{") * rounds]
    yield _row("another head, in the browser", changes, FRAME)
    over = visitor.view("heads").locator("canvas.w-over").first
    places = [(0.3 + 0.4 * (n % 5) / 5, 0.3 + 0.4 * (n % 3) / 3) for n in range(4 * rounds)]
    moves = [over.evaluate(HOVER, [*place]) for place in places]
    yield _row("another cell under the pointer", moves, FRAME)
    yield _row("another page", seconds(turns, 2 * (rounds // 2)), CLICK)
    yield _row("another prompt", seconds(asks, rounds), PROMPT)
    yield _row("first ablated cells", seconds(ablates, 1), CELLS)


def _row(work: str, seconds: list[float], limit: float) -> Row:
    """The median of some waits against their limit."""
    taken = median(seconds)
    return Row(
        section="explorer",
        work=work,
        kernel="",
        against="the time that it may take",
        ours=taken,
        theirs=limit,
        ratio=taken / limit,
        mark=Mark(1.0),
        rounds=len(seconds),
    )
