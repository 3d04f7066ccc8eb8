// The order of heads by a score, and the rows and cells of a map whose layers fold.

/** @import { Cell, Scale, Score } from "./types.d.ts" */
import { decodedOnce, extent } from "./data.js";

/** Number of groups into which layers fold; fewer layers do not. */
const GROUPS = 8;

/** @typedef {{ order: Cell[], ranks: Int32Array, count: number }} Ranking */
/** @type {WeakMap<Score, Ranking>} */
const rankings = new WeakMap();

/** The scale of a score: its own, or one up to its largest absolute value.
 *  @type {(score: Score) => Scale} */
export function scaleOf(score) {
  const ends = extent(decodedOnce(score.values).data);
  if (score.scale && typeof score.scale === "object") return score.scale;
  const kind = score.scale || (ends[0] < 0 ? "diverging" : "sequential");
  const most = Math.max(Math.abs(ends[0]), Math.abs(ends[1])) || 1;
  return { kind, low: kind === "diverging" ? -most : 0, high: most };
}

/** The heads by size if the score is an effect around zero, else by value, largest first; heads without
 *  a score come last. ranks has the place of layer * heads + head in this order; count, how many have one.
 *  @type {(score: Score) => Ranking} */
export function rankingOf(score) {
  const known = rankings.get(score);
  if (known) return known;
  const { shape: [, heads], data } = decodedOnce(score.values);
  const bySize = scaleOf(score).kind === "diverging" && score.by !== "value";
  const keys = Float64Array.from(data, (value) => {
    if (Number.isNaN(value)) return -Infinity;
    return bySize ? Math.abs(value) : value;
  });
  const sorted = Array.from(keys.keys()).sort((a, b) => (keys[a] === keys[b] ? a - b : keys[b] - keys[a]));
  const ranks = new Int32Array(data.length);
  sorted.forEach((at, rank) => { ranks[at] = rank; });
  /** @type {Ranking} */
  const made = {
    order: sorted.map((at) => [Math.floor(at / heads), at % heads]), ranks,
    count: keys.reduce((count, key) => count + (key > -Infinity ? 1 : 0), 0),
  };
  rankings.set(score, made);
  return made;
}

/** The rank of a head in words, from 1: "3 of 270"; empty if it has no score.
 *  @type {(score: Score, head: Cell) => string} */
export function rankText(score, [layer, head]) {
  const { ranks, count } = rankingOf(score);
  const rank = ranks[layer * decodedOnce(score.values).shape[1] + head];
  return rank < count ? `${rank + 1} of ${count}` : "";
}

/** The groups of layers that can be folded into one row each: [[first, last], …].
 *  @type {(layers: number) => Cell[]} */
export function layerGroups(layers) {
  if (layers <= GROUPS) return [];
  const size = Math.ceil(layers / GROUPS);
  return Array.from(
    { length: Math.ceil(layers / size) }, (_, n) => [n * size, Math.min((n + 1) * size, layers) - 1],
  );
}

/** The first and last layer of each row of a map; folded has the first layers of folded groups.
 *  @type {(layers: number, folded: number[]) => Cell[]} */
export function mapRows(layers, folded) {
  const groups = layerGroups(layers).filter(([first]) => folded.includes(first));
  /** @type {Cell[]} */
  const rows = [];
  for (let layer = 0; layer < layers; layer = rows[rows.length - 1][1] + 1) {
    rows.push(groups.find(([first]) => first === layer) || [layer, layer]);
  }
  return rows;
}

/** The head in each cell of a map. A folded row has the head that ranks highest in each column; sorted rows
 *  have their heads by rank, as many as there are columns.
 *  @type {(score: Score, rows: Cell[], sorted?: boolean) => Cell[][]} */
export function mapCells(score, rows, sorted) {
  const columns = decodedOnce(score.values).shape[1];
  const { ranks } = rankingOf(score);
  /** @type {(one: Cell, other: Cell) => number} */
  const higher = (one, other) => ranks[one[0] * columns + one[1]] - ranks[other[0] * columns + other[1]];
  return rows.map(([first, last]) => {
    const layers = Array.from({ length: last - first + 1 }, (_, n) => first + n);
    /** @type {(column: number) => Cell[]} */
    const below = (column) => layers.map((layer) => [layer, column]);
    const across = Array.from({ length: columns }, (_, column) => below(column));
    if (sorted) return across.flat().sort(higher).slice(0, columns);
    return across.map((cells) => cells.reduce((best, cell) => (higher(cell, best) < 0 ? cell : best)));
  });
}
