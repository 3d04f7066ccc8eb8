// A graph: nodes in rows from bottom to top, and edges whose widths show their weights.

/** @import { Cell, Context, Edge, GraphNode, Measure, NetworkView, Plot, Point, Theme } from "./types.d.ts" */
import { colourAt, css } from "./colours.js";
import { ESTIMATE, clamp, extent, readable } from "./data.js";
import { SMALL, elided, widest, wrapped, write } from "./draw.js";

const ROW = 84;
const NODE_HEIGHT = 26;

/** The plot of a view "network"; a cell is [0, edge] or [1, node].
 *  @type {(view: NetworkView) => Plot} */
export function networkPlot(view) {
  const { nodes, edges } = view;
  const largest = Math.max(...edges.map(([, , weight]) => Math.abs(weight)), 0) || 1;
  const [low, high] = extent(nodes.map((node) => node.x));
  const [below, above] = extent(nodes.map((node) => node.y));
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const node of nodes) counts.set(node.y, (counts.get(node.y) || 0) + 1);

  /** @typedef {ReturnType<typeof layout>} Geometry */
  /**
   * @param {number} width
   * @param {Measure} measure
   */
  function layout(width, measure) {
    const crowd = Math.max(...counts.values(), 1);
    const node = clamp(widest(nodes.map((own) => own.name), measure) + 16, 44, 110);
    const label = widest(nodes.map((own) => own.label || ""), measure);
    const room = Math.max(node + 10, Math.min(label + 10, 130));
    const drawn = Math.max(Math.min(width, 860), crowd * (node + 8) + 10);
    return {
      node, measure, room, margin: room / 2 + 4, width: Math.ceil(drawn),
      height: Math.ceil((above - below) * ROW + 96),
    };
  }

  /** @type {(geometry: Geometry, node: GraphNode) => Point} */
  function place(geometry, { x, y }) {
    const { margin, width } = geometry;
    const span = width - 2 * margin;
    const across = high > low ? Math.min(span, (high - low) * 190) : 0;
    return [
      margin + span / 2 + (high > low ? ((x - low) / (high - low) - 0.5) * across : 0), 30 + (above - y) * ROW,
    ];
  }

  /** @type {(theme: Theme, weight: number) => { colour: string, width: number }} */
  const style = (theme, weight) => ({
    colour: css(colourAt("diverging", theme.dark, weight < 0 ? 0.1 : 0.9)),
    width: 0.75 + (5.5 * Math.abs(weight)) / largest,
  });

  /** @type {Plot<Geometry>["draw"]} */
  function draw(ctx, geometry, theme) {
    for (const edge of edges) drawEdge(ctx, geometry, theme, edge, 0.75);
    for (const node of nodes) drawNode(ctx, geometry, theme, node, false);
    const size = `line width: absolute weight (${view.unit}, up to ${readable(largest)})`;
    const words = `${size}; orange: positive, purple: negative${view.estimated ? "; dashed: estimated" : ""}`;
    const lines = wrapped(words, geometry.width - 8, geometry.measure);
    lines.forEach((text, n) => {
      write(
        ctx, text, 2, geometry.height - 10 - 14 * (lines.length - 1 - n), { colour: theme.soft, size: SMALL },
      );
    });
  }

  /** @type {(ctx: Context, geometry: Geometry, theme: Theme, edge: Edge, alpha: number) => void} */
  function drawEdge(ctx, geometry, theme, [from, to, weight], alpha) {
    const [one, other] = [place(geometry, nodes[from]), place(geometry, nodes[to])];
    const own = style(theme, weight);
    ctx.globalAlpha = alpha;
    ctx.strokeStyle = own.colour;
    ctx.lineWidth = own.width;
    if (view.estimated) ctx.setLineDash([6, 4]);
    curve(ctx, one, other);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.globalAlpha = 1;
  }

  /** @type {(ctx: Context, geometry: Geometry, theme: Theme, node: GraphNode, chosen: boolean) => void} */
  function drawNode(ctx, geometry, theme, node, chosen) {
    const [x, y] = place(geometry, node);
    const [width, half] = [geometry.node, NODE_HEIGHT / 2];
    ctx.beginPath();
    ctx.roundRect(x - width / 2, y - half, width, NODE_HEIGHT, 7);
    ctx.fillStyle = theme.paper;
    ctx.fill();
    ctx.strokeStyle = chosen ? theme.accent : theme.link;
    ctx.lineWidth = chosen ? 3 : 1.5;
    ctx.stroke();
    write(
      ctx, elided(node.name, width - 8, geometry.measure), x, y + 0.5, { colour: theme.ink, align: "center" },
    );
    if (!node.label) return;
    const text = elided(node.label, geometry.room, geometry.measure);
    const room = Math.min(geometry.measure(text), geometry.room);
    ctx.fillStyle = theme.paper;
    ctx.globalAlpha = 0.85;
    ctx.fillRect(x - room / 2 - 2, y + half + 3, room + 4, 14);
    ctx.globalAlpha = 1;
    write(ctx, text, x, y + half + 10, { colour: theme.soft, size: SMALL, align: "center" });
  }

  /** @type {Plot<Geometry>["mark"]} */
  function mark(ctx, geometry, theme, [kind, n]) {
    const own = kind ? edges.filter(([from, to]) => from === n || to === n) : [edges[n]];
    for (const edge of own) drawEdge(ctx, geometry, theme, edge, 1);
    const ends = new Set(own.flatMap(([from, to]) => [from, to]));
    if (kind) ends.add(n);
    for (const end of ends) drawNode(ctx, geometry, theme, nodes[end], true);
  }

  /** @type {Plot<Geometry>["pick"]} */
  function pick(geometry, x, y) {
    const node = nodes.findIndex((own) => {
      const [left, top] = place(geometry, own);
      return Math.abs(left - x) <= geometry.node / 2 && Math.abs(top - y) <= NODE_HEIGHT / 2;
    });
    if (node >= 0) return [1, node];
    let [found, best] = [/** @type {Cell | null} */ (null), 7];
    edges.forEach(([from, to], n) => {
      const distance = distanceToEdge(place(geometry, nodes[from]), place(geometry, nodes[to]), x, y);
      if (distance < best) [found, best] = [[0, n], distance];
    });
    return found;
  }

  /** @type {Plot<Geometry>["box"]} */
  function box(geometry, [kind, n]) {
    const [x, y] = kind ? place(geometry, nodes[n]) : middle(
      place(geometry, nodes[edges[n][0]]), place(geometry, nodes[edges[n][1]]),
    );
    return [x - 8, y - 8, 16, 16];
  }

  /** @type {Plot["describe"]} */
  function describe([kind, n]) {
    if (kind) {
      const own = edges.filter(([from, to]) => from === n || to === n).length;
      return {
        name: nodes[n].name, text: [nodes[n].label, `${own} edges`].filter(Boolean).join(" · "), pick: "node",
      };
    }
    const [from, to, weight] = edges[n];
    return {
      name: `${nodes[from].name} → ${nodes[to].name}`, value: weight, unit: view.unit, signed: true,
      lines: view.estimated ? [ESTIMATE] : [],
    };
  }

  /** @type {Plot["move"]} */
  function move(cell, down, right) {
    if (!cell) return nodes.length ? [1, 0] : null;
    const kind = down ? 1 - cell[0] : cell[0];
    const size = kind ? nodes.length : edges.length;
    return size ? [kind, down ? 0 : clamp(cell[1] + right, 0, size - 1)] : cell;
  }

  return { rows: 2, columns: edges.length, layout, draw, mark, pick, box, describe, move };
}

/** Traces the path of an edge, vertical at both ends.
 *  @type {(ctx: Context, from: Point, to: Point) => void} */
function curve(ctx, [x, y], [toX, toY]) {
  const half = (y + toY) / 2;
  ctx.beginPath();
  ctx.moveTo(x, y);
  ctx.bezierCurveTo(x, half, toX, half, toX, toY);
}

/** The point of that path at a place from 0 to 1.
 *  @type {(from: Point, to: Point, place: number) => Point} */
function alongEdge([x, y], [toX, toY], place) {
  const [back, half] = [1 - place, (y + toY) / 2];
  const [a, b, c, d] = [back ** 3, 3 * back * back * place, 3 * back * place * place, place ** 3];
  return [(a + b) * x + (c + d) * toX, a * y + (b + c) * half + d * toY];
}

/** The midpoint of that path.
 *  @type {(one: Point, other: Point) => Point} */
function middle(one, other) {
  return alongEdge(one, other, 0.5);
}

/** The distance of a point from an edge.
 *  @type {(one: Point, other: Point, x: number, y: number) => number} */
function distanceToEdge(one, other, x, y) {
  let best = Infinity;
  for (let n = 0; n <= 24; n += 1) {
    const [px, py] = alongEdge(one, other, n / 24);
    best = Math.min(best, Math.hypot(px - x, py - y));
  }
  return best;
}

