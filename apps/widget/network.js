// A graph: nodes in rows from bottom to top, and edges whose widths show their weights. With columns
// for tokens, it shows the edges of at least a size, and the nodes between which they lead to the root.

/** @import { Cell, Context, Edge, Measure, NetworkView, Plot, Point, Theme } from "./types.d.ts" */
import { colourAt, css } from "./colours.js";
import { ESTIMATE, clamp, extent, readable } from "./data.js";
import { SMALL, elided, widest, wrapped, write } from "./draw.js";
import { SCORES, columnLayout, drawnEdges, edgeName, largestOf, shortName } from "./path_layout.js";

const ROW = 84;
const NODE_HEIGHT = 26;

/** The plot of a view "network"; a cell is [0, edge] or [1, node]. Of its edges, at most so many of the
 *  largest are drawn, for a picture that is replaced at once.
 *  @type {(view: NetworkView, most?: number) => Plot} */
export function networkPlot(view, most = Infinity) {
  const { nodes, edges, columns } = view;
  const drawn = drawnEdges(view, view.least || 0);
  const lines = drawn.length > most ? largestOf(edges, drawn, most) : drawn;
  const ends = new Set(drawn.flatMap((n) => edges[n].slice(0, 2)));
  if (view.root !== undefined) ends.add(view.root);
  const shown = nodes.map((_, n) => n).filter((n) => view.root === undefined || ends.has(n));
  const largest = Math.max(...drawn.map((n) => Math.abs(edges[n][2])), 0) || 1;
  const half = (columns ? 22 : NODE_HEIGHT) / 2;

  /** @typedef {ReturnType<typeof layout>} Geometry */
  /**
   * @param {number} width
   * @param {Measure} measure
   */
  function layout(width, measure) {
    const names = shown.map((n) => shortName(nodes[n]));
    return columns ? overTokens(width, measure, names, columns) : inRows(width, measure, names);
  }

  /** @type {(width: number, measure: Measure, names: string[]) => any} */
  function inRows(width, measure, names) {
    const [low, high] = extent(nodes.map(({ x }) => x));
    const [below, above] = extent(nodes.map(({ y }) => y));
    /** @type {Map<number, number>} */
    const counts = new Map();
    for (const { y } of nodes) counts.set(y, (counts.get(y) || 0) + 1);
    const crowd = Math.max(...counts.values(), 1);
    const node = clamp(widest(names, measure) + 16, 44, 110);
    const label = widest(nodes.map((own) => own.label || ""), measure);
    const room = Math.max(node + 10, Math.min(label + 10, 130));
    const whole = Math.ceil(Math.max(Math.min(width, 860), crowd * (node + 8) + 10));
    const [margin, span] = [room / 2 + 4, whole - room - 8];
    const across = high > low ? Math.min(span, (high - low) * 190) : 0;
    /** @type {Map<number, Point>} */
    const at = new Map(nodes.map(({ x, y }, n) => [n, [
      margin + span / 2 + (high > low ? ((x - low) / (high - low) - 0.5) * across : 0), 30 + (above - y) * ROW,
    ]]));
    return { node, measure, room, at, width: whole, height: Math.ceil((above - below) * ROW + 96), axes: null };
  }

  /** @type {(width: number, measure: Measure, names: string[], columns: string[]) => any} */
  function overTokens(width, measure, names, labels) {
    const node = clamp(widest(names, measure) + 10, 40, 90);
    const left = widest((view.rows || []).map(String), measure) + 26;
    const axes = columnLayout(
      nodes, shown, { node, left, width }, (column) => measure(labels[column]),
    );
    const whole = Math.ceil(Math.max(axes.width, Math.min(width, 360)));
    const lines = wrapped(legend(), whole - 8, measure).length;
    return {
      node, measure, room: node, at: axes.at, width: whole, height: axes.bottom + 50 + 14 * lines, axes,
    };
  }

  /** @type {() => string} */
  function legend() {
    const size = `line width: absolute weight (${view.unit}, up to ${readable(largest)})`;
    const dashed = drawn.some((n) => SCORES.includes(edges[n][3] || "")) ? "; dashed: queries and keys" : "";
    return `${size}; orange: positive, purple: negative${view.estimated ? "; dashed: estimated" : dashed}`;
  }

  /** @type {(geometry: Geometry, node: number) => Point} */
  function place(geometry, node) {
    return geometry.at.get(node) || [-99, -99];
  }

  /** The ends of an edge, and how far it bends aside.
   *  @type {(geometry: Geometry, from: number, to: number) => [Point, Point, number]} */
  function path(geometry, from, to) {
    const [start, end] = [place(geometry, from), place(geometry, to)];
    return [start, end, columns ? bend(start, end) : 0];
  }

  /** @type {(theme: Theme, weight: number) => { colour: string, width: number }} */
  const style = (theme, weight) => ({
    colour: css(colourAt("diverging", theme.dark, weight < 0 ? 0.1 : 0.9)),
    width: 0.75 + (5.5 * Math.abs(weight)) / largest,
  });

  /** @type {Plot<Geometry>["draw"]} */
  function draw(ctx, geometry, theme) {
    if (geometry.axes) drawAxes(ctx, geometry, theme);
    for (const n of lines) drawEdge(ctx, geometry, theme, edges[n], 0.75);
    for (const n of shown) drawNode(ctx, geometry, theme, n, false);
    const words = wrapped(legend(), geometry.width - 8, geometry.measure);
    // A wide graph with a root first shows what is around it.
    const middle = view.root === undefined ? 0 : place(geometry, view.root)[0];
    words.forEach((text, n) => {
      const size = geometry.measure(text);
      const x = clamp(middle - size / 2, 2, Math.max(2, geometry.width - size - 2));
      write(ctx, text, x, geometry.height - 10 - 14 * (words.length - 1 - n), { colour: theme.soft, size: SMALL });
    });
  }

  /** Writes the names of rows and the tokens of columns.
   *  @type {(ctx: Context, geometry: Geometry, theme: Theme) => void} */
  function drawAxes(ctx, { axes, width, measure }, theme) {
    ctx.strokeStyle = theme.line;
    ctx.lineWidth = 1;
    for (const { row, y } of axes.rows) {
      ctx.beginPath();
      ctx.moveTo(0, y + 0.5);
      ctx.lineTo(width, y + 0.5);
      ctx.stroke();
      const text = view.rows?.[row] || "";
      ctx.fillStyle = theme.paper;
      ctx.fillRect(0, y - 7, measure(text) + 4, 15);
      write(ctx, text, 2, y + 0.5, { colour: theme.soft, size: SMALL });
    }
    for (const { column, x, room } of axes.columns) {
      const text = elided(columns?.[column] || "", room + 8, measure);
      write(ctx, text, x, axes.bottom + 26, { colour: theme.ink, align: "center" });
    }
  }

  /** @type {(ctx: Context, geometry: Geometry, theme: Theme, edge: Edge, alpha: number) => void} */
  function drawEdge(ctx, geometry, theme, [from, to, weight, letter], alpha) {
    const own = style(theme, weight);
    ctx.globalAlpha = alpha;
    ctx.strokeStyle = own.colour;
    ctx.lineWidth = own.width;
    ctx.setLineDash(view.estimated || SCORES.includes(letter || "") ? [6, 4] : []);
    curve(ctx, ...path(geometry, from, to));
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.globalAlpha = 1;
  }

  /** @type {(ctx: Context, geometry: Geometry, theme: Theme, n: number, chosen: boolean) => void} */
  function drawNode(ctx, geometry, theme, n, chosen) {
    const [[x, y], node, width] = [place(geometry, n), nodes[n], geometry.node];
    ctx.beginPath();
    ctx.roundRect(x - width / 2, y - half, width, 2 * half, 7);
    ctx.fillStyle = theme.paper;
    ctx.fill();
    ctx.strokeStyle = chosen ? theme.accent : theme.link;
    ctx.lineWidth = chosen ? 3 : 1.5;
    ctx.stroke();
    const name = elided(shortName(node), width - 4, geometry.measure);
    write(ctx, name, x, y + 0.5, { colour: theme.ink, align: "center" });
    if (!node.label) return;
    const text = elided(node.label, geometry.room, geometry.measure);
    const room = Math.min(geometry.measure(text), geometry.room);
    ctx.fillStyle = theme.paper;
    ctx.globalAlpha = 0.85;
    ctx.fillRect(x - room / 2 - 2, y + half + 3, room + 4, 14);
    ctx.globalAlpha = 1;
    write(ctx, text, x, y + half + 10, { colour: theme.soft, size: SMALL, align: "center" });
  }

  /** The drawn edges of a node.
   *  @type {(node: number) => number[]} */
  function edgesOf(node) {
    return drawn.filter((n) => edges[n][0] === node || edges[n][1] === node);
  }

  /** @type {Plot<Geometry>["mark"]} */
  function mark(ctx, geometry, theme, [kind, n]) {
    const own = kind ? edgesOf(n) : drawn.filter((edge) => edge === n);
    for (const edge of own) drawEdge(ctx, geometry, theme, edges[edge], 1);
    const marked = new Set(own.flatMap((edge) => edges[edge].slice(0, 2)));
    if (kind && shown.includes(n)) marked.add(n);
    for (const end of marked) drawNode(ctx, geometry, theme, Number(end), true);
  }

  /** @type {Plot<Geometry>["pick"]} */
  function pick(geometry, x, y) {
    const node = shown.find((n) => {
      const [left, top] = place(geometry, n);
      return Math.abs(left - x) <= geometry.node / 2 && Math.abs(top - y) <= half;
    });
    if (node !== undefined) return [1, node];
    let [found, best] = [/** @type {Cell | null} */ (null), 7];
    for (const n of drawn) {
      const distance = distanceToEdge(...path(geometry, edges[n][0], edges[n][1]), x, y);
      if (distance < best) [found, best] = [[0, n], distance];
    }
    return found;
  }

  /** @type {Plot<Geometry>["box"]} */
  function box(geometry, [kind, n]) {
    if (!kind) {
      const [x, y] = alongEdge(...path(geometry, edges[n][0], edges[n][1]), 0.5);
      return [x - 8, y - 8, 16, 16];
    }
    const [x, y] = place(geometry, n);
    return [x - geometry.node / 2, y - half, geometry.node, 2 * half];
  }

  /** @type {Plot["describe"]} */
  function describe([kind, n]) {
    if (!kind) {
      return {
        name: edgeName(nodes, edges[n]), value: edges[n][2], unit: view.unit, signed: true,
        lines: view.estimated ? [ESTIMATE] : [],
      };
    }
    const { name, label, note } = nodes[n];
    const text = [label, note, `${edgesOf(n).length} edges`].filter(Boolean).join(" · ");
    return { name, text, pick: "node" };
  }

  /** @type {Plot["move"]} */
  function move(cell, down, right) {
    const first = /** @type {Cell | null} */ (shown.length ? [1, shown[0]] : null);
    if (!cell) return first;
    const kind = down ? 1 - cell[0] : cell[0];
    const among = kind ? shown : drawn;
    if (!among.length) return cell;
    return [kind, down ? among[0] : among[clamp(among.indexOf(cell[1]) + right, 0, among.length - 1)]];
  }

  return { rows: 2, columns: edges.length, layout, draw, mark, pick, box, describe, move };
}
/** How far the path of an edge bends aside, so that it does not run through nodes between its ends.
 *  @type {(from: Point, to: Point) => number} */
function bend([x, y], [toX, toY]) {
  const [across, along] = [Math.abs(toX - x), Math.abs(toY - y)];
  return across < 40 && along > 60 && along < 5000 ? -Math.min(20 + 0.08 * along, 48) : 0;
}

/** Traces the path of an edge, vertical at both ends unless it bends aside.
 *  @type {(ctx: Context, from: Point, to: Point, aside: number) => void} */
function curve(ctx, [x, y], [toX, toY], aside) {
  const half = (y + toY) / 2;
  ctx.beginPath();
  ctx.moveTo(x, y);
  ctx.bezierCurveTo(x + aside, half, toX + aside, half, toX, toY);
}

/** The point of that path at a place from 0 to 1.
 *  @type {(from: Point, to: Point, aside: number, place: number) => Point} */
function alongEdge([x, y], [toX, toY], aside, place) {
  const [back, half] = [1 - place, (y + toY) / 2];
  const [a, b, c, d] = [back ** 3, 3 * back * back * place, 3 * back * place * place, place ** 3];
  return [(a + b) * x + (c + d) * toX + (b + c) * aside, a * y + (b + c) * half + d * toY];
}

/** The distance of a point from that path.
 *  @type {(one: Point, other: Point, aside: number, x: number, y: number) => number} */
function distanceToEdge(one, other, aside, x, y) {
  let best = Infinity;
  for (let n = 0; n <= 24; n += 1) {
    const [px, py] = alongEdge(one, other, aside, n / 24);
    best = Math.min(best, Math.hypot(px - x, py - y));
  }
  return best;
}
