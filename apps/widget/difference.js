// The difference A − B of two views of one kind, as a view; or the reason why there is none.

/**
 * @import {
 *   BarsView, CurvesView, Decoded, DifferenceView, HeadsView, MatrixView, NoneView, Scale, Score,
 *   Sent, SentCurve, SentPatterns, Titled, TokensView, View,
 * } from "./types.d.ts"
 */
import { decodedOnce, extent, same } from "./data.js";
import { numbers } from "./data_tables.js";

/** Largest number of bars of a difference; those with the largest differences are shown. */
const MOST_BARS = 40;
/** Largest number of names that a note lists. */
const MOST_NAMES = 6;

/** The view that shows a view "difference".
 *  @type {(view: DifferenceView) => View} */
export function differenceView({ id, a, b, run, score }) {
  const shown = a || b;
  const title = a && b && a.title !== b.title
    ? `A − B, where A is “${a.title}” and B is “${b.title}”` : `A − B: ${shown?.title || id}`;
  /** @type {(reason: string) => NoneView} */
  const none = (reason) => ({ kind: "none", id, title, run, reason: `Not subtracted: ${reason}.` });
  if (!a || !b) return none(a ? "only A has this view" : "only B has this view");
  const made = subtracted(a, b, score);
  if (typeof made === "string") return none(made);
  const note = [made.note, a.note === b.note ? a.note : ""].filter(Boolean).join(" ");
  return { ...made, id, title, run, note, file: `${b.file || id}-a-minus-b` };
}

/** The difference without its title, or why there is none.
 *  @type {(a: View, b: View, score?: string) => View | string} */
function subtracted(a, b, score) {
  if (a.kind !== b.kind) return "A and B show different kinds of figures";
  if ((a.unit || "") !== (b.unit || "")) return `the units differ, ${a.unit} and ${b.unit}`;
  if (a.kind === "matrix" && b.kind === "matrix") return ofMatrices(a, b);
  if (a.kind === "tokens" && b.kind === "tokens") return ofTokens(a, b);
  if (a.kind === "bars" && b.kind === "bars") return ofBars(a, b);
  if (a.kind === "curves" && b.kind === "curves") return ofCurves(a, b);
  if (a.kind === "heads" && b.kind === "heads") return ofHeads(a, b, score);
  if (a.kind === "texts") return "texts are compared side by side";
  if (a.kind === "table") return "tables are compared side by side";
  return "graphs are compared side by side";
}

// ---- numbers -----------------------------------------------------------------------------------

/** a − b of two arrays of one shape.
 *  @type {(a: Sent, b: Sent) => Decoded} */
function arrayMinus(a, b) {
  const [one, other] = [decodedOnce(a), decodedOnce(b)];
  if (!same(one.shape, other.shape)) throw new Error(`shape [${one.shape}] minus [${other.shape}].`);
  return { shape: one.shape, data: Float64Array.from(one.data, (value, n) => value - other.data[n]) };
}

/** A diverging scale up to the largest absolute value.
 *  @type {(values: Iterable<number>) => Scale} */
function around(values) {
  const [low, high] = extent(values);
  const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
  return { kind: "diverging", low: -most, high: most };
}

/** @type {(a: Sent, b: Sent) => boolean} */
function sameShape(a, b) {
  return same(decodedOnce(a).shape, decodedOnce(b).shape);
}

/** Where either of two values is an estimate; undefined if none is.
 *  @type {(a?: Sent, b?: Sent) => Decoded | undefined} */
function eitherOf(a, b) {
  const [one, other] = [a && decodedOnce(a), b && decodedOnce(b)];
  const first = one || other;
  if (!first) return undefined;
  return {
    shape: first.shape, data: Uint8Array.from(first.data, (_, n) => Number(Boolean(one?.data[n] || other?.data[n]))),
  };
}

/** A label of both views, or both labels.
 *  @type {(a: string, b: string) => string} */
function both(a, b) {
  return a === b ? a : `${a} | ${b}`;
}

/** @type {(a: string[], b: string[]) => string[]} */
function labels(a, b) {
  return a.map((label, n) => both(label, b[n]));
}

/** @type {(shape: number[]) => string} */
function sizes(shape) {
  return shape.join(" × ");
}

/** Further numbers that both views have.
 *  @type {(a?: Titled[], b?: Titled[]) => Titled[]} */
function titled(a = [], b = []) {
  return a.flatMap(({ title, values }) => {
    const other = b.find((own) => own.title === title);
    return other && sameShape(values, other.values) ? [{ title, values: arrayMinus(values, other.values) }] : [];
  });
}

/** A sentence on rows that only one view has; empty if there are none.
 *  @type {(name: string, rows: string[]) => string} */
function onlyIn(name, rows) {
  if (!rows.length) return "";
  const more = rows.length > MOST_NAMES ? ` and ${rows.length - MOST_NAMES} more` : "";
  return `Only in ${name}, so not subtracted: ${rows.slice(0, MOST_NAMES).join(", ")}${more}.`;
}

// ---- kinds of views ----------------------------------------------------------------------------

/** @type {(a: MatrixView, b: MatrixView) => View | string} */
function ofMatrices(a, b) {
  const [one, other] = [decodedOnce(a.values), decodedOnce(b.values)];
  if (!same(one.shape, other.shape)) return `A has ${sizes(one.shape)} cells, B has ${sizes(other.shape)}`;
  const values = arrayMinus(a.values, b.values);
  const [, columns] = one.shape;
  const texts = a.texts && b.texts ? a.texts.map((row, r) => labels(row, b.texts?.[r] || [])) : undefined;
  let note = "";
  if (texts && a.texts) {
    // What a cell names differs, so its numbers are of different things.
    a.texts.forEach((row, r) => row.forEach((text, c) => {
      if (text !== b.texts?.[r][c]) values.data[r * columns + c] = NaN;
    }));
    note = "Hatched: A and B name different things there.";
  }
  return {
    ...b, rows: labels(a.rows, b.rows), columns: labels(a.columns, b.columns), values, scale: around(values.data),
    texts, note, hover: undefined, beside: titled(a.beside, b.beside), estimated: eitherOf(a.estimated, b.estimated),
    marked: undefined, numbers: b.numbers && !texts,
  };
}

/** @type {(a: TokensView, b: TokensView) => View | string} */
function ofTokens(a, b) {
  if (!a.values || !b.values) return "these tokens have no numbers";
  const [one, other] = [a.tokens.length, b.tokens.length];
  if (one !== other) return `A has ${one} tokens, B has ${other}`;
  const values = arrayMinus(a.values, b.values);
  const aligned = same(a.tokens, b.tokens) ? {} : { aligned: b.tokens, below: "B", ids: undefined };
  return { ...b, tokens: a.tokens, values, scale: around(values.data), note: "", ...aligned };
}

/** The numbers of a bar by its name: its values, and those of further quantities.
 *  @type {(view: BarsView) => Map<string, number[]>} */
function byLabel(view) {
  const columns = [view.values, ...(view.second ? [view.second.values] : [])].map(numbers);
  return new Map(view.labels.map((label, n) => [label, columns.map((column) => column[n])]));
}

/** @type {(a: BarsView, b: BarsView) => View | string} */
function ofBars(a, b) {
  if (a.second?.title !== b.second?.title) return "A and B have different quantities";
  const every = a.every && b.every && a.every.of === b.every.of;
  return every ? ofAllBars(a, b) : ofNamedBars(a, b);
}

/** Of views that have a number for every id, of which they show the largest: the rows of both views.
 *  @type {(a: BarsView, b: BarsView) => View} */
function ofAllBars(a, b) {
  const [one, other] = [a, b].map((view) => numbers(/** @type {Sent} */ (view.every?.values)));
  /** @type {Map<number, string>} */
  const rows = new Map();
  for (const view of [a, b]) view.every?.ids.forEach((id, n) => {
    rows.set(id, view.labels[n]);
  });
  return bars(b, Array.from(rows, ([id, label]) => ({ label, values: [one[id] - other[id]] })), "");
}

/** @type {(a: BarsView, b: BarsView) => View | string} */
function ofNamedBars(a, b) {
  const [one, other] = [byLabel(a), byLabel(b)];
  const shared = [...one.keys()].filter((label) => other.has(label));
  if (!shared.length) return "A and B have no row in common";
  const note = [
    onlyIn("A", a.labels.filter((label) => !other.has(label))), onlyIn("B", b.labels.filter((label) => !one.has(label))),
  ].filter(Boolean).join(" ");
  return bars(b, shared.map((label) => ({
    label, values: (one.get(label) || []).map((value, n) => value - (other.get(label) || [])[n]),
  })), note);
}

/** Bars of differences, the largest first.
 *  @type {(view: BarsView, rows: { label: string, values: number[] }[], note: string) => BarsView} */
function bars(view, rows, note) {
  const size = (/** @type {{ values: number[] }} */ row) => Math.abs(row.values[0]) || 0;
  const shown = [...rows].sort((one, other) => size(other) - size(one)).slice(0, MOST_BARS);
  const columns = shown.length ? shown[0].values.map((_, n) => shown.map((row) => row.values[n])) : [[]];
  const cut = rows.length > shown.length ? `The ${shown.length} largest of ${rows.length} differences.` : "";
  return {
    ...view, labels: shown.map((row) => row.label), values: columns[0], scale: around(columns.flat()),
    low: undefined, high: undefined, marks: undefined, every: undefined,
    second: view.second && { ...view.second, values: columns[1] }, note: [note, cut].filter(Boolean).join(" "),
  };
}

/** @type {(a: CurvesView, b: CurvesView) => View | string} */
function ofCurves(a, b) {
  const left = [];
  const panels = [];
  for (const panel of b.panels) {
    const theirs = a.panels.find((own) => own.title === panel.title && own.unit === panel.unit);
    /** @type {SentCurve[]} */
    const curves = [];
    for (const curve of panel.curves) {
      const other = theirs?.curves.find((own) => own.name === curve.name);
      if (other && same(numbers(other.x), numbers(curve.x))) {
        curves.push({ ...curve, y: Array.from(arrayMinus(other.y, curve.y).data) });
      } else left.push(curve.name);
    }
    if (curves.length) panels.push({ ...panel, curves, ends: undefined });
  }
  if (!panels.length) return "A and B have no curve over the same points in common";
  return { ...b, panels, note: onlyIn("B, or over other points in A", [...new Set(left)]) };
}

/** @type {(a: HeadsView, b: HeadsView, score?: string) => View | string} */
function ofHeads(a, b, score) {
  const scores = (b.scores || []).flatMap((own) => {
    const other = a.scores?.find(({ id, unit }) => id === own.id && unit === own.unit);
    return other && sameShape(other.values, own.values) ? [ofScores(other, own)] : [];
  });
  const [one, other] = [shapesOf(a.patterns), shapesOf(b.patterns)];
  if (same(one, other)) return {
    ...b, tokens: labels(a.tokens, b.tokens), ids: same(a.ids, b.ids) ? b.ids : undefined, scores, minus: b.patterns,
    queries: a.queries && b.queries ? labels(a.queries, b.queries) : undefined, patterns: a.patterns,
    weighted: a.weighted && b.weighted && a.weighted, minus_weighted: a.weighted && b.weighted,
    note: "Patterns are subtracted as they were sent, in steps of 1/255.",
  };
  const chosen = scores.find(({ id }) => id === score) || scores[0];
  const sizesDiffer = "the patterns have different sizes";
  if (!chosen) return `${sizesDiffer}, and no score is of both`;
  return {
    kind: "matrix", id: b.id, title: b.title, row_axis: "layer", column_axis: "head", unit: chosen.unit,
    rows: ordinals(decodedOnce(chosen.values).shape[0]), columns: ordinals(decodedOnce(chosen.values).shape[1]),
    values: chosen.values, scale: /** @type {Scale} */ (chosen.scale), numbers: true, pick: "head",
    estimated: chosen.estimated, note: `${chosen.name}. Not subtracted: ${sizesDiffer}, ${describedSizes(a)} and ${describedSizes(b)}.`,
  };
}

/** @type {(a: Score, b: Score) => Score} */
function ofScores(a, b) {
  const values = arrayMinus(a.values, b.values);
  return {
    id: b.id, name: a.name === b.name ? b.name : `${a.name} (A) − ${b.name} (B)`, unit: b.unit, values,
    scale: around(values.data), estimated: eitherOf(a.estimated, b.estimated), n: a.n === b.n ? b.n : undefined,
  };
}

/** The numbers below a count, as labels.
 *  @type {(count: number) => string[]} */
function ordinals(count) {
  return Array.from({ length: count }, (_, n) => String(n));
}

/** What must be equal in two sets of patterns that are subtracted.
 *  @type {(sent: SentPatterns) => unknown} */
function shapesOf(sent) {
  if (Array.isArray(sent)) return sent.map(({ shape }) => shape);
  if (!("thumbnails" in sent)) return sent.shape;
  return [sent.thumbnails.shape, sent.layer.index, sent.layer.patterns.shape];
}

/** @type {(view: HeadsView) => string} */
function describedSizes(view) {
  return `${(view.queries || view.tokens).length} × ${view.tokens.length}`;
}
