// The attention patterns of a view "heads", as bytes; 255 is a weight of 1.

/**
 * @import {
 *   Cell, Decoded, Description, Encoded, Hidden, Layer, Numbers, Pattern, Place, Plot, Scale,
 *   SentPatterns, Store,
 * } from "./types.d.ts"
 */
import { clamp, decodedOnce, extent, headName } from "./data.js";
import { hatch, numbered, outline, write } from "./draw.js";

const THUMBNAIL_PIXELS = 96;

/** @typedef {{
 *    patterns: SentPatterns, weighted?: SentPatterns, minus?: SentPatterns, minus_weighted?: SentPatterns,
 *  }} SentStore */

/** The patterns by layer and head, or their differences: {layers, heads(layer), of, thumbnail, most}.
 *  @type {(view: SentStore) => Store} */
export function patternStore(view) {
  const plain = layersOf(view.patterns);
  const weighted = view.weighted ? layersOf(view.weighted) : null;
  const other = view.minus ? layersOf(view.minus) : null;
  const otherWeighted = view.minus_weighted ? layersOf(view.minus_weighted) : null;
  /** @type {(layer: Layer, from: Layer | undefined, head: number) => Pattern | null} */
  const minus = (layer, from, head) => without(cut(layer, head), from ? cut(from, head) : null);
  /** @type {Store["thumbnail"]} */
  const thumbnail = (layer, head) => {
    const [own, from] = [plain[layer], other?.[layer]];
    return /** @type {Pattern} */ (minus(own.small || own, from && (from.small || from), head));
  };
  return {
    layers: plain.length,
    heads: (layer) => plain[layer].heads,
    of: (layer, head, byValue) => (byValue && weighted
      ? minus(weighted[layer], otherWeighted?.[layer], head) : minus(plain[layer], other?.[layer], head)),
    thumbnail,
    most: other && largest(plain.flatMap(({ heads }, layer) => (
      Array.from({ length: heads }, (_, head) => thumbnail(layer, head))
    ))),
  };
}

/** A pattern minus another, if there is one.
 *  @type {(pattern: Pattern | null, other: Pattern | null) => Pattern | null} */
function without(pattern, other) {
  if (!pattern || !other) return pattern;
  return { ...pattern, data: Int16Array.from(pattern.data, (weight, n) => weight - other.data[n]) };
}

/** The largest absolute weight of patterns; 1 if all are 0.
 *  @type {(patterns: Pattern[]) => number} */
function largest(patterns) {
  let most = 0;
  for (const { data } of patterns) for (const weight of data) most = Math.max(most, Math.abs(weight));
  return most / 255 || 1;
}

/** For each layer {heads, queries, keys, data, small}; data is null where only the small form was sent.
 *  @type {(sent: SentPatterns) => Layer[]} */
function layersOf(sent) {
  if (Array.isArray(sent)) return sent.map((own) => wholeLayer(decodedOnce(own)));
  if ("thumbnails" in sent) return partlySent(sent);
  const { shape, data } = decodedOnce(sent);
  return splitLayers(shape, data);
}

/** @type {(shape: number[], data: Numbers) => (Layer & { data: Numbers })[]} */
function splitLayers([layers, heads, queries, keys], data) {
  const size = heads * queries * keys;
  return Array.from({ length: layers }, (_, n) => ({
    heads, queries, keys, data: data.subarray(n * size, (n + 1) * size),
  }));
}

/** @type {(array: Decoded) => Layer & { data: Numbers }} */
function wholeLayer({ shape, data }) {
  const [heads, queries, keys] = shape.slice(-3);
  return { heads, queries, keys, data };
}

/** @type {(sent: { thumbnails: Encoded, layer: { index: number, patterns: Encoded } }) => Layer[]} */
function partlySent(sent) {
  const { shape, data } = decodedOnce(sent.thumbnails);
  const chosen = wholeLayer(decodedOnce(sent.layer.patterns));
  const { queries, keys } = chosen;
  return splitLayers(shape, data).map((small, n) =>
    n === sent.layer.index ? { ...chosen, small } : { heads: small.heads, queries, keys, data: null, small });
}

/** The pattern of one head, or null where it was not sent.
 *  @type {(layer: Layer, head: number) => Pattern | null} */
function cut({ queries, keys, data }, head) {
  if (!data) return null;
  const size = queries * keys;
  return { queries, keys, data: data.subarray(head * size, (head + 1) * size) };
}

/** Whether a cell shows no weight: a later key under a causal mask, or BOS if it is hidden.
 *  @type {(query: number, key: number, hidden: Hidden) => boolean | undefined} */
function isHidden(query, key, { causal, hideBos }) {
  return (causal && key > query) || (hideBos && key === 0);
}

/** The weights of a pattern, NaN where they are hidden: {shape, data}.
 *  @type {(pattern: Pattern, hidden: Hidden) => { shape: number[], data: Float32Array }} */
export function weightsOf({ queries, keys, data }, hidden) {
  const weights = new Float32Array(queries * keys);
  for (let q = 0, n = 0; q < queries; q += 1) {
    for (let k = 0; k < keys; k += 1, n += 1) weights[n] = isHidden(q, k, hidden) ? NaN : data[n] / 255;
  }
  return { shape: [queries, keys], data: weights };
}

/** The weights of one query over all keys, or of all queries on one key.
 *  @type {(pattern: Pattern, place: Place, hidden: Hidden) => number[]} */
export function lineOf({ queries, keys, data }, { query, key = 0 }, hidden) {
  if (query !== undefined) return Array.from(
    { length: keys }, (_, k) => (isHidden(query, k, hidden) ? NaN : data[query * keys + k] / 255),
  );
  return Array.from(
    { length: queries }, (_, q) => (isHidden(q, key, hidden) ? NaN : data[q * keys + key] / 255),
  );
}

/** The scale of weights: up to 1, or up to the largest weight shown if BOS is hidden; of differences, up to most.
 *  @type {(
 *    weights: Iterable<number>, options: { hideBos?: boolean, root?: boolean, difference?: number | null },
 *  ) => Scale} */
export function weightScale(weights, { hideBos, root, difference }) {
  if (difference) return { kind: "diverging", low: -difference, high: difference, root };
  const most = hideBos ? Math.max(0.01, extent(weights)[1]) : 1;
  return { kind: "sequential", low: 0, high: most, root };
}

/** A pattern reduced to at most a number of pixels per side, by the weight of largest size over cells.
 *  @type {(pattern: Pattern, most?: number) => Pattern} */
export function pooled({ queries, keys, data }, most = THUMBNAIL_PIXELS) {
  const [rows, columns] = [Math.min(queries, most), Math.min(keys, most)];
  if (rows === queries && columns === keys) return { queries, keys, data };
  const small = new Int16Array(rows * columns);
  const column = Int32Array.from({ length: keys }, (_, k) => Math.floor((k * columns) / keys));
  for (let q = 0, n = 0; q < queries; q += 1) {
    const row = Math.floor((q * rows) / queries) * columns;
    for (let k = 0; k < keys; k += 1, n += 1) {
      if (Math.abs(data[n]) > Math.abs(small[row + column[k]])) small[row + column[k]] = data[n];
    }
  }
  return { queries: rows, keys: columns, data: small };
}

const LABEL_LINE = 14;
const THUMBNAIL_GAP = 6;
const NARROW = 360;
/** Margin at both sides for the frame of the chosen head. */
const EDGE = 4;

/** @typedef {{
 *    image(layer: number, head: number): HTMLCanvasElement, collected(): Cell[],
 *    describe(head: Cell): Description, heads?: Cell[],
 *  }} ThumbnailOptions */

/** The plot of thumbnails of all patterns, one row per layer if they fit, or of the heads of a list;
 *  image(layer, head) → canvas.
 *  @type {(store: Store, options: ThumbnailOptions) => Plot} */
export function thumbnailsPlot(store, { image, collected, describe, heads: some }) {
  const all = Array.from({ length: store.layers }, (_, layer) => (
    Array.from({ length: store.heads(layer) }, (_, head) => /** @type {Cell} */ ([layer, head]))
  ));
  const rows = some ? [some] : all;
  const heads = Math.max(...rows.map((row) => row.length));
  /** @type {Map<string, Cell>} */
  const places = new Map(rows.flatMap((row, r) => row.map((head, n) => [String(head), [r, n]])));

  /** @typedef {ReturnType<typeof layout>} Geometry */
  /** @param {number} width */
  function layout(width) {
    const least = width < NARROW ? 44 : 36;
    const across = clamp(Math.floor((width + THUMBNAIL_GAP) / (least + THUMBNAIL_GAP)), 1, heads);
    const even = Math.ceil(heads / Math.ceil(heads / across));
    const size = clamp(Math.floor((width - 2 * EDGE + THUMBNAIL_GAP) / even) - THUMBNAIL_GAP, 28, 76);
    const starts = [0];
    for (const row of rows) starts.push(starts[starts.length - 1] + Math.ceil(row.length / even));
    const line = size + LABEL_LINE + 6;
    return { across: even, size, starts, line, width, height: starts[rows.length] * line + 2 };
  }

  /** @type {Plot<Geometry>["box"]} */
  function box({ across, size, starts, line }, own) {
    const [row, n] = places.get(String(own)) || [0, 0];
    return [
      EDGE + (n % across) * (size + THUMBNAIL_GAP),
      (starts[row] + Math.floor(n / across)) * line + LABEL_LINE, size, size,
    ];
  }

  /** @type {(head: Cell) => boolean} */
  function has(head) {
    return places.has(String(head));
  }

  /** @type {Plot<Geometry>["draw"]} */
  function draw(ctx, geometry, theme, [top, bottom] = [0, Infinity]) {
    ctx.imageSmoothingEnabled = false;
    for (const head of rows.flat()) {
      const [x, y, size] = box(geometry, head);
      if (y + size < top || y - LABEL_LINE > bottom) continue;
      hatch(ctx, theme.line, x, y, size, size);
      ctx.drawImage(image(...head), x, y, size, size);
      ctx.strokeStyle = theme.line;
      ctx.lineWidth = 1;
      ctx.strokeRect(x - 0.5, y - 0.5, size + 1, size + 1);
      write(ctx, headName(...head), x, y - 8, { colour: theme.soft, size: 10 });
    }
  }

  /** @type {Plot<Geometry>["draw"]} */
  function over(ctx, geometry, theme) {
    collected().forEach((head, n) => {
      if (has(head)) numbered(ctx, theme, box(geometry, head), String(n + 1));
    });
  }

  /** @type {Plot<Geometry>["mark"]} */
  function mark(ctx, geometry, theme, cell) {
    const [x, y, size] = box(geometry, cell);
    outline(ctx, theme, [x - 1.5, y - 1.5, size + 3, size + 3], theme.accent, 2.5);
    ctx.fillStyle = theme.paper;
    ctx.fillRect(x - 1, y - LABEL_LINE, size, LABEL_LINE - 4);
    write(ctx, headName(...cell), x, y - 8, { colour: theme.ink, size: 10, weight: 700 });
  }

  /** @type {Plot<Geometry>["pick"]} */
  function pick(geometry, x, y) {
    const row = Math.floor(y / geometry.line);
    const column = Math.floor((x - EDGE) / (geometry.size + THUMBNAIL_GAP));
    const at = geometry.starts.findLastIndex((start) => start <= row);
    if (at < 0 || at >= rows.length || column < 0 || column >= geometry.across) return null;
    return rows[at][(row - geometry.starts[at]) * geometry.across + column] || null;
  }

  return {
    rows: store.layers, columns: heads, layout, draw, over, mark, pick, box, has, describe,
    move: (cell, down, right) => (cell ? movedHead(store, cell, down, right) : [0, 0]),
  };
}

/** The head a number of layers and heads away from another, limited to the edge.
 *  @type {(store: Store, head: Cell, down: number, right: number) => Cell} */
export function movedHead(store, [layer, head], down, right) {
  const to = clamp(layer + down, 0, store.layers - 1);
  return [to, clamp(head + right, 0, store.heads(to) - 1)];
}
