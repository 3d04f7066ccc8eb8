"""Whether every text of a page can be read against what is behind it."""

from tools.browser import Visit

LEAST = 4.5
"""WCAG 2.2, success criterion 1.4.3, for text of any size."""
TEXTS = r"""() => {
  const parts = (colour) => {
    const numbers = colour.match(/[\d.]+/g).map(Number);
    const whole = colour.startsWith("rgb") ? 1 : 255;
    return [...numbers.slice(0, 3).map((part) => part * whole), numbers[3] ?? 1];
  };
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const luminance = ([red, green, blue]) =>
    0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255);
  const over = (top, below) =>
    [0, 1, 2].map((n) => top[n] * top[3] + below[n] * (1 - top[3])).concat(1);
  const outer = (element) => element.parentElement || element.parentNode?.host || null;
  // The value of a slider is above the handle that it is a part of, not on it.
  const isBehind = (ancestor, element) => {
    const [box, text] = [ancestor, element].map((each) => each.getBoundingClientRect());
    const [x, y] = [(text.left + text.right) / 2, (text.top + text.bottom) / 2];
    const isInside = box.left <= x && x <= box.right && box.top <= y && y <= box.bottom;
    const isClipping = getComputedStyle(ancestor).overflow !== "visible";
    return isInside || isClipping || ancestor === document.body;
  };
  const behind = (element) => {
    const layers = [];
    for (let own = element; own; own = outer(own)) {
      if (!isBehind(own, element)) continue;
      layers.push(parts(getComputedStyle(own).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reduceRight((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const isShown = (element) => {
    const { width, height } = element.getBoundingClientRect();
    return width > 1 && height > 1 && element.checkVisibility({ visibilityProperty: true });
  };
  const isText = (element) =>
    [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const found = [];
  const look = (root) => {
    for (const own of root.querySelectorAll("*")) {
      if (own.shadowRoot) look(own.shadowRoot);
      const { color, fontFamily } = getComputedStyle(own);
      const isIcon = fontFamily.includes("Material");
      if (isIcon || own.closest("style, script, option, :disabled")) continue;
      if (!isText(own) || !isShown(own)) continue;
      const paper = behind(own);
      const both = [over(parts(color), paper), paper].map(luminance);
      const ratio = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
      found.push([ratio, own.textContent.trim().slice(0, 40)]);
    }
  };
  look(document);
  return found;
}"""
PAPER = """(scheme) => {
  const app = document.querySelector("[data-testid=stApp]");
  const [red] = getComputedStyle(app).backgroundColor.match(/\\d+/g).map(Number);
  return scheme === "light" ? red > 200 : red < 60;
}"""
"""Whether the page is as light or dark as the scheme."""


def contrasts(visitor: Visit) -> list[tuple[float, str]]:
    """The contrast of each text on a page with what is behind it, and the text's first letters."""
    return [tuple(text) for text in visitor.page.evaluate(TEXTS)]


def assert_readable(visitor: Visit, fewest: int) -> None:
    """All texts of a page stand out, light and then dark; there are more than ``fewest``."""
    for scheme in ("light", "dark"):
        visitor.page.emulate_media(color_scheme=scheme)
        visitor.page.wait_for_function(PAPER, arg=scheme)
        visitor.finish()
        texts = contrasts(visitor)
        assert len(texts) > fewest
        faint = [text for text in texts if text[0] < LEAST]
        assert not faint, (scheme, faint)
