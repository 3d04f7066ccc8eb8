// Points in a plane, each with a label, coloured by its group.

/** @import { Context, Plot, Point, ScatterView, Theme } from "./types.d.ts" */
import { colourAt, css } from "./colours.js";
import { clamp, decodedOnce, extent, readable, withMeasure } from "./data.js";
import { SMALL, niceTicks, write } from "./draw.js";

const TALL = 380;
const LEFT = 60;
const RIGHT = 16;
const TOP = 26;
const RADIUS = 4;
const REACH = 24;

/** The plot of a view "scatter"; its cells are [0, point].
 *  @type {(view: ScatterView) => Plot} */
export function scatterPlot(view) {
  const [xs, ys] = [view.x, view.y].map((sent) => Array.from(decodedOnce(sent).data));
  const [across, down] = [xs, ys].map((values) => widened(extent(values)));
  const last = Math.max(view.groups.length - 1, 1);
  const legend = view.groups.length > 1;
  // Points from left to right, and from top to bottom, for the arrow keys.
  const [byX, byY] = [xs, ys.map((y) => -y)].map((values) => (
    values.map((_, n) => n).sort((one, other) => values[one] - values[other] || one - other)
  ));

  /** @typedef {ReturnType<typeof layout>} Geometry */
  /** @param {number} width */
  function layout(width) {
    const drawn = Math.min(width, 700) - LEFT - RIGHT;
    return { drawn, width: Math.ceil(LEFT + drawn + RIGHT), height: TOP + TALL + 44 + (legend ? 20 : 0) };
  }

  /** @type {(geometry: Geometry, n: number) => Point} */
  const place = ({ drawn }, n) => [
    LEFT + placeBetween(across, xs[n]) * drawn, TOP + (1 - placeBetween(down, ys[n])) * TALL,
  ];
  /** @type {(theme: Theme, group: number) => string} */
  const colour = (theme, group) => {
    const least = theme.dark ? 0.35 : 0.15;
    return css(colourAt("sequential", theme.dark, least + ((1 - least) * group) / last));
  };

  /** @type {Plot<Geometry>["draw"]} */
  function draw(ctx, geometry, theme) {
    grid(ctx, geometry, theme);
    xs.forEach((_, n) => dot(ctx, geometry, theme, n, RADIUS));
    if (!legend) return;
    const y = geometry.height - 10;
    const start = Math.max(LEFT, 8 + 7 * view.groups[0].length);
    view.groups.forEach((_, group) => {
      ctx.fillStyle = colour(theme, group);
      ctx.fillRect(start + (group * 140) / view.groups.length, y - 5, Math.ceil(140 / view.groups.length), 10);
    });
    write(ctx, view.groups[0], start - 6, y, { colour: theme.soft, size: SMALL, align: "right" });
    write(ctx, view.groups[view.groups.length - 1], start + 146, y, { colour: theme.soft, size: SMALL });
  }

  /** @type {(ctx: Context, geometry: Geometry, theme: Theme) => void} */
  function grid(ctx, { drawn }, theme) {
    const style = { colour: theme.soft, size: SMALL };
    write(ctx, axisTitle(view, 1), 0, 10, { ...style, weight: 600 });
    for (const tick of niceTicks(...down, 5)) {
      const y = Math.round(TOP + (1 - placeBetween(down, tick)) * TALL);
      ctx.fillStyle = theme.line;
      ctx.fillRect(LEFT, y, drawn, 1);
      write(ctx, readable(tick), LEFT - 6, y, { ...style, align: "right" });
    }
    for (const tick of niceTicks(...across, clamp(Math.floor(drawn / 70), 3, 8))) {
      const x = Math.round(LEFT + placeBetween(across, tick) * drawn);
      ctx.fillStyle = theme.line;
      ctx.fillRect(x, TOP, 1, TALL);
      write(ctx, readable(tick), x, TOP + TALL + 12, { ...style, align: "center" });
    }
    write(ctx, axisTitle(view, 0), LEFT + drawn / 2, TOP + TALL + 28, { ...style, align: "center" });
  }

  /** @type {(ctx: Context, geometry: Geometry, theme: Theme, n: number, radius: number) => void} */
  function dot(ctx, geometry, theme, n, radius) {
    ctx.beginPath();
    ctx.arc(...place(geometry, n), radius, 0, 2 * Math.PI);
    ctx.fillStyle = colour(theme, view.group[n]);
    ctx.fill();
    ctx.strokeStyle = radius > RADIUS ? theme.ink : theme.paper;
    ctx.lineWidth = radius > RADIUS ? 2 : 1;
    ctx.stroke();
  }

  /** @type {Plot<Geometry>["mark"]} */
  function mark(ctx, geometry, theme, [, n]) {
    dot(ctx, geometry, theme, n, RADIUS + 2);
    const [x, y] = place(geometry, n);
    const left = x > LEFT + geometry.drawn / 2;
    write(ctx, view.labels[n], x + (left ? -10 : 10), y - 8, {
      colour: theme.ink, weight: 600, align: left ? "right" : "left",
    });
  }

  /** @type {Plot<Geometry>["pick"]} */
  function pick(geometry, x, y) {
    let [nearest, best] = [-1, REACH];
    xs.forEach((_, n) => {
      const [left, top] = place(geometry, n);
      const distance = Math.hypot(left - x, top - y);
      if (distance < best) [nearest, best] = [n, distance];
    });
    return nearest < 0 ? null : [0, nearest];
  }

  /** @type {Plot<Geometry>["box"]} */
  function box(geometry, [, n]) {
    const [x, y] = place(geometry, n);
    return [x - 6, y - 6, 12, 12];
  }

  /** @type {Plot["describe"]} */
  function describe([, n]) {
    const texts = [xs, ys].map((values, axis) => (
      `${view.axes[axis]} ${withMeasure(values[n], view.units[axis])}`
    ));
    return { name: view.labels[n], text: texts.join(" · "), pick: "point" };
  }

  /** @type {Plot["move"]} */
  function move(cell, downwards, right) {
    if (!cell) return xs.length ? [0, byX[0]] : null;
    const order = downwards ? byY : byX;
    return [0, order[clamp(order.indexOf(cell[1]) + downwards + right, 0, order.length - 1)]];
  }

  return { rows: 1, columns: xs.length, layout, draw, mark, pick, box, describe, move };
}

/** The place of a value between two ends, from 0 to 1.
 *  @type {(ends: [number, number], value: number) => number} */
function placeBetween([low, high], value) {
  return (value - low) / (high - low);
}

/** The title of an axis with its unit.
 *  @type {(view: ScatterView, axis: 0 | 1) => string} */
function axisTitle(view, axis) {
  return view.units[axis] ? `${view.axes[axis]} (${view.units[axis]})` : view.axes[axis];
}

/** Two ends with a margin beyond them.
 *  @type {(ends: [number, number]) => [number, number]} */
function widened([low, high]) {
  const more = (high - low || Math.abs(high) || 1) * 0.05;
  return [low - more, high + more];
}
