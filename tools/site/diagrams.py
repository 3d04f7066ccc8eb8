"""The diagrams of docs/explanation, of a run, a cache and a sweep.

    python -m tools.site.diagrams docs/explanation/figures

The places of a block, their recipes, and which of them a cache stores are those of a bundled model;
the blocks that a sweep computes are those of its restart map.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import interp
from interp.points import Place
from interp.sweeps import RestartMap

MODEL = "python-4l"
TEXT = "def add(self, a, b):\n    return self." * 8
"""Long enough that attention patterns are larger than queries and keys."""
LENGTHS = (16, 64, 256)
"""Lengths in tokens of the texts whose caches are measured."""
MEGABYTE = 1e6
INK, SOFT, FILL, STRONG = "#1f2430", "#8a93a6", "#e8ebf5", "#c3ccea"


@dataclass(frozen=True)
class Box:
    """A labelled rectangle, in units of the drawing.

    Attributes:
        text: the lines inside.
        left, top, width, height: position and size.
        fill: the fill colour.
    """

    text: str
    left: float
    top: float
    width: float = 150
    height: float = 34
    fill: str = FILL

    def svg(self) -> str:
        """The rectangle and its text."""
        lines = self.text.split("\n")
        middle = self.left + self.width / 2
        first = self.top + self.height / 2 + 4.5 - 8 * (len(lines) - 1)
        texts = "".join(
            text(middle, first + 16 * number, line, "middle") for number, line in enumerate(lines)
        )
        return (
            f'<rect x="{self.left}" y="{self.top}" width="{self.width}" height="{self.height}" '
            f'rx="4" fill="{self.fill}" stroke="{SOFT}"/>{texts}'
        )


def drawing(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    """The text of an SVG file: dark on white, so that it is legible on any page."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" font-family="system-ui, sans-serif" '
        f'font-size="13" fill="{INK}"><title>{escape(title)}</title>'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{SOFT}"/></marker></defs>'
        '<rect width="100%" height="100%" fill="#fff"/>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def line(path: str) -> str:
    """A path with an arrow at its end."""
    return f'<path d="{path}" fill="none" stroke="{SOFT}" marker-end="url(#tip)"/>'


def text(left: float, top: float, content: str, anchor: str = "start") -> str:
    """A line of text."""
    return f'<text x="{left}" y="{top}" text-anchor="{anchor}">{escape(content)}</text>'


# ---- a run ---------------------------------------------------------------------------------------


def run_diagram() -> str:
    """Arguments → plan → forward with a tap → logits and cache."""
    boxes = [
        Box("record, store", 10, 20),
        Box("edits", 10, 70),
        Box("metric, kernel", 10, 120),
        Box("plan\nwhat is edited, stored,\nformed as a tensor", 205, 45, 170, 84, STRONG),
        Box("forward\ntap(point, tensor)", 425, 20, 150, 50),
        Box("recorder\nedits, then stores", 425, 104, 150, 50),
        Box("logits", 625, 28),
        Box("cache\nstored tensors, recipes", 625, 104, 165, 50),
    ]
    arrows = [
        *(line(f"M160 {37 + 50 * row}C185 {37 + 50 * row} 180 87 203 87") for row in range(3)),
        line("M375 70C400 70 400 45 423 45"),
        line("M375 104C400 104 400 129 423 129"),
        line("M490 70L490 102"),
        line("M510 104L510 72"),
        line("M575 45L623 45"),
        line("M575 129L623 129"),
    ]
    return drawing(800, 175, "How a run is planned", [*arrows, *(box.svg() for box in boxes)])


# ---- recipes and the cache -----------------------------------------------------------------------


def recipes_diagram() -> str:
    """The places of a block in order; an arrow from each place to what is computed from it."""
    model = interp.load(MODEL)
    stored = set(interp.run(model, TEXT, record="all").cache.stored)
    layout = {place: recipe for place, recipe in model.layout.items() if place.layer == 1}
    rows = {_key(place): number for number, place in enumerate(layout)}
    top, step, left = 48, 30, 20
    parts = [
        Box("stored", left, 8, 90, 24, STRONG).svg(),
        Box("computed when read", left + 110, 8, 150, 24, "#fff").svg(),
    ]
    for place, row in zip(layout, rows.values(), strict=True):
        fill = STRONG if place in stored else "#fff"
        parts.append(Box(_name(place), left, top + step * row, 170, 24, fill).svg())
    for (place, recipe), row in zip(layout.items(), rows.values(), strict=True):
        if place not in stored:
            parts += list(_arcs([rows[_key(need)] for need in recipe.needs], row, top, step))
    return drawing(300, top + step * len(rows) + 6, "The places of a block", parts)


def _key(place: Place) -> tuple[str, str | None]:
    return place.point.label, place.norm


def _name(place: Place) -> str:
    return " ".join(filter(None, _key(place)))


def _arcs(sources: Sequence[int], row: int, top: float, step: float) -> Iterator[str]:
    """Arrows to the right of the boxes; longer ones are further out."""
    for source in sources:
        start, end = top + step * source + 12, top + step * row + 12
        out = 200 + 14 * abs(row - source)
        yield line(f"M190 {start}C{out} {start} {out} {end} 192 {end}")


def cache_diagram() -> str:
    """The size of all tensors of a cache of everything, and of those that it stores, by length."""
    model = interp.load(MODEL)
    sizes: list[tuple[int, int, int]] = []
    for length in LENGTHS:
        cache = interp.run(model, [[1] * length], record="all").cache
        sizes.append((length, sum(tensor.nbytes for _, tensor in cache.items()), cache.nbytes))
    left, widest, step = 90, 520, 62
    across = widest / sizes[-1][1]
    parts = [
        Box("all tensors of a run", left, 8, 150, 24, "#fff").svg(),
        Box("stored in its cache", left + 170, 8, 150, 24, STRONG).svg(),
    ]
    for number, (length, everything, stored) in enumerate(sizes):
        top = 52 + step * number
        parts.append(text(left - 8, top + 28, f"{length} tokens", "end"))
        for row, (size, fill) in enumerate([(everything, "#fff"), (stored, STRONG)]):
            width, height = round(across * size), top + 23 * row
            parts.append(Box("", left, height, width, 20, fill).svg())
            parts.append(text(left + width + 6, height + 15, f"{size / MEGABYTE:.2g} MB"))
    return drawing(700, 52 + step * len(sizes), "What a cache stores", parts)


# ---- a sweep -------------------------------------------------------------------------------------


def sweep_diagram() -> str:
    """The blocks that are computed again for each edit."""
    model = interp.load(MODEL)
    restarts, layers = RestartMap(model), range(model.n_layers)
    edits = [("z", layer) for layer in reversed(layers)]
    parts = [text(10, 36, "baseline, once")]
    parts += [Box(f"block {layer}", 170 + 110 * layer, 16, 100, 30).svg() for layer in layers]
    for number, edit in enumerate(edits):
        row = 66 + 46 * number
        (restart,) = restarts.restarts([model.names.resolve(edit)])
        parts.append(text(10, row + 20, f"edits of z, layer {edit[1]}"))
        for layer in layers:
            again = restart is not None and layer >= restart.layer
            fill, label = (STRONG, f"block {layer}") if again else ("#fff", "kept")
            if restart is not None and layer == restart.layer:
                label = f"from z of {layer}"
            parts.append(Box(label, 170 + 110 * layer, row, 100, 30, fill).svg())
        parts.append(text(620, row + 20, "all heads of the layer: one batch"))
    return drawing(850, 70 + 46 * len(edits), "What a sweep computes again", parts)


DIAGRAMS = {
    "run": run_diagram,
    "recipes": recipes_diagram,
    "cache": cache_diagram,
    "sweep": sweep_diagram,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all diagrams into a folder."""
    (folder,) = sys.argv[1:] if arguments is None else arguments
    for name, draw in DIAGRAMS.items():
        (Path(folder) / f"{name}.svg").write_text(draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
