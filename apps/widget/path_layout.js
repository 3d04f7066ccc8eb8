// A graph of paths over tokens: which of its edges are drawn, and where its nodes are.

/** @import { Edge, GraphNode, NetworkView, Point } from "./types.d.ts" */
import { clamp } from "./data.js";

/** The gap between columns, which fills the width as far as this allows. */
const [PATH_GAP, MOST_GAP] = [14, 90];
const PATH_ROW = 38;
const PATH_TOP = 20;
/** The part of a node's name before its position. */
const POSITION = /@.*$/;
/** What a head reads for its scores, which is drawn dashed. */
export const SCORES = ["q", "k"];

/** The indices of the edges of at least a size that lead to the root by such edges.
 *  @type {(view: NetworkView, least: number) => number[]} */
export function drawnEdges({ edges, root }, least) {
  const large = edges.map((_, n) => n).filter((n) => Math.abs(edges[n][2]) >= least);
  if (root === undefined) return large;
  /** @type {Map<number, number[]>} */
  const into = new Map();
  for (const n of large) {
    const [, reader] = edges[n];
    const others = into.get(reader);
    if (others) others.push(n);
    else into.set(reader, [n]);
  }
  const reached = new Set([root]);
  for (const node of reached) { // which grows meanwhile
    for (const n of into.get(node) || []) reached.add(edges[n][0]);
  }
  return large.filter((n) => reached.has(edges[n][1]));
}

/** So many of the edges, those with the largest sizes.
 *  @type {(edges: Edge[], among: number[], most: number) => number[]} */
export function largestOf(edges, among, most) {
  const sizes = sizesOf(among.map((n) => edges[n]));
  return among.filter((n) => Math.abs(edges[n][2]) > sizes[most]);
}

/** The sizes of edges, largest first: the thresholds of the slider.
 *  @type {(edges: Edge[]) => number[]} */
export function sizesOf(edges) {
  return edges.map(([, , weight]) => Math.abs(weight)).sort((one, other) => other - one);
}

/** The name of a node as it is drawn, without its position.
 *  @type {(node: GraphNode) => string} */
export function shortName({ name }) {
  return name.replace(POSITION, "");
}

/** The name of what reads an edge: "L1H0.k@5".
 *  @type {(nodes: GraphNode[], edge: Edge) => string} */
export function readerName(nodes, [, to, , letter]) {
  const short = shortName(nodes[to]);
  return letter ? `${short}.${letter}${nodes[to].name.slice(short.length)}` : nodes[to].name;
}

/** The name of an edge: "L0H0@3 → L1H0.k@5".
 *  @type {(nodes: GraphNode[], edge: Edge) => string} */
export function edgeName(nodes, edge) {
  return `${nodes[edge[0]].name} → ${readerName(nodes, edge)}`;
}

/** Where nodes are: those of one row and column side by side; rows and columns without one are left out.
 *  @type {(
 *    nodes: GraphNode[], drawn: number[], size: { node: number, left: number, width: number },
 *    label: (column: number) => number,
 *  ) => { at: Map<number, Point>, columns: { column: number, x: number, room: number }[],
 *      rows: { row: number, y: number }[], width: number, bottom: number }} */
export function columnLayout(nodes, drawn, { node, left, width }, label) {
  /** @type {Map<number, Map<number, number[]>>} */
  const cells = new Map();
  for (const n of drawn) {
    const { x, y } = nodes[n];
    const column = cells.get(x) || new Map();
    column.set(y, [...(column.get(y) || []), n]);
    cells.set(x, column);
  }
  const rows = [...new Set(drawn.map((n) => nodes[n].y))].sort((one, other) => other - one)
    .map((row, n) => ({ row, y: PATH_TOP + PATH_ROW * n }));
  const height = new Map(rows.map(({ row, y }) => [row, y]));
  /** @type {Map<number, Point>} */
  const at = new Map();
  const ordered = [...cells].sort(([one], [other]) => one - other);
  const rooms = ordered.map(([column, byRow]) => {
    const crowd = Math.max(...[...byRow.values()].map((own) => own.length));
    return Math.max(crowd * (node + 6), Math.min(label(column) + 4, 110));
  });
  const used = left + rooms.reduce((sum, room) => sum + room, 0);
  const gap = clamp((width - used) / Math.max(rooms.length, 1), PATH_GAP, MOST_GAP);
  const columns = [];
  let edge = left;
  for (const [n, [column, byRow]] of ordered.entries()) {
    const middle = edge + rooms[n] / 2;
    for (const [row, own] of byRow) {
      own.forEach((index, place) => {
        at.set(index, [middle + (place - (own.length - 1) / 2) * (node + 6), height.get(row) || 0]);
      });
    }
    columns.push({ column, x: middle, room: rooms[n] });
    edge += rooms[n] + gap;
  }
  return { at, columns, rows, width: edge, bottom: PATH_TOP + PATH_ROW * Math.max(rows.length - 1, 0) };
}
