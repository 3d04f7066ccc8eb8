// Horizontal bars with intervals, one per row, or two if the view has a second quantity. Over the first
// bar of a row, marks for other numbers of the row, which differ in shape and colour.

/** @import { BarsView, Box, Context, Measure, Numbers, Plot, Scale, Sent, Theme, Writing } from "./types.d.ts" */
import { LINES, colourAt, css, ofHex } from "./colours.js";
import { ESTIMATE, clamp, decodedOnce, extent, intervalText, isEstimate, readable, withUnit } from "./data.js";
import { SMALL, badge, elided, hatch, niceTicks, write } from "./draw.js";
import { labelRoom, moved } from "./matrix.js";

const BAR = 24;
const BAR_GAP = 5;
const AXIS = 34;
/** Number of rows from which the axis is also above the bars. */
const LONG = 16;
/** Half the size of a mark, in pixels. */
const MARK_SIZE = 4.5;
/** Shapes of marks and their colours in LINES, or that of text, as in analyses/results/figures.py. */
const MARK_STYLES = /** @type {[string, number | null][]} */ ([["diamond", 2], ["circle", null], ["square", 5]]);

/** @typedef {{
 *    title: string, values: Numbers, low?: Numbers, high?: Numbers, helps?: Scale["helps"], estimated?: Sent,
 *  }} Quantity */
/** @typedef {{ title: string, isMark: boolean, n: number, x: number, y: number }} Key */

/** The plot of a view "bars".
 *  @type {(view: BarsView) => Plot} */
export function barsPlot(view) {
  const list = (/** @type {Sent} */ sent) => decodedOnce(sent).data;
  /** @type {Quantity[]} */
  const sets = [{
    values: list(view.values), low: view.low && list(view.low), high: view.high && list(view.high),
    title: view.first || "", helps: view.scale?.helps, estimated: view.estimated,
  }];
  if (view.second) sets.push({ ...view.second, values: list(view.second.values) });
  const marks = (view.marks || []).map((sent) => (
    /** @type {Quantity} */ ({ title: sent.title, values: list(sent.values) })
  ));
  const rows = view.labels.length;
  const ends = [0];
  for (const drawn of [...sets, ...marks]) for (const numbersOf of [
    drawn.values, drawn.low, drawn.high,
  ]) if (numbersOf) ends.push(...extent([0, ...numbersOf]));
  const [low, high] = extent([
    ...ends, ...(view.scale ? [Math.min(0, view.scale.low), view.scale.high] : []),
  ]);
  const signed = view.scale ? view.scale.kind === "diverging" : low < 0;

  /** @typedef {ReturnType<typeof layout>} Geometry */
  /**
   * @param {number} width
   * @param {Measure} measure
   */
  function layout(width, measure) {
    const left = labelRoom(view.labels, measure, width) + 10;
    const right = 58;
    const thick = sets.length * 9 + 7 > BAR ? sets.length * 11 + 4 : BAR;
    const drawn = Math.max(60, Math.min(width, 860) - left - right);
    const keys = keyPlaces(left, Math.max(left + drawn + right, 200), measure);
    const top = (keys.length ? keys[keys.length - 1].y + 17 : 6) + (rows < LONG ? 0 : AXIS);
    return {
      left, top, drawn, thick, measure, keys, labelWidth: left - 10,
      origin: left + (low < 0 ? 44 : 0), span: drawn - (low < 0 ? 44 : 0),
      width: Math.ceil(left + drawn + right), height: top + thick * rows + AXIS,
    };
  }

  /** @type {(geometry: Geometry, value: number) => number} */
  const xOf = ({ origin, span }, value) => origin + ((value - low) / (high - low || 1)) * span;

  /** @type {Plot<Geometry>["draw"]} */
  function draw(ctx, geometry, theme) {
    const { top, thick, labelWidth, left, measure } = geometry;
    axis(ctx, geometry, theme);
    for (let row = 0; row < rows; row += 1) {
      const y = top + row * thick;
      const label = elided(view.labels[row], labelWidth, measure);
      write(ctx, label, left - 8, y + thick / 2, { colour: theme.ink, align: "right" });
      sets.forEach((set, n) => bar(ctx, geometry, theme, set, n, row));
      marks.forEach((_, n) => markOf(ctx, geometry, theme, n, row));
    }
    ctx.fillStyle = theme.soft;
    ctx.fillRect(Math.round(xOf(geometry, 0)), top, 1, thick * rows);
    for (const { n, isMark, title, x, y } of geometry.keys) {
      if (isMark) markShape(ctx, theme, n, x + 6, y);
      else {
        ctx.fillStyle = barColour(theme, sets[n].helps === "below" ? -1 : 1, n);
        ctx.fillRect(x, y - 5, 12, 10);
      }
      write(ctx, title, x + 17, y + 0.5, { colour: theme.soft, size: SMALL });
    }
  }

  /** Ticks and unit below the bars, and of a long chart also above them.
   *  @type {Plot<Geometry>["draw"]} */
  function axis(ctx, geometry, theme) {
    const { top, thick, origin, span } = geometry;
    const bottom = top + thick * rows;
    /** @type {Writing} */
    const style = { colour: theme.soft, size: SMALL, align: "center" };
    const ends = rows < LONG ? [[bottom + 10, bottom + 25]] : [[bottom + 10, bottom + 25], [top - 10, top - 25]];
    const helps = signed && sets.length < 2 && view.scale?.helps ? `${view.scale.helps} 0: helps` : "";
    for (const tick of niceTicks(low, high, clamp(Math.floor(span / 70), 3, 7))) {
      const x = Math.round(xOf(geometry, tick));
      ctx.fillStyle = theme.line;
      ctx.fillRect(x, top, 1, bottom - top);
      for (const [y] of ends) write(ctx, readable(tick), x, y, style);
    }
    for (const [, y] of ends) write(
      ctx, [view.unit, helps].filter(Boolean).join(" · "), origin + span / 2, y, style,
    );
  }

  /** @type {(ctx: Context, geometry: Geometry, theme: Theme, set: Quantity, n: number, row: number) => void} */
  function bar(ctx, geometry, theme, set, n, row) {
    const value = set.values[row];
    const [x, y, width, height] = barBox(geometry, value, n, row);
    if (Number.isNaN(value)) {
      hatch(ctx, theme.line, xOf(geometry, 0), y, 40, height);
      return;
    }
    ctx.fillStyle = barColour(theme, value, n);
    if (isEstimate(set.estimated, row)) hollow(ctx, theme, barColour(theme, value, n), [x, y, width, height]);
    else ctx.fillRect(x, y, width, height);
    interval(ctx, geometry, theme, set, row, y + height / 2);
    if (sets.length > 1 || marks.length) return;
    const edge = set.low && set.high && !Number.isNaN(set.high[row])
      ? [set.low[row], set.high[row]] : [value, value];
    const beyond = value < 0 ? xOf(
      geometry, Math.min(value, edge[0]),
    ) - 5 : xOf(geometry, Math.max(value, edge[1])) + 5;
    write(ctx, readable3(value, signed), beyond, y + height / 2, {
      colour: theme.soft, size: SMALL, align: value < 0 ? "right" : "left",
    });
  }

  /** A bar of an estimate: an outline, hatched.
   *  @type {(ctx: Context, theme: Theme, colour: string, box: Box) => void} */
  function hollow(ctx, theme, colour, [x, y, width, height]) {
    ctx.globalAlpha = 0.45;
    hatch(ctx, theme.ink, x, y, width, height);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = colour;
    ctx.lineWidth = 1.5;
    ctx.strokeRect(x + 0.75, y + 0.75, Math.max(0, width - 1.5), height - 1.5);
  }

  /** @type {(geometry: Geometry, value: number, n: number, row: number) => Box} */
  function barBox(geometry, value, n, row) {
    const zero = xOf(geometry, 0);
    const end = Number.isNaN(value) ? zero : xOf(geometry, value);
    const height = (geometry.thick - BAR_GAP - (sets.length - 1)) / sets.length;
    const y = geometry.top + row * geometry.thick + BAR_GAP / 2 + n * (height + 1);
    return [Math.min(zero, end), y, Math.max(1, Math.abs(end - zero)), height];
  }

  /** @type {(theme: Theme, value: number, n: number) => string} */
  function barColour(theme, value, n) {
    const faint = n === 1 ? 0.5 : 1;
    if (!signed) return css(ofHex(LINES[theme.dark ? "dark" : "light"][n]), 1);
    const helps = (value < 0) === (sets[n].helps === "below");
    return css(colourAt("diverging", theme.dark, helps ? 0.9 : 0.1), faint);
  }

  /** @type {(ctx: Context, geometry: Geometry, theme: Theme, set: Quantity, row: number, y: number) => void} */
  function interval(ctx, geometry, theme, set, row, y) {
    if (!set.low || !set.high || Number.isNaN(set.low[row]) || Number.isNaN(set.high[row])) return;
    const [from, to] = [xOf(geometry, set.low[row]), xOf(geometry, set.high[row])];
    ctx.fillStyle = theme.ink;
    ctx.fillRect(from, y - 0.5, to - from, 1.5);
    ctx.fillRect(from - 0.5, y - 4, 1.5, 8);
    ctx.fillRect(to - 0.5, y - 4, 1.5, 8);
  }

  /** The entries of the legend with their places, in as many lines as they need; none for bars alone.
   *  @type {(left: number, width: number, measure: Measure) => Key[]} */
  function keyPlaces(left, width, measure) {
    if (sets.length + marks.length < 2) return [];
    const entries = [{ title: sets[0].title, isMark: false, n: 0 }];
    entries.push(...marks.map(({ title }, n) => ({ title, isMark: true, n })));
    if (sets[1]) entries.push({ title: sets[1].title, isMark: false, n: 1 });
    let [x, y] = [left, 9];
    return entries.map((named) => {
      const room = 17 + measure(named.title);
      if (x > left && x + room > width) [x, y] = [left, y + 16];
      const entry = { ...named, x, y };
      x += room + 18;
      return entry;
    });
  }

  /** @type {(ctx: Context, geometry: Geometry, theme: Theme, n: number, row: number) => void} */
  function markOf(ctx, geometry, theme, n, row) {
    const value = marks[n].values[row];
    if (Number.isNaN(value)) return;
    const [, y, , height] = barBox(geometry, sets[0].values[row], 0, row);
    markShape(ctx, theme, n, xOf(geometry, value), y + height / 2);
  }

  /** @type {(ctx: Context, theme: Theme, n: number, x: number, y: number) => void} */
  function markShape(ctx, theme, n, x, y) {
    const [shape, colour] = MARK_STYLES[n % MARK_STYLES.length];
    const [size, diagonal] = [MARK_SIZE, 1.3 * MARK_SIZE];
    ctx.beginPath();
    if (shape === "circle") ctx.arc(x, y, 0.7 * size, 0, 2 * Math.PI); // a diamond below it stays visible
    else if (shape === "square") ctx.rect(x - 0.9 * size, y - 0.9 * size, 1.8 * size, 1.8 * size);
    else for (const [across, down] of [[0, -1], [1, 0], [0, 1], [-1, 0]]) {
      ctx.lineTo(x + diagonal * across, y + diagonal * down);
    }
    ctx.closePath();
    ctx.strokeStyle = theme.paper;
    ctx.lineWidth = 2;
    ctx.stroke();
    ctx.fillStyle = colour === null ? theme.ink : LINES[theme.dark ? "dark" : "light"][colour];
    ctx.fill();
  }

  /** @type {Plot<Geometry>["box"]} */
  function box({ top, thick, left, drawn }, [row]) {
    return [left - 2, top + row * thick, drawn + 56, thick];
  }

  /** @type {Plot<Geometry>["mark"]} */
  function mark(ctx, geometry, theme, cell) {
    const [x, y, width, height] = box(geometry, cell);
    ctx.fillStyle = theme.ink;
    ctx.globalAlpha = 0.08;
    ctx.fillRect(0, y, x + width, height);
    ctx.globalAlpha = 1;
    badge(
      ctx, theme, view.labels[cell[0]], geometry.left - 4, y + height / 2,
      { align: "right", most: geometry.width },
    );
  }

  /** @type {Plot<Geometry>["pick"]} */
  function pick({ top, thick }, _x, y) {
    const row = Math.floor((y - top) / thick);
    return row >= 0 && row < rows ? [row, 0] : null;
  }

  /** @type {Plot["describe"]} */
  function describe([row]) {
    const set = sets[0];
    const between = set.low && set.high ? intervalText(set.low[row], set.high[row], signed) : "";
    const others = [...marks, ...sets.slice(1)].map(({ title, values, estimated }) => (
      `${title} ${withUnit(values[row], view.unit, signed)}${isEstimate(estimated, row) ? ` (${ESTIMATE})` : ""}`
    ));
    return {
      name: view.labels[row], value: set.values[row], unit: view.unit, signed,
      lines: [isEstimate(set.estimated, row) ? ESTIMATE : "", between, ...others].filter(Boolean),
    };
  }

  return {
    rows, columns: 1, layout, draw, mark, pick, box, describe,
    move: (cell, down) => moved(cell, down, 0, rows, 1),
  };
}

/** A number with three significant digits.
 *  @type {(value: number, signed: boolean) => string} */
function readable3(value, signed) {
  return readable(value, signed, 3);
}
