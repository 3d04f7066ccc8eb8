// Parts of the view "heads": the strip of tokens, facts about a head, keys.

/**
 * @import {
 *   Cell, DataTable, Description, HeadActions, HeadsState, HeadsView, Hidden, Matrix, Mount, Pattern,
 *   Place, TokenStrip,
 * } from "./types.d.ts"
 */
import { headName } from "./data.js";
import { dataTablesOf, matrixDataTable } from "./data_tables.js";
import { choice, element } from "./elements.js";
import { lineOf, weightScale } from "./patterns.js";
import { STEP_KEYS } from "./plotted.js";
import { legendElement, roleLegend, tokenStrip } from "./strip.js";

/** @typedef {{
 *    truth?: HeadsView["truth"], roles?: HeadsView["roles"], names?: HeadsView["names"],
 *  }} HeadFacts */

/** The known facts about a head: its roles, and its part in the known circuit.
 *  @type {(view: HeadFacts, head: Cell) => string[]} */
export function knownFacts(view, head) {
  const name = headName(...head);
  const known = view.truth && view.truth[name];
  return [view.roles?.[name] || "", known ? `known circuit: ${known}` : ""].filter(Boolean);
}

/** @type {(view: HeadsView, head: Cell) => string} */
export function factsText(view, head) {
  return knownFacts(view, head).join(" · ");
}

/** @type {(view: HeadsView, head: Cell) => Description} */
export function describeHead(view, head) {
  return { name: headName(...head), lines: knownFacts(view, head) };
}

/** The name of a head, with that of its attention in an encoder–decoder.
 *  @type {(view: HeadFacts, head: Cell) => string} */
export function nameOf(view, [layer, head]) {
  return view.names?.[layer]?.[head] || headName(layer, head);
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
 *    controls: HTMLElement[], show(pattern: Pattern | null, place: { query: number, key: number }, hidden: Hidden): void,
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
  parent.append(key.element);
  /** @type {(side: "query" | "key" | null, n: number) => Place} */
  const place = (side, n) => ({ [side || (state.mode === "to" ? "query" : "key")]: n });
  /** @type {(tokens: string[], side: "query" | "key" | null, label: string) => TokenStrip} */
  const make = (tokens, side, label) => {
    const strip = tokenStrip(mount, {
      tokens, ids: side === "query" && queries ? view.query_ids : view.ids, bos: view.bos && side !== "query",
      roles: side === "query" && queries ? undefined : view.token_roles,
      label, focusable: false, onHover: (n) => onHover(n === null ? null : place(side, n)),
      onPick: (n) => onPick(place(side, n)),
    });
    parent.append(queries ? element("p", { class: "w-soft w-side" }, label) : "", strip.root);
    const legend = side === "query" ? null : roleLegend(view.token_roles);
    if (legend) parent.append(legend);
    return strip;
  };
  const ofQueries = queries ? make(queries, "query", "queries") : null;
  const ofKeys = make(view.tokens, queries ? "key" : null, queries ? "keys" : "tokens");

  /** @type {HeadStrip["show"]} */
  function show(pattern, { query, key: at }, hidden) {
    mode.set(state.mode);
    const toKeys = state.mode === "to";
    const token = toKeys ? (queries || view.tokens)[query] : view.tokens[at];
    caption.textContent = `${toKeys ? `query ${query}` : `key ${at}`} '${token}'`;
    caption.title = caption.textContent;
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

  return { controls: [mode.element, caption], show, refresh: () => key.refresh() };
}

/** Handles the keys of the view "heads".
 *  @type {(event: KeyboardEvent, actions: HeadActions) => void} */
export function headKeys(event, { mount, own, moveCell, moveHead, collect, bos, search, clear, zoom, fold }) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const step = STEP_KEYS[event.key];
  /** @type {Record<string, () => void>} */
  const others = {
    "[": () => moveHead(-1, 0), "]": () => moveHead(1, 0), "{": () => moveHead(0, -1), "}": () => moveHead(0, 1),
    b: bos, "/": search, s: collect, Escape: clear, c: own.actions.copy, t: own.actions.table,
    p: () => mount.report({ pick: "pin" }), "?": mount.help, "+": () => zoom(1), "-": () => zoom(-1), f: fold,
  };
  if (step && event.shiftKey) moveHead(...step);
  else if (step) moveCell(...step);
  else if (others[event.key]) others[event.key]();
  else return;
  event.preventDefault();
  event.stopPropagation();
}
