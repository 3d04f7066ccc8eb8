// Line plots in panels, one above the other, over a shared x axis.

/** @import { Cell, Context, CurvesView, Measure, Plot, Point, Sent, SentPanel, Theme } from "./types.d.ts" */
import { LINES } from "./colours.js";
import { clamp, decodedOnce, extent, readable } from "./data.js";
import { SMALL, niceTicks, write } from "./draw.js";

const PANEL = 190;
const PANEL_GAP = 38;
const KEY_LINE = 20;
const FAINT = 0.55;

/** @typedef {{
 *    name: string, faint?: boolean, x: number[], y: number[], panel: number, unit: string, colour: number,
 *  }} Curve */
/** @typedef {{ curve: Curve, x: number, line: number }} Key */

/** The plot of a view "curves"; its cells are [curve, point].
 *  @type {(view: CurvesView) => Plot} */
export function curvesPlot(view) {
  const list = (/** @type {Sent} */ sent) => Array.from(decodedOnce(sent).data);
  const panels = view.panels.map((panel) => ({
    ...panel, curves: panel.curves.map((curve) => ({ ...curve, x: list(curve.x), y: list(curve.y) })),
  }));
  /** @type {Curve[]} */
  const all = panels.flatMap((panel, at) => panel.curves.map((curve) => ({
    ...curve, panel: at, unit: panel.unit, colour: -1,
  })));
  // Curves with the same name in different panels share a colour and an entry in the legend.
  const names = [...new Set(all.filter((curve) => !curve.faint).map((curve) => curve.name))];
  for (const curve of all) if (!curve.faint) curve.colour = names.indexOf(curve.name);
  const named = all.filter((curve, n) => (
    all.findIndex((own) => own.name === curve.name && own.faint === curve.faint) === n
  ));
  const whole = all.every((curve) => curve.x.every(Number.isInteger)) ? 1 : 0;
  const [first, last] = extent([...all.flatMap((curve) => curve.x), ...(view.marked || [])]);
  const along = view.log ? Math.log10 : (/** @type {number} */ x) => x;
  const yEnds = panels.map((panel) => padded(extent([
    ...panel.curves.flatMap((curve) => curve.y), ...(panel.ends || []),
  ])));

  /** @typedef {ReturnType<typeof layout>} Geometry */
  /**
   * @param {number} width
   * @param {Measure} measure
   */
  function layout(width, measure) {
    const [left, right] = [56, 16];
    const drawn = Math.min(width, 860) - left - right;
    const keys = keyLines(named, measure, drawn);
    const lines = keys.length ? keys[keys.length - 1].line + 1 : 0;
    const bottom = panels.length * (PANEL + PANEL_GAP);
    return {
      left, drawn, keys, measure, bottom, width: Math.ceil(left + drawn + right),
      height: bottom + 26 + lines * KEY_LINE,
    };
  }

  /** @type {(geometry: Geometry, x: number) => number} */
  const xOf = ({ left, drawn }, x) => left + ((along(x) - along(first)) / (along(last) - along(first) || 1)) * drawn;
  /** @type {(panel: number) => number} */
  const topOf = (panel) => panel * (PANEL + PANEL_GAP) + PANEL_GAP - 14;
  /** @type {(panel: number, y: number) => number} */
  const yOf = (panel, y) => {
    const [low, high] = yEnds[panel];
    return topOf(panel) + PANEL - ((y - low) / (high - low)) * PANEL;
  };
  /** @type {(theme: Theme, curve: Curve) => string} */
  const colourOfCurve = (theme, curve) => {
    const own = LINES[theme.dark ? "dark" : "light"];
    return curve.colour < 0 ? theme.soft : own[curve.colour % own.length];
  };

  /** @type {Plot<Geometry>["draw"]} */
  function draw(ctx, geometry, theme) {
    panels.forEach((panel, at) => grid(ctx, geometry, theme, panel, at));
    for (const curve of all.filter((own) => own.faint)) stroke(ctx, geometry, theme, curve, FAINT);
    for (const curve of all.filter((own) => !own.faint)) stroke(ctx, geometry, theme, curve, 1);
    ctx.setLineDash([]);
    for (const { curve, x, line } of geometry.keys) {
      const y = geometry.bottom + 32 + line * KEY_LINE;
      ctx.fillStyle = colourOfCurve(theme, curve);
      ctx.globalAlpha = curve.faint ? FAINT : 1;
      ctx.fillRect(geometry.left + x, y - 1.5, 16, curve.faint ? 2 : 3);
      ctx.globalAlpha = 1;
      write(ctx, curve.name, geometry.left + x + 21, y, { colour: theme.soft, size: SMALL });
    }
  }

  /** @type {(ctx: Context, geometry: Geometry, theme: Theme, panel: SentPanel, at: number) => void} */
  function grid(ctx, geometry, theme, panel, at) {
    const { left, drawn } = geometry;
    const heading = panel.title && panel.unit ? `${panel.title} (${panel.unit})` : panel.title || panel.unit;
    write(ctx, heading, 0, topOf(at) - 14, { colour: theme.soft, size: SMALL, weight: 600 });
    for (const tick of niceTicks(...yEnds[at], 4)) {
      const y = Math.round(yOf(at, tick));
      ctx.fillStyle = theme.line;
      ctx.fillRect(left, y, drawn, 1);
      write(ctx, readable(tick), left - 6, y, { colour: theme.soft, size: SMALL, align: "right" });
    }
    ctx.setLineDash([2, 3]);
    ctx.strokeStyle = theme.soft;
    for (const x of view.marked || []) line(
      ctx, xOf(geometry, x), topOf(at), xOf(geometry, x), topOf(at) + PANEL,
    );
    ctx.setLineDash([]);
    if (at < panels.length - 1) return;
    for (const tick of (view.log ? logTicks(first, last) : niceTicks(
      first, last, clamp(Math.floor(drawn / 60), 3, 10), whole,
    ))) {
      write(
        ctx, readable(tick), xOf(geometry, tick), topOf(at) + PANEL + 12,
        { colour: theme.soft, size: SMALL, align: "center" },
      );
    }
    write(
      ctx, view.axis, left + drawn / 2, topOf(at) + PANEL + 27,
      { colour: theme.soft, size: SMALL, align: "center" },
    );
  }

  /** @type {(ctx: Context, geometry: Geometry, theme: Theme, curve: Curve, alpha: number) => void} */
  function stroke(ctx, geometry, theme, curve, alpha) {
    ctx.globalAlpha = alpha;
    ctx.strokeStyle = colourOfCurve(theme, curve);
    ctx.lineWidth = curve.faint ? 1 : 2;
    ctx.lineJoin = "round";
    ctx.beginPath();
    let drawing = false;
    curve.x.forEach((x, n) => {
      const y = curve.y[n];
      if (!Number.isFinite(y)) {
        drawing = false;
        return;
      }
      /** @type {Point} */
      const place = [xOf(geometry, x), yOf(curve.panel, y)];
      if (drawing) ctx.lineTo(...place);
      else ctx.moveTo(...place);
      drawing = true;
    });
    ctx.stroke();
    ctx.globalAlpha = 1;
    if (curve.x.length === 1) dot(ctx, geometry, theme, curve, 0);
  }

  /** @type {(ctx: Context, geometry: Geometry, theme: Theme, curve: Curve, n: number) => void} */
  function dot(ctx, geometry, theme, curve, n) {
    ctx.fillStyle = colourOfCurve(theme, curve);
    ctx.strokeStyle = theme.paper;
    ctx.lineWidth = 2;
    ctx.beginPath();
    ctx.arc(xOf(geometry, curve.x[n]), yOf(curve.panel, curve.y[n]), 4.5, 0, 2 * Math.PI);
    ctx.fill();
    ctx.stroke();
  }

  /** @type {Plot<Geometry>["box"]} */
  function box(geometry, [curve, n]) {
    const own = all[curve];
    return [xOf(geometry, own.x[n]) - 4, yOf(own.panel, own.y[n]) - 4, 8, 8];
  }

  /** @type {Plot<Geometry>["mark"]} */
  function mark(ctx, geometry, theme, [curve, n]) {
    ctx.fillStyle = theme.soft;
    ctx.fillRect(Math.round(xOf(geometry, all[curve].x[n])), topOf(all[curve].panel), 1, PANEL);
    dot(ctx, geometry, theme, all[curve], n);
  }

  /** @type {Plot<Geometry>["pick"]} */
  function pick(geometry, x, y) {
    let [found, best] = [/** @type {Cell | null} */ (null), 40];
    all.forEach((curve, c) => {
      if (y < topOf(curve.panel) - 8 || y > topOf(curve.panel) + PANEL + 8) return;
      curve.x.forEach((own, n) => {
        const distance = Math.hypot(2 * (xOf(geometry, own) - x), yOf(curve.panel, curve.y[n]) - y);
        if (distance < best) [found, best] = [[c, n], distance];
      });
    });
    return found;
  }

  /** @type {Plot["describe"]} */
  function describe([curve, n]) {
    const own = all[curve];
    return {
      name: `${own.name ? `${own.name}, ` : ""}${view.axis} ${readable(own.x[n])}`, value: own.y[n],
      unit: own.unit, x: own.x[n],
    };
  }

  /** @type {Plot["move"]} */
  function move(cell, down, right) {
    if (!cell) return [0, 0];
    const curve = clamp(cell[0] + down, 0, all.length - 1);
    return [curve, clamp(cell[1] + right, 0, all[curve].x.length - 1)];
  }

  return { rows: all.length, columns: 0, layout, draw, mark, pick, box, describe, move };
}

/** A straight line.
 *  @type {(ctx: Context, x: number, y: number, toX: number, toY: number) => void} */
function line(ctx, x, y, toX, toY) {
  ctx.beginPath();
  ctx.moveTo(x, y);
  ctx.lineTo(toX, toY);
  ctx.stroke();
}

/** 1, 2 and 5 times the powers of ten between two ends, or only the powers if there are many.
 *  @type {(low: number, high: number) => number[]} */
export function logTicks(low, high) {
  const powers = [];
  for (let n = Math.floor(Math.log10(low)); n <= Math.log10(high); n += 1) powers.push(10 ** n);
  const ticks = powers.length > 3 ? powers : powers.flatMap((power) => [power, 2 * power, 5 * power]);
  return ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
}

/** Two ends with a margin beyond them; a lower end of zero stays.
 *  @type {(ends: [number, number]) => [number, number]} */
function padded([low, high]) {
  const more = (high - low || Math.abs(high) || 1) * 0.06;
  return [low === 0 ? 0 : low - more, high + more];
}

/** The positions of the names of curves in the legend, in lines from left to right, each name once.
 *  @type {(curves: Curve[], measure: Measure, room: number) => Key[]} */
function keyLines(curves, measure, room) {
  const seen = new Set();
  let [x, line] = [0, 0];
  const found = [];
  for (const curve of curves) {
    const own = `${curve.name} ${curve.colour}`;
    if (!curve.name || seen.has(own)) continue;
    seen.add(own);
    const width = 21 + measure(curve.name) + 18;
    if (x && x + width > room) [x, line] = [0, line + 1];
    found.push({ curve, x, line });
    x += width;
  }
  return found;
}
