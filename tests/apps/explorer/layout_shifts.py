"""Layout shifts of a page, as browsers score them (https://web.dev/articles/cls)."""

from tools.browser import Visit

WATCH = """() => {
  const at = (box) => `${Math.round(box.x)},${Math.round(box.y)} ${Math.round(box.width)}×` +
    Math.round(box.height);
  const named = (source) => `${(source.node?.textContent ?? "").trim().slice(0, 40)}: ` +
    `${at(source.previousRect)} -> ${at(source.currentRect)}`;
  window.shifts = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries())
      window.shifts.push([entry.value, entry.sources.map(named)]);
  }).observe({ type: "layout-shift" });
}"""
"""Record each layout shift from here on: its score, and what moved from where to where."""


def watch_layout_shifts(visitor: Visit) -> None:
    """Record layout shifts from here on, also those soon after a click."""
    visitor.page.evaluate(WATCH)


def assert_little_moved(visitor: Visit) -> None:
    """The scores of the layout shifts since are small in sum."""
    shifts = visitor.page.evaluate("window.shifts")
    assert sum(score for score, _ in shifts) < 0.05, shifts
