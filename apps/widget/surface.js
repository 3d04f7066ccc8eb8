// A plot on the page: two canvases, the lower with the plot, the upper with the marked cell.

import { same } from "./data.js";
import { font, outline } from "./draw.js";
import { element } from "./elements.js";

/** Shows plots in a box; options: label, focusable, onPick(cell, event), onHover(cell or null), onDrawn. */
export function surface(mount, parent, options) {
  const [base, over] = [
    element("canvas", { "aria-hidden": "true" }),
    element("canvas", { "aria-hidden": "true", class: "w-over" }),
  ];
  const stage = element("div", { class: "w-stage" }, base, over);
  const box = element("div", {
    class: "w-scroll w-plot", tabindex: options.focusable === false ? "-1" : "0",
    role: "application", "aria-label": options.label || "", "aria-roledescription": "figure",
  }, stage);
  parent.append(box);
  const measurer = document.createElement("canvas").getContext("2d");
  const widths = new Map();
  let [plot, geometry, selected, hovered, drawnWidth] = [null, null, null, null, 0];

  function measure(text) {
    if (!widths.has(text)) {
      measurer.font = font();
      widths.set(text, measurer.measureText(text).width);
    }
    return widths.get(text);
  }

  function show(next) {
    plot = next;
    refresh();
  }

  function refresh() {
    const width = box.clientWidth || drawnWidth;
    if (!plot || !width) return;
    const isFirst = !geometry;
    drawnWidth = width;
    geometry = plot.layout(width, measure);
    const ctx = sized(base, geometry, mount.ratio());
    plot.draw(ctx, geometry, mount.theme());
    stage.style.width = `${geometry.width}px`;
    stage.style.height = `${geometry.height}px`;
    refreshOver();
    if (isFirst && selected) reveal(selected); // chosen while the box had no width
    if (options.onDrawn) options.onDrawn();
  }

  function refreshOver() {
    if (!geometry) return;
    const ctx = sized(over, geometry, mount.ratio());
    if (plot.over) plot.over(ctx, geometry, mount.theme());
    const cell = hovered || selected;
    if (selected && hovered) outline(ctx, mount.theme(), plot.box(geometry, selected), mount.theme().accent);
    if (cell) plot.mark(ctx, geometry, mount.theme(), cell);
  }

  function hover(cell) {
    if (same(cell, hovered)) return;
    hovered = cell;
    refreshOver();
  }

  function choose(cell) {
    selected = cell;
    hovered = null;
    refreshOver();
    if (cell) reveal(cell);
  }

  function reveal(cell) {
    if (!geometry || geometry.width <= box.clientWidth) return;
    const [x, , width] = plot.box(geometry, cell);
    if (x < box.scrollLeft) box.scrollLeft = x - 20;
    else if (x + width > box.scrollLeft + box.clientWidth) box.scrollLeft = x + width + 20 - box.clientWidth;
  }

  function cellUnder(event) {
    const own = over.getBoundingClientRect();
    return geometry ? plot.pick(geometry, event.clientX - own.left, event.clientY - own.top) : null;
  }

  over.addEventListener("pointermove", (event) => {
    const cell = cellUnder(event);
    hover(cell);
    if (options.onHover) options.onHover(cell, event);
    if (cell) mount.tip(plot.describe(cell), event.clientX, event.clientY);
    else mount.tip(null);
  });
  over.addEventListener("pointerleave", () => {
    hover(null);
    if (options.onHover) options.onHover(null);
    mount.tip(null);
  });
  over.addEventListener("click", (event) => {
    const cell = cellUnder(event);
    if (cell) options.onPick(cell, event);
  });

  const observer = new ResizeObserver(() => {
    if (box.clientWidth && box.clientWidth !== drawnWidth) refresh();
  });
  observer.observe(box);

  return {
    box, show, refresh, hover, choose, measure, reveal,
    plot: () => plot,
    selected: () => selected,
    geometry: () => geometry,
    dispose: () => observer.disconnect(),
  };
}

/** Resizes and clears a canvas; returns its context, scaled to CSS pixels. */
export function sized(canvas, { width, height }, ratio) {
  const sharp = Math.min(ratio, 16000 / Math.max(width, height));
  canvas.width = Math.round(width * sharp);
  canvas.height = Math.round(height * sharp);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d");
  ctx.setTransform(sharp, 0, 0, sharp, 0, 0);
  return ctx;
}
