"""How long a visitor of the explorer waits, measured in the browser, and how much is sent.

On a bundled model, and on a pretrained one if it is installed; browser and server share this
machine. Changes of the head and of the cell under the pointer happen in the browser alone, and are
timed by its clock from the event to the drawn frame. Changes that need the server are timed from
the click until the page shows the result. Each time is compared with its limit.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import Any

from benchmarks.bench import Bench
from benchmarks.table import Mark, Row
from interp.loading import PACKAGED, installed

LINES = "def total(values):\n    result = {}\n    for value in values:\n        result += value\n"
MARY = "When {} and John went to the store, John gave a drink to"
NAMES = (
    *("Mary", "Anna", "Sarah", "Laura", "Emma", "Alice", "Lisa", "Kate", "Jane", "Amy", "Julia"),
    *("Rose", "Helen", "Susan", "Ruth", "Maria", "Linda", "Karen", "Nancy", "Carol", "Diana"),
)
FRAME = 0.016
"""Limit in seconds of a change in the browser."""
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


@dataclass(frozen=True)
class Case:
    """A model, prompts for it, and limits in seconds.

    Attributes:
        model: its name.
        prompts: different prompts of about the same length: the first is opened, the second and
            third are for the visit that is not timed. A result is kept, so each is asked for once.
        opened: limit of the page from its address, with all patterns.
        another_page: limit of another page.
        prediction: limit of a new prompt, until its prediction is drawn.
        estimate: limit of the estimates of all heads, after another method of ablation was chosen;
            ``None`` for a model with so few heads that they are measured at once.
        measured: limit of the first measured heads, likewise.
    """

    model: str
    prompts: tuple[str, ...]
    opened: float
    another_page: float
    prediction: float
    estimate: float | None
    measured: float


CASES = (
    Case(
        "python-4l",
        tuple(
            2 * LINES.format(n) + "total(values)\nfor value in result:\n    print"
            for n in range(len(NAMES))
        ),
        opened=2.0,
        another_page=0.5,
        prediction=0.5,
        estimate=None,
        measured=0.2,
    ),
    Case(
        "smollm2-135m",
        tuple(map(MARY.format, NAMES)),
        opened=4.0,
        another_page=1.0,
        prediction=1.5,
        estimate=3.0,
        measured=4.0,
    ),
)


def explorer(bench: Bench) -> Iterator[Row]:
    """The waits of a visitor, after a first visit in which the server imports and loads all."""
    missing = [name for name in ("playwright", "streamlit", "plotly") if find_spec(name) is None]
    if missing or bench.setting.quick:
        why = f"{', '.join(missing)} is not installed" if missing else "--quick leaves it out"
        yield Row(section="explorer", work="the explorer in a browser", kernel="", why=why)
        return
    for case in CASES:
        if case.model in PACKAGED and case.model not in installed():
            why = f"{case.model} is not installed"
            yield Row(section="explorer", work=f"{case.model}: the explorer", kernel="", why=why)
        else:
            yield from _rows_of(case, bench.setting.rounds)


def _rows_of(case: Case, rounds: int) -> Iterator[Row]:
    """The rows of a model."""
    from tools.browser import chromium, served, visit  # noqa: PLC0415 - not on every machine

    opened: list[float] = []
    rows: list[Row] = []
    with served(case.model) as server, chromium() as browser:
        for number in range(1 + VISITORS):
            with visit(browser, server) as visitor:
                address = server.address(model=case.model, page="heads", text=case.prompts[0])
                opened.append(_seconds_to_open(visitor, address))
                if number == 0:
                    _ = [*_rows(visitor, case, case.prompts[1:3], 2)]
                elif number == VISITORS:
                    rows = [*_rows(visitor, case, case.prompts[3:], rounds)]
    yield _row(f"{case.model}: a page with all patterns", opened[1:], case.opened)
    yield from rows


def _seconds_to_open(visitor: Any, address: str) -> float:  # noqa: ANN401 - a visit
    """Seconds from requesting the address until the patterns are drawn."""
    began = time.perf_counter()
    visitor.page.goto(address)
    visitor.wait_for(f"{HEADS}[data-ready=true]")
    visitor.settle()
    taken = time.perf_counter() - began
    visitor.finish()
    return taken


def _rows(
    visitor: Any,  # noqa: ANN401 - a visit
    case: Case,
    prompts: tuple[str, ...],
    rounds: int,
) -> Iterator[Row]:
    """The rows of a visit that asks for these prompts in turn, each once."""
    page = visitor.page

    def drawn(selector: str) -> None:
        visitor.wait_for(f"{selector}[data-ready=true]")
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
        prompt = prompts[n]
        page.get_by_label("Prompt", exact=True).fill(prompt)
        page.get_by_role("button", name="Run").click()
        page.wait_for_function(
            "text => new URL(location.href).searchParams.get('text') === text", arg=prompt
        )
        drawn(HEADS)

    def row(work: str, taken: list[float], limit: float) -> Row:
        return _row(f"{case.model}: {work}", taken, limit)

    sent = visitor.received / 1e6
    work = f"{case.model}: sent for it"
    yield Row(section="explorer", work=work, kernel="", ours=sent, unit="MB")
    box = visitor.view("heads").locator(".w-plot[tabindex='0']").first
    changes = [box.evaluate(KEY, key) for key in ("]", "}", "[", "{") * rounds]
    yield row("another head, in the browser", changes, FRAME)
    over = visitor.view("heads").locator("canvas.w-over").first
    places = [(0.3 + 0.4 * (n % 5) / 5, 0.3 + 0.4 * (n % 3) / 3) for n in range(4 * rounds)]
    moves = [over.evaluate(HOVER, [*place]) for place in places]
    yield row("another cell under the pointer", moves, FRAME)
    yield row("another page", seconds(turns, 2 * (rounds // 2)), case.another_page)
    yield row("another prompt", seconds(asks, min(rounds, len(prompts))), case.prediction)
    began = time.perf_counter()
    page.get_by_role("radio", name="zero").click()
    scores = f"{HEADS}[data-ready=true] .w-scored"
    visitor.wait_for(scores, "zero ablation")
    if case.estimate is not None:
        visitor.wait_for(scores, "hatched")
        yield row("estimates of all heads", [time.perf_counter() - began], case.estimate)
        visitor.wait_for(scores, "against their measured effects")
    yield row("first measured heads", [time.perf_counter() - began], case.measured)
    visitor.finish()


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
