// Parts of the view "heads": the map of scores, the strip of tokens, facts about a head, keys.

/**
 * @import {
 *   Cell, DataTable, Description, HeadActions, HeadsState, HeadsView, Hidden, Matrix, Mount, Pattern,
 *   Picture, Place, Plot, Scale, Score, Surface, SurfaceOptions, TokenStrip,
 * } from "./types.d.ts"
 */
import { contrasted } from "./colours.js";
import { decodedOnce, extent, headName, intervalText } from "./data.js";
import { dataTablesOf, matrixDataTable } from "./data_tables.js";
import { numbered } from "./draw.js";
import { choice, element, select, toggle } from "./elements.js";
import { isInside, matrixPlot } from "./matrix.js";
import { lineOf, weightScale } from "./patterns.js";
import { STEP_KEYS, partOf } from "./plotted.js";
import { legendElement, tokenStrip } from "./strip.js";
import { surface } from "./surface.js";

const CONTRASTS = 10;

/** The map of a score, with a list to choose the score and a slider for the contrast.
 *  @type {(
 *    mount: Mount, view: HeadsView, scores: Score[], parent: HTMLElement, state: HeadsState,
 *    options: SurfaceOptions,
 *  ) => Surface & { picture(): Picture | null }} */
export function scoreMap(mount, view, scores, parent, state, { onHover, onPick }) {
  const chosen = () => scores.find((score) => score.id === state.score) || scores[0];
  const list = select(
    "score shown on the map", scores.map((score) => [score.id, score.name]), chosen().id,
    (id) => { state.score = id; refresh(); mount.report({ view: view.id, pick: "score", name: id }); },
  );
  const slider = element("input", {
    type: "range", min: "0", max: String(CONTRASTS), step: "1", "aria-label": "contrast",
    title: "Increase the contrast of the colour scale",
    input: () => { state.contrast = Number(slider.value); refresh(); },
    change: () => mount.report({ view: view.id, pick: "contrast", x: state.contrast }),
  });
  slider.value = String(state.contrast);
  const truth = toggle(
    "known circuit", state.truth, (on) => { state.truth = on; refresh(); },
    "Outline the heads that the model's card names",
  );
  const note = element("p", { class: "w-note" });
  parent.append(element(
    "div", { class: "w-controls" }, list, element("label", { class: "w-toggle" }, "contrast", slider),
    view.truth ? truth.element : null,
  ));
  const drawing = surface(mount, parent, { label: "scores of heads", focusable: false, onHover, onPick });
  parent.append(note);

  function refresh() {
    const score = chosen();
    drawing.show(mapPlot(view, score, state, () => mount.selection().heads));
    note.textContent = [
      score.good, score.control, score.n ? `n = ${score.n}` : "",
    ].filter(Boolean).join(" · ");
  }

  function picture() {
    const drawn = partOf(drawing, chosen().name);
    return drawn && { ...drawn, note: note.textContent || "" };
  }

  return { ...drawing, refresh, picture };
}

/** @typedef {{
 *    truth?: HeadsView["truth"], roles?: HeadsView["roles"], names?: HeadsView["names"],
 *  }} HeadFacts */

/** The plot of a map of scores.
 *  @type {(
 *    view: HeadFacts, score: Score, state: { contrast: number, truth: boolean }, collected: () => Cell[],
 *  ) => Plot} */
export function mapPlot(view, score, state, collected) {
  const { shape: [layers, heads] } = decodedOnce(score.values);
  const names = view.names;
  const plot = matrixPlot({
    kind: "matrix", rows: Array.from(
      { length: layers }, (_, n) => `L${n}`,
    ), columns: Array.from({ length: heads }, (_, n) => `H${n}`),
    row_axis: "", column_axis: "", unit: score.unit, values: score.values, numbers: true, pick: "head",
    estimated: score.estimated, marked: state.truth ? headsOf(view.truth) : [],
    scale: contrasted(scaleOf(score), 2 ** (state.contrast / 2)),
  });
  const ends = score.low && score.high ? [decodedOnce(score.low).data, decodedOnce(score.high).data] : null;
  const estimated = score.estimated ? decodedOnce(score.estimated).data : null;

  /** @type {Plot["describe"]} */
  function describe(cell) {
    const found = plot.describe(cell);
    const at = cell[0] * heads + cell[1];
    const interval = ends ? intervalText(ends[0][at], ends[1][at], found.signed) : "";
    return {
      ...found, name: (names && names[cell[0]] && names[cell[0]][cell[1]]) || found.name,
      lines: [
        score.name, estimated && estimated[at] ? "estimated to first order, not measured" : "", interval,
        ...knownFacts(view, cell),
      ].filter(Boolean),
    };
  }

  /** @type {Plot["draw"]} */
  function over(ctx, geometry, theme) {
    collected().forEach((head, n) => {
      if (!isInside(head, layers, heads)) return;
      numbered(ctx, theme, plot.box(geometry, head), String(n + 1));
    });
  }

  return { ...plot, describe, over };
}

/** The scale of a score: its own, or one up to its largest absolute value.
 *  @type {(score: Score) => Scale} */
function scaleOf(score) {
  const ends = extent(decodedOnce(score.values).data);
  if (score.scale && typeof score.scale === "object") return score.scale;
  const kind = score.scale || (ends[0] < 0 ? "diverging" : "sequential");
  const most = Math.max(Math.abs(ends[0]), Math.abs(ends[1])) || 1;
  return { kind, low: kind === "diverging" ? -most : 0, high: most };
}

/** The heads named by the keys of an object: [[layer, head], …].
 *  @type {(named?: object | null) => Cell[]} */
export function headsOf(named) {
  return Object.keys(named || {}).flatMap((name) => {
    const found = /^(?:\w+\.)?L(\d+)H(\d+)$/.exec(name);
    return found ? [[Number(found[1]), Number(found[2])]] : [];
  });
}

/** The known facts about a head: its roles, and its part in the known circuit.
 *  @type {(view: HeadFacts, head: Cell) => string[]} */
function knownFacts(view, head) {
  const name = headName(...head);
  const known = view.truth && view.truth[name];
  return [view.roles?.[name] || "", known ? `known circuit: ${known}` : ""].filter(Boolean);
}

/** @type {(view: HeadsView, head: Cell) => string} */
export function evidence(view, head) {
  return knownFacts(view, head).join(" · ");
}

/** @type {(view: HeadsView, head: Cell) => Description} */
export function describeHead(view, head) {
  return { name: headName(...head), lines: knownFacts(view, head) };
}

/** @type {(view: HeadsView, head: Cell, isWhole: boolean) => string} */
export function headTitle(view, [layer, head], isWhole) {
  const name = (view.names && view.names[layer] && view.names[layer][head]) || headName(layer, head);
  return isWhole ? name : `${name} (reduced resolution)`;
}

/** The unit of the weights that are shown.
 *  @type {(view: HeadsView, state: { weighted: boolean }) => string} */
export function weightUnit(view, { weighted }) {
  return `${weighted ? "attention × value norm" : "attention"}${view.minus ? ", A − B" : ""}`;
}

/** A number of empty labels.
 *  @type {(count: number) => string[]} */
export function blank(count) {
  return Array(count).fill("");
}

/** The data tables of the view: its scores, and the pattern that is shown.
 *  @type {(view: HeadsView, plot: { view: Matrix } | null) => DataTable[]} */
export function tablesOfHeads(view, plot) {
  const scores = view.scores && view.scores.length ? dataTablesOf(view) : [];
  return plot ? [...scores, ...matrixDataTable(plot.view)] : scores;
}

/** @typedef {{
 *    difference: number | null, onHover(place: Place | null): void, onPick(place: Place): void, onMode(mode: HeadsState["mode"]): void,
 *  }} HeadStripOptions */
/** @typedef {{
 *    show(head: Cell, pattern: Pattern | null, place: { query: number, key: number }, hidden: Hidden): void,
 *    refresh(): void,
 *  }} HeadStrip */

/** The tokens of a prompt, coloured by one head's attention from a query, or to a key.
 *  @type {(
 *    mount: Mount, view: HeadsView, parent: HTMLElement, state: HeadsState, options: HeadStripOptions,
 *  ) => HeadStrip} */
export function headStrip(mount, view, parent, state, { difference, onHover, onPick, onMode }) {
  const queries = view.queries || null;
  const caption = element("span", { class: "w-caption" });
  const mode = choice("direction", [["to", "attends to"], ["from", "attended by"]], state.mode, onMode);
  const key = legendElement(mount, weightScale([], { difference }), weightUnit(view, state));
  parent.append(element("div", { class: "w-controls" }, mode.element, caption), key.element);
  /** @type {(side: "query" | "key" | null, n: number) => Place} */
  const place = (side, n) => ({ [side || (state.mode === "to" ? "query" : "key")]: n });
  /** @type {(tokens: string[], side: "query" | "key" | null, label: string) => TokenStrip} */
  const make = (tokens, side, label) => {
    const strip = tokenStrip(mount, {
      tokens, ids: side === "query" && queries ? view.query_ids : view.ids, bos: view.bos && side !== "query",
      label, focusable: false, onHover: (n) => onHover(n === null ? null : place(side, n)),
      onPick: (n) => onPick(place(side, n)),
    });
    parent.append(queries ? element("p", { class: "w-soft w-side" }, label) : "", strip.root);
    return strip;
  };
  const ofQueries = queries ? make(queries, "query", "queries") : null;
  const ofKeys = make(view.tokens, queries ? "key" : null, queries ? "keys" : "tokens");

  /** @type {HeadStrip["show"]} */
  function show(head, pattern, { query, key: at }, hidden) {
    mode.set(state.mode);
    const toKeys = state.mode === "to";
    const token = toKeys ? (queries || view.tokens)[query] : view.tokens[at];
    const end = toKeys ? `from query ${query}` : `to key ${at}`;
    caption.textContent = `${headName(...head)}, ${end} '${token}'`;
    const values = pattern ? lineOf(pattern, toKeys ? { query } : { key: at }, hidden) : null;
    const scale = values && weightScale(values, { ...state, hideBos: hidden.hideBos, difference });
    const tints = values && scale ? {
      values, scale, unit: weightUnit(view, state),
    } : null;
    const [tintedStrip, other] = toKeys || !ofQueries ? [ofKeys, ofQueries] : [ofQueries, ofKeys];
    tintedStrip.tint(tints);
    if (other) other.tint(null);
    if (scale) key.set(scale);
    const chooser = toKeys && queries ? ofQueries : ofKeys;
    for (const own of [ofQueries, ofKeys]) if (own) own.choose(own === chooser ? (toKeys ? query : at) : null);
  }

  return { show, refresh: () => key.refresh() };
}

/** Handles the keys of the view "heads".
 *  @type {(event: KeyboardEvent, actions: HeadActions) => void} */
export function headKeys(event, { mount, own, moveCell, moveHead, collect, bos, search, clear }) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const step = STEP_KEYS[event.key];
  /** @type {Record<string, () => void>} */
  const others = {
    "[": () => moveHead(-1, 0), "]": () => moveHead(1, 0), "{": () => moveHead(0, -1), "}": () => moveHead(0, 1),
    b: bos, "/": search, s: collect, Escape: clear, c: own.actions.copy, t: own.actions.table,
    p: () => mount.report({ pick: "pin" }), "?": mount.help,
  };
  if (step && event.shiftKey) moveHead(...step);
  else if (step) moveCell(...step);
  else if (others[event.key]) others[event.key]();
  else return;
  event.preventDefault();
  event.stopPropagation();
}
