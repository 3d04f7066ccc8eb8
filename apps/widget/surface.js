// A plot on the page: two canvases, the lower with the plot, the upper with the marked cell.

/** @import { Cell, Context, Measure, Mount, Plot, Size, Surface, SurfaceOptions } from "./types.d.ts" */
import { same } from "./data.js";
import { contextOf, font, outline } from "./draw.js";
import { element } from "./elements.js";

/**
 * Shows plots in a box.
 * @template {Plot} Drawn
 * @param {Mount} mount
 * @param {HTMLElement} parent
 * @param {SurfaceOptions} options
 * @returns {Surface<Drawn>}
 */
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
  const measurer = contextOf(document.createElement("canvas"));
  /** @type {Map<string, number>} */
  const widths = new Map();
  let drawnWidth = 0;
  /** @type {Drawn | null} */
  let plot = null;
  /** @type {Size | null} */
  let geometry = null;
  /** @type {[Cell | null, Cell | null]} */
  let [selected, hovered] = [null, null];

  /** @type {Measure} */
  function measure(text) {
    const measured = widths.get(text);
    if (measured !== undefined) return measured;
    measurer.font = font();
    const { width } = measurer.measureText(text);
    widths.set(text, width);
    return width;
  }

  /** @param {Drawn} next */
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

  /** @type {() => void} */
  function refreshOver() {
    if (!plot || !geometry) return;
    const ctx = sized(over, geometry, mount.ratio());
    if (plot.over) plot.over(ctx, geometry, mount.theme());
    const cell = hovered || selected;
    if (selected && hovered) outline(ctx, mount.theme(), plot.box(geometry, selected), mount.theme().accent);
    if (cell) plot.mark(ctx, geometry, mount.theme(), cell);
  }

  /** @type {(cell: Cell | null) => void} */
  function hover(cell) {
    if (same(cell, hovered)) return;
    hovered = cell;
    refreshOver();
  }

  /** @type {(cell: Cell | null) => void} */
  function choose(cell) {
    selected = cell;
    hovered = null;
    refreshOver();
    if (cell) reveal(cell);
  }

  /** @type {(cell: Cell) => void} */
  function reveal(cell) {
    if (!plot || !geometry || geometry.width <= box.clientWidth) return;
    const [x, , width] = plot.box(geometry, cell);
    if (x < box.scrollLeft) box.scrollLeft = x - 20;
    else if (x + width > box.scrollLeft + box.clientWidth) box.scrollLeft = x + width + 20 - box.clientWidth;
  }

  /** @type {(event: MouseEvent) => Cell | null} */
  function cellUnder(event) {
    const own = over.getBoundingClientRect();
    return plot && geometry ? plot.pick(geometry, event.clientX - own.left, event.clientY - own.top) : null;
  }

  over.addEventListener("pointermove", (event) => {
    const cell = cellUnder(event);
    hover(cell);
    if (options.onHover) options.onHover(cell);
    if (plot && cell) mount.tip(plot.describe(cell), event.clientX, event.clientY);
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

/** Resizes and clears a canvas; returns its context, scaled to CSS pixels.
 *  @type {(canvas: HTMLCanvasElement, size: Size, ratio: number) => Context} */
export function sized(canvas, { width, height }, ratio) {
  const sharp = Math.min(ratio, 16000 / Math.max(width, height));
  canvas.width = Math.round(width * sharp);
  canvas.height = Math.round(height * sharp);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const ctx = contextOf(canvas);
  ctx.setTransform(sharp, 0, 0, sharp, 0, 0);
  return ctx;
}
