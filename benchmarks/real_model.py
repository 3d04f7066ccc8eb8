"""How long a first walk through a pretrained model takes, and how much memory, on this machine.

    python -m benchmarks.real_model MODEL                        # prints the table
    python -m benchmarks.real_model MODEL --docs docs/speed.md  # and writes it there
    python -m benchmarks.real_model MODEL --walk                 # only the walk of ten steps

Each step runs in a process of its own, as a user would start it: Python that loads and runs the
model, the commands with their default options on eight pairs of prompts about two names, and the
explorer in Chromium with a prompt typed by hand. The memory of a step is the largest resident set
of its process; that of the explorer is the server's. A walk of ten steps, in an explorer started
anew, leads from a prompt typed by hand to a story that opens as a file; each step waits for no job
but those whose results it shows.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from playwright.sync_api import Browser

from benchmarks.machine import load_average
from benchmarks.memory import high_water, resident
from benchmarks.table import write_between
from interp.kernels import processor
from tools.browser import TIMEOUT, Served, Visit, chromium, served, visit

MARKERS = ("<!-- figures of a real model -->", "<!-- end of a real model -->")
N_PAIRS, N_PROMPTS = 8, 50
NAMES = ("Mary", "John", "Tom", "James", "Paul")
SENTENCE = "When {a} and {b} went to the store, {s} gave a drink to"
OWN_PROMPT = "The capital of France is"
WALKED = "When Anna and Peter sat down for lunch, Peter handed the bread to"
LOAD = "import sys, interp; model = interp.load(sys.argv[1])"
PREDICT = f"""{LOAD}
logits = model(model.to_tokens("{SENTENCE.format(a="Mary", b="John", s="John")}"))
print(model.to_string(logits[0, -1].argmax()[None]))"""
HEADS = "[data-view=heads][data-ready=true]"
RUN = "import sys; from apps.cli import main; main(sys.argv[1:])"


@dataclass(frozen=True)
class Cost:
    """What a step took.

    Attributes:
        step: the step, as a user would name it.
        seconds: until its process ended, or until the browser showed the answer.
        nbytes: the largest resident set of the process until then.
    """

    step: str
    seconds: float
    nbytes: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_model")
    parser.add_argument("model", help="a name such as smollm2-135m, or a folder")
    parser.add_argument("--docs", type=Path, help="a page with the markers of this table")
    parser.add_argument("--walk", action="store_true", help="only the walk, which is not written")
    options = parser.parse_args(arguments)
    if options.walk and options.docs:
        parser.error("--docs writes the whole table: leave out --walk")
    load = load_average()
    costs: list[Cost] = []
    whole = [] if options.walk else [_commands(options.model), _explorer(options.model)]
    for cost in chain(*whole, _walk(options.model)):
        print(cost, file=sys.stderr, flush=True)
        costs.append(cost)
    table = to_markdown(costs, load)
    print(table)
    if options.docs:
        write_between(options.docs, table, MARKERS)
    return 0


def to_markdown(costs: Sequence[Cost], load: str) -> str:
    """The table, with the machine and its load before the first step below it."""
    rows = [
        f"| {cost.step} | {cost.seconds:.1f} s | {cost.nbytes / 1e9:.2f} GB |" for cost in costs
    ]
    head = "| step | time | peak memory |\n| --- | --- | --- |"
    where = f"{processor()}, {os.cpu_count()} threads, torch {torch.__version__}"
    return "\n".join([head, *rows, "", f"Measured on {where}, load before {load}."])


def _commands(model: str) -> Iterator[Cost]:
    with TemporaryDirectory() as temporary:
        prompts, out = Path(temporary) / "names.jsonl", Path(temporary) / "out"
        prompts.write_text("".join(json.dumps(pair) + "\n" for pair in pairs()))
        on_pairs = ["--model", model, "--prompts", str(prompts)]
        yield _measured("load", [LOAD, model])
        yield _measured("load and predict the next token", [PREDICT, model])
        for step, command in {
            "ablate every head": "ablate",
            "attribute every edge": "attribute",
            "a report of the default analyses": "report",
        }.items():
            words = [command, *on_pairs, "--out", str(out / command)]
            yield _measured(f"{step}, {N_PAIRS} pairs", [RUN, *words])


def pairs() -> list[dict[str, str]]:
    """Prompts whose answer is the name that occurs once; corrupted ones repeat the other."""
    return [
        {
            "text": SENTENCE.format(a=a, b=b, s=b),
            "target": f" {a}",
            "distractor": f" {b}",
            "corrupt": SENTENCE.format(a=a, b=b, s=a),
        }
        for a, b in [*permutations(NAMES, 2)][:N_PAIRS]
    ]


def _measured(step: str, words: list[str]) -> Cost:
    """Run Python code with arguments until it ends."""
    began = time.perf_counter()
    with Path(os.devnull).open("w") as nowhere:
        command = [sys.executable, "-c", *words]
        actions = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)]
        process = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
        _, status, usage = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"{step} ended with status {os.waitstatus_to_exitcode(status)}")
    return Cost(step, time.perf_counter() - began, usage.ru_maxrss * 1024)


def _explorer(model: str) -> Iterator[Cost]:
    with served(model) as server, chromium() as browser, visit(browser, server) as visitor:

        def measured(step: str, began: float) -> Cost:
            return Cost(
                f"explorer: {step}", time.perf_counter() - began, high_water(server.process.pid)
            )

        began = time.perf_counter()
        visitor.open(server.address(page="heads"))
        yield measured("the first page, with every pattern", began)
        visitor.finish()
        yield measured("and every head ablated", began)
        began = time.perf_counter()
        _ask(visitor, OWN_PROMPT)
        yield measured("a prompt of one's own", began)
        visitor.finish()
        began = time.perf_counter()
        visitor.page.get_by_role("radio", name="Weights", exact=True).click()
        visitor.wait_for("[data-view=OV_out][data-ready=true]")
        yield measured("what a head writes, on Weights", began)
        visitor.finish()
        yield measured("and all of the page Weights", began)
        yield from _pages(visitor, measured)
        began = time.perf_counter()
        for n in range(N_PROMPTS):
            _ask(visitor, SENTENCE.format(a=NAMES[n % 5], b=NAMES[(n + 1) % 5], s=f"the {n}"))
        visitor.finish()
        now = resident(server.process.pid)
        yield measured(f"{N_PROMPTS} more prompts; {now / 1e9:.2f} GB are then resident", began)


def _pages(visitor: Visit, measured: Callable[[str, float], Cost]) -> Iterator[Cost]:
    """Open the other pages that read the prompt, each until all of its jobs have ended."""
    _ask(visitor, SENTENCE.format(a="Mary", b="John", s="John"))
    pages = {"Why": "components", "Graph": "graph", "Patch": "patching", "Prompt": "tokens"}
    for page, view in pages.items():
        began = time.perf_counter()
        _turn_to(visitor, page, view)
        yield measured(f"the page {page}", began)
        visitor.finish()
        yield measured(f"and all of the page {page}", began)


def _walk(model: str) -> Iterator[Cost]:
    """From a prompt typed by hand to a story that opens without the explorer, in ten steps."""
    with served(model) as server, chromium() as browser, visit(browser, server) as visitor:
        steps = chain(
            _walk_to_differences(visitor, server), _walk_to_story(visitor, server, browser)
        )
        began = time.perf_counter()
        for number, step in enumerate(steps, 1):
            now = time.perf_counter()
            yield Cost(f"walk {number}: {step}", now - began, high_water(server.process.pid))
            began = now


def _walk_to_differences(visitor: Visit, server: Served) -> Iterator[str]:
    """The steps on the page Heads, each named when it is done."""
    page, heads = visitor.page, visitor.view("heads")
    visitor.open(server.url)
    yield "open the explorer, which asks a question of its own"
    _ask(visitor, WALKED)
    yield "type a prompt; its prediction and all patterns"
    visitor.wait_for(HEADS, "hatched")
    yield "all heads' effects, estimated"
    visitor.wait_for(HEADS, "against their measured effects")
    yield "the ten largest, measured"
    heads.locator(".w-evidence [role=option]").first.click()
    page.wait_for_url(lambda url: "head=" in url, timeout=TIMEOUT)
    visitor.settle()
    _add_to_story(visitor, "The head with the largest effect.")
    yield "choose the first of the ranking; add the view to a story"
    plot = heads.locator(".w-plot[tabindex='0']").first
    plot.press("s")
    plot.press("p")
    page.get_by_text("Ablate L").first.click()
    page.get_by_role("radio", name="A − B").click()
    visitor.wait_for("[data-view=heads][data-title^='A − B']")
    visitor.settle()
    _add_to_story(visitor, "What changes without this head.")
    page.get_by_role("button", name="Unpin").click()
    yield "pin, ablate this head, A − B; add it to the story"


def _walk_to_story(visitor: Visit, server: Served, browser: Browser) -> Iterator[str]:
    """The steps on the other pages, each named when it is done."""
    page = visitor.page
    _turn_to(visitor, "Why", "components")
    yield "why: contributions to the answer"
    _turn_to(visitor, "Graph", "graph")
    _add_to_story(visitor, "The neurons of the answer.")
    yield "the attribution graph; add it to the story"
    _turn_to(visitor, "Patch", "patching")
    yield "patch the prompt with one of its names swapped"
    _turn_to(visitor, "Story", "heads")
    visitor.finish()
    with page.expect_download(timeout=TIMEOUT) as download:
        page.get_by_role("button", name="HTML page", exact=True).click()
    file = server.log.with_name("story.html")
    download.value.save_as(file)
    with visit(browser, server) as reader:
        reader.page.goto(file.as_uri())
        reader.page.wait_for_selector(HEADS, timeout=TIMEOUT)
    yield "export the story, with all of its jobs done, and open the file"


def _turn_to(visitor: Visit, page: str, view: str) -> None:
    """Choose a page and wait until one of its views is drawn."""
    visitor.page.get_by_role("radio", name=page, exact=True).click()
    visitor.wait_for(f"[data-view={view}][data-ready=true]")
    visitor.settle()


def _add_to_story(visitor: Visit, sentence: str) -> None:
    """Add what the page shows to the story."""
    field = visitor.page.get_by_label("A sentence about this view", exact=True)
    if not field.is_visible():
        visitor.page.locator("[class*=st-key-story_panel] summary").click()
    field.fill(sentence)
    visitor.page.get_by_role("button", name="Add this view").click()
    visitor.page.get_by_text("Added.").wait_for(timeout=TIMEOUT)
    visitor.settle()


def _ask(visitor: Visit, text: str) -> None:
    """Open the page Heads, type a prompt and wait until its patterns are shown."""
    visitor.page.get_by_role("radio", name="Heads", exact=True).click()
    visitor.page.get_by_label("Prompt", exact=True).fill(text)
    visitor.page.get_by_role("button", name="Run").click()
    asked = "text => new URL(location.href).searchParams.get('text') === text"
    visitor.page.wait_for_function(asked, arg=text, timeout=TIMEOUT)
    visitor.wait_for(HEADS)
    visitor.settle()


if __name__ == "__main__":
    sys.exit(main())
