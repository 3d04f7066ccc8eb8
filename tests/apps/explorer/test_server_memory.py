"""The memory of the explorer's server while one visitor reads many prompts."""

from pathlib import Path

import pytest

from benchmarks.memory import resident
from tools.browser import TIMEOUT, served, visit

pytestmark = [
    pytest.mark.browser,
    pytest.mark.nightly,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc"),
]

FIRST = 12
"""Prompts after which the memory is read first."""


def test_many_prompts_leave_no_more_than_their_results(chromium):
    """What grows is mostly kept results, whose bound is tested by itself."""
    model = "induction-by-hand"
    with served(model) as server, visit(chromium, server) as visitor:
        visitor.open(server.address(model=model, page="heads"))
        box = visitor.page.get_by_label("Prompt", exact=True)
        before = 0
        for n in range(100):
            text = f"ab{chr(97 + n % 26)}{chr(97 + n // 26)}ab"
            box.fill(text)
            visitor.page.get_by_role("button", name="Run").click()
            visitor.page.wait_for_url(lambda url, text=text: f"text={text}" in url, timeout=TIMEOUT)
            visitor.settle()
            if n == FIRST:
                before = resident(server.process.pid)
        grown = resident(server.process.pid) - before
        assert grown < 60e6


@pytest.mark.parametrize(
    ("model", "n_prompts", "growth"),
    [
        ("python-2l", 5, 30e6),
        pytest.param("python-4l", 100, 100e6, marks=pytest.mark.timeout(3000)),
    ],
)
def test_prompts_on_all_pages_leave_little(chromium, model, n_prompts, growth):
    """Pages in turn, each until its jobs have ended, after each has been opened once."""
    names = ("Prompt", "Heads", "Why", "Patch", "Weights")
    with served(model) as server, visit(chromium, server) as visitor:
        visitor.open(server.address(model=model, page="prompt"))
        box = visitor.page.get_by_label("Prompt", exact=True)
        before = 0
        for n in range(len(names) + n_prompts):
            if n == len(names):
                before = resident(server.process.pid)
            box.fill(f"def f{n}(a, b):\n    return a + b\n\ndef g{n}(a, b):\n    return a +")
            visitor.page.get_by_role("button", name="Run").click()
            visitor.page.wait_for_url(lambda url, n=n: f"g{n}" in url, timeout=TIMEOUT)
            visitor.page.get_by_role("radio", name=names[n % len(names)], exact=True).click()
            visitor.finish()
        assert not visitor.complaints
        assert resident(server.process.pid) - before < growth
