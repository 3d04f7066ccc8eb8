// A plot on the page: two canvases, the lower with the plot, the upper with the marked cell.

/** @import { Cell, Context, Measure, Mount, Plot, Point, Size, Surface, SurfaceOptions } from "./types.d.ts" */
import { same } from "./data.js";
import { contextOf, font, outline } from "./draw.js";
import { element } from "./elements.js";

/** Pixels above and below the visible part of a plot that are drawn with it. */
const OVERSCAN = 240;
/** Pixels beside a cell that scrolls into view. */
const SCROLL_MARGIN = 20;

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
    class: `w-scroll w-plot${options.limited ? " w-limited" : ""}${options.windowed ? " w-windowed" : ""}`, tabindex: options.focusable === false ? "-1" : "0",
    role: "application", "aria-label": options.label || "", "aria-roledescription": "figure",
  }, stage);
  parent.append(box);
  const measurer = contextOf(document.createElement("canvas"));
  /** @type {Map<string, number>} */
  const widths = new Map();
  let [drawnWidth, boxHeight] = [0, 0];
  /** The top and the bottom of what is drawn. */
  let drawn = [0, 0];
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
    if (options.snug) box.style.maxHeight = "";
    [drawnWidth, boxHeight] = [width, box.clientHeight];
    const grows = options.limited && getComputedStyle(box).flexGrow === "1";
    geometry = plot.layout(width, measure, grows ? boxHeight - 2 : Infinity);
    stage.style.width = `${geometry.width}px`;
    stage.style.height = `${geometry.height}px`;
    if (options.snug && grows) box.style.maxHeight = `${geometry.height + 2}px`;
    if (isFirst && options.scroll) {
      [box.scrollLeft, box.scrollTop] = [options.scroll.left, options.scroll.top];
    }
    drawn = visible(geometry, options.windowed ? OVERSCAN : Infinity);
    for (const canvas of [base, over]) canvas.style.top = `${drawn[0]}px`;
    plot.draw(begun(base, geometry), geometry, mount.theme(), [drawn[0], drawn[1]]);
    refreshOver();
    if (isFirst && selected && !options.scroll?.moved) reveal(selected); // chosen while the box had no width
    if (options.onDrawn) options.onDrawn();
  }

  /** The top and the bottom of what the box shows, and of some pixels above and below.
   *  @type {(geometry: Size, more: number) => number[]} */
  function visible({ height }, more) {
    return [Math.max(0, box.scrollTop - more), Math.min(height, box.scrollTop + box.clientHeight + more)];
  }

  /** The context of a cleared canvas, on which the plot's places are those of what is drawn.
   *  @type {(canvas: HTMLCanvasElement, geometry: Size) => Context} */
  function begun(canvas, { width }) {
    const ctx = sized(canvas, { width, height: drawn[1] - drawn[0] }, mount.ratio());
    ctx.translate(0, -drawn[0]);
    return ctx;
  }

  /** @type {() => void} */
  function refreshOver() {
    if (!plot || !geometry) return;
    const ctx = begun(over, geometry);
    if (plot.over) plot.over(ctx, geometry, mount.theme());
    const [at, under] = [selected, hovered].map((cell) => (cell && plot?.has?.(cell) === false ? null : cell));
    if (at && under) outline(ctx, mount.theme(), plot.box(geometry, at), mount.theme().accent);
    const cell = under || at;
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
    const before = selected;
    [selected, hovered] = [cell, null];
    refreshOver();
    if (cell && !same(cell, before) && (before || !options.scroll?.moved)) reveal(cell);
  }

  /** @type {Surface["reveal"]} */
  function reveal(cell, { centred = false } = {}) {
    if (!plot || !geometry || plot.has?.(cell) === false) return;
    const [x, y, width, height] = plot.box(geometry, cell);
    const room = box.clientWidth;
    if (centred) box.scrollLeft = x + (width - room) / 2;
    else if (geometry.width > room) box.scrollLeft = seen(x, width, box.scrollLeft, room);
    if (geometry.height > box.clientHeight) box.scrollTop = seen(y, height, box.scrollTop, box.clientHeight);
  }

  /** @type {(event: MouseEvent) => Cell | null} */
  function cellUnder(event) {
    const [x, y] = placeOfPointer(event);
    return plot && geometry ? plot.pick(geometry, x, y) : null;
  }

  /** @type {(event: MouseEvent) => Point} */
  function placeOfPointer(event) {
    const own = stage.getBoundingClientRect();
    return [event.clientX - own.left, event.clientY - own.top];
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
    if (cell) return options.onPick(cell, event);
    const row = geometry && plot?.labelAt?.(geometry, ...placeOfPointer(event));
    if (typeof row === "number") options.onLabel?.(row);
  });
  box.addEventListener("scroll", () => {
    if (options.scroll) Object.assign(options.scroll, { left: box.scrollLeft, top: box.scrollTop, moved: true });
    if (!geometry || !options.windowed) return;
    const [top, bottom] = visible(geometry, 0);
    if (top < drawn[0] || bottom > drawn[1]) refresh();
  });

  const observer = new ResizeObserver(() => {
    const isTaller = (options.limited || options.windowed) && box.clientHeight !== boxHeight;
    if (box.clientWidth && (box.clientWidth !== drawnWidth || isTaller)) refresh();
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

/** The place to scroll to, so that a stretch is inside a window; where it is, if it is already.
 *  @type {(from: number, size: number, at: number, room: number) => number} */
function seen(from, size, at, room) {
  if (from < at) return from - SCROLL_MARGIN;
  return from + size > at + room ? from + size + SCROLL_MARGIN - room : at;
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
