// The view "texts": texts of a head by decile of a statistic. A token shows where it looks and who looks at it.

/**
 * @import {
 *   Colour, Controller, Description, Mount, Picture, SentText, TextCells, TextsState, TextsView, TokenStrip, Weighted,
 * } from "./types.d.ts"
 */
import { colourOf, css } from "./colours.js";
import { clamp, readable, same, withMeasure } from "./data.js";
import { dataTablesOf } from "./data_tables.js";
import { choice, element, select } from "./elements.js";
import { frame, frameKey, readingOf } from "./frame.js";
import { emptyView } from "./plotted.js";
import { legendElement, stripPicture, tokenStrip } from "./strip.js";
import { textCells, weightAt } from "./text_cells.js";

const LISTED = 3;
const SIDES = ["queries", "keys"];
const HINTS = ["where a token looks", "who looks at it"];
/** @type {[TextsState["mode"], string][]} */
const MODES = [["received", "attention received"], ["given", "given, but for the first token"]];

/** A token: its text's place in the list, its strip (of a text with two) and its position.
 *  @typedef {{ row: number, strip: number, n: number }} At */
/** @typedef {{ text: SentText, cells: TextCells, strips: TokenStrip[] }} Row */

/** The controller of a view "texts".
 *  @type {(mount: Mount, view: TextsView) => Controller} */
export function textsView(mount, view) {
  if (!view.statistics.length) return emptyView(mount, { ...view, kind: "none", reason: "No text has a query for it." });
  /** @type {TextsState} */
  const state = mount.stateOf(view.id, { statistic: view.chosen || view.statistics[0].name, mode: "received" });
  const own = frame(mount, view, {
    dataTables: () => dataTablesOf(view), describe: () => (active() ? describe(/** @type {At} */ (active())) : null),
    picture: pictureOf,
  });
  /** @type {Row[]} */
  let rows = [];
  let [pinned, pointed] = [/** @type {At | null} */ (null), /** @type {At | null} */ (null)];
  const box = element("div", {
    class: "w-texts", tabindex: "0", role: "application", "aria-roledescription": "texts", "aria-label": view.title, keydown: keys,
  });
  const key = legendElement(mount, { kind: "tint", low: 0, high: 1 }, "");
  /** @type {["orange" | "grey", HTMLElement][]} */
  const swatches = [["orange", element("span", { class: "w-swatch" })], ["grey", element("span", { class: "w-swatch" })]];
  const [looksAt, isLookedAt] = swatches.map(([, swatch], n) => element("span", { class: "w-soft" }, swatch, HINTS[n]));
  own.body.append(controls(), box, element("div", { class: "w-row w-text-keys" }, key.element, looksAt, isLookedAt));
  fill();
  mount.defer(own.ready);

  function controls() {
    const names = view.statistics.map(({ name }) => [name, name]);
    if (!names.some(([name]) => name === state.statistic)) state.statistic = names[0][0];
    const chosen = select("statistic", names, state.statistic, (name) => { state.statistic = name; fill(); });
    const mode = choice("colour", MODES, state.mode, (value) => { state.mode = value; refresh(); });
    return element("div", { class: "w-controls" }, names.length > 1 ? chosen : null, mode.element);
  }

  /** Orange for keys, grey for queries, by the weight.
   *  @type {(name: "orange" | "grey", weight: number) => Colour} */
  function colourBy(name, weight) {
    const scale = name === "grey" ? { kind: name, low: 0, high: 1 } : { kind: /** @type {const} */ ("diverging"), low: -1, high: 1 };
    return colourOf(scale, weight, mount.theme().dark);
  }

  function fill() {
    [pinned, pointed] = [null, null];
    const statistic = view.statistics.find(({ name }) => name === state.statistic) || view.statistics[0];
    rows = [];
    /** @type {HTMLElement[]} */
    const parts = [];
    statistic.rows.forEach(([decile, index, value], row) => {
      if (!row || statistic.rows[row - 1][0] !== decile) parts.push(element("h4", {}, decileTitle(decile, statistic.name)));
      parts.push(textElement(view.texts[index], row, `${statistic.name} ${withMeasure(value, statistic.unit)}`));
    });
    box.replaceChildren(...parts);
    refresh();
    marked();
  }

  /** @type {(text: SentText, row: number, value: string) => HTMLElement} */
  function textElement(text, row, value) {
    const tokens = text.keys ? [text.tokens, text.keys] : [text.tokens];
    const strips = tokens.map((labels, strip) => tokenStrip(mount, {
      tokens: labels, focusable: false, label: `${text.keys ? SIDES[strip] : "tokens"} of ${text.source}`,
      describe: (n) => describe({ row, strip, n }),
      onHover: (n) => point(n === null ? null : { row, strip, n }),
      onPick: (n) => pin({ row, strip, n }),
    }));
    rows.push({ text, cells: textCells(text), strips });
    return element(
      "div", { class: "w-text", "data-text": text.number },
      element("p", { class: "w-text-heading" }, element("bdi", {}, text.source), element("span", { class: "w-value" }, value)),
      ...strips.flatMap(({ root }, strip) => [text.keys ? element("span", { class: "w-side" }, SIDES[strip]) : null, root]),
    );
  }

  function active() {
    return pinned || pointed;
  }

  /** The keys that a token looks at, and the queries that look at it.
   *  @type {(at: At) => { keys: Weighted[], queries: Weighted[] }} */
  function looks({ row, strip, n }) {
    const { text, cells } = rows[row];
    return { keys: strip ? [] : cells.keys[n], queries: strip || !text.keys ? cells.queries[n] : [] };
  }

  /** @type {(at: At) => string} */
  const tokenAt = ({ row, strip, n }) => rows[row].strips[strip].spans[n].innerText;
  /** @type {(at: At, other: number, n: number) => string} */
  const nameOf = (at, strip, n) => `'${tokenAt({ ...at, strip, n })}' (${n})`;

  /** @type {(at: At) => Description & { lines: string[] }} */
  function describe(at) {
    const { text, cells } = rows[at.row];
    const { keys: looked, queries } = looks(at);
    const ofKeys = text.keys ? 1 : 0;
    const lines = [];
    const name = `position ${at.n} '${tokenAt(at)}'`;
    if (pinned && pinned.row === at.row && !same(pinned, at)) {
      const both = looks(pinned);
      const [to, from] = [both.keys, both.queries].map((list, side) => (
        (side ? 0 : ofKeys) === at.strip ? weightAt(list, at.n) : undefined
      ));
      const pin = nameOf(pinned, pinned.strip, pinned.n);
      if (to !== undefined) lines.push(`${pin} looks at it: ${readable(to)}`);
      if (from !== undefined) lines.push(`it looks at ${pin}: ${readable(from)}`);
      if (!lines.length) lines.push(`no weight stored with ${pin}`);
      return { name, lines };
    }
    /** @type {(list: Weighted[], strip: number) => string} */
    const listed = (list, strip) => list.slice(0, LISTED).map(([n, weight]) => `${nameOf(at, strip, n)} ${readable(weight)}`).join(", ");
    if (looked.length) lines.push(`looks at ${listed(looked, ofKeys)}`);
    if (queries.length) lines.push(`looked at by ${listed(queries, 0)}`);
    if (at.strip || !text.keys) lines.push(`receives ${readable(cells.received[at.n])} in sum`);
    return { name, lines };
  }

  /** @type {(at: At | null, aloud?: boolean) => void} */
  function point(at, aloud = false) {
    const before = pointed;
    pointed = at;
    for (const row of new Set([before?.row, at?.row])) if (row !== undefined) paint(row);
    marked();
    if (aloud && at) mount.announce(readingOf(describe(at)));
  }

  /** @type {(at: At | null) => void} */
  function pin(at) {
    const before = pinned;
    pinned = same(before, at) ? null : at;
    for (const row of new Set([before?.row, at?.row])) if (row !== undefined) paint(row);
    marked();
    if (!at || !pinned) return mount.announce("Unpinned.");
    mount.announce(`Pinned: ${readingOf(describe(at))}`);
    if (view.pick) mount.report({ view: view.id, pick: view.pick, row: rows[at.row].text.number, column: at.n, name: tokenAt(at) });
    return undefined;
  }

  /** Writes the token that is shown to the attributes of the view. */
  function marked() {
    const at = active();
    own.selected(at && [rows[at.row].text.number, at.n], null);
    box.toggleAttribute("data-pinned", Boolean(pinned));
  }

  /** Colours the tokens of a text: by what they receive or give, or by the weights of one token.
   *  @type {(row: number) => void} */
  function paint(row) {
    const { text, cells, strips } = rows[row];
    const at = [pinned, pointed].find((place) => place?.row === row) || null;
    const { keys: looked, queries } = at ? looks(at) : { keys: [], queries: [] };
    const common = scale();
    strips.forEach((strip, side) => {
      const [asKeys, asQueries] = [side === (text.keys ? 1 : 0) ? looked : [], side === 0 ? queries : []];
      const general = side || (!text.keys && state.mode === "received") ? cells.received : cells.given;
      strip.paint(strip.spans.map((_, n) => {
        if (!at) return colourOf(common, general[n], mount.theme().dark);
        const [to, from] = [weightAt(asKeys, n), weightAt(asQueries, n)];
        return to !== undefined ? colourBy("orange", to) : from !== undefined ? colourBy("grey", from) : null;
      }));
      strip.choose(at && at.strip === side ? at.n : null);
      strip.spans.forEach((span, n) => {
        const [to, from] = [weightAt(asKeys, n), weightAt(asQueries, n)];
        span.classList.toggle("w-looks", from !== undefined);
        for (const [name, weight] of /** @type {const} */ ([["to", to], ["from", from]])) {
          if (weight === undefined) delete span.dataset[name];
          else span.dataset[name] = String(weight);
        }
      });
    });
  }

  /** The scale of what tokens receive or give, which all texts share; first tokens may exceed it. */
  function scale() {
    const most = rows.flatMap(({ cells }) => cells[state.mode].slice(1));
    const given = state.mode === "given";
    return { kind: /** @type {const} */ ("tint"), low: 0, high: given ? 1 : Math.max(1, ...most), root: !given };
  }

  function refresh() {
    key.set(scale());
    key.refresh();
    for (const [name, swatch] of swatches) swatch.style.backgroundColor = css(colourBy(name, 0.7));
    rows.forEach((_, row) => paint(row));
  }

  /** @type {(event: KeyboardEvent) => void} */
  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = pointed || pinned || { row: 0, strip: 0, n: -1 };
    const last = rows[at.row].strips[at.strip].count - 1;
    const [down, n] = [
      { ArrowUp: -1, ArrowDown: 1 }[event.key], { ArrowLeft: at.n - 1, ArrowRight: at.n + 1, Home: 0, End: last }[event.key],
    ];
    if (n !== undefined) point({ ...at, n: clamp(n, 0, last) }, true);
    else if (down !== undefined) point(moved(at, down), true);
    else if (event.key === "Enter" && pointed) pin(pointed);
    else if (event.key === "Escape") { pin(null); point(null); }
    else if (!frameKey(mount, own, event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** The token of the strip above or below.
   *  @type {(at: At, down: number) => At} */
  function moved(at, down) {
    const places = rows.flatMap(({ strips }, row) => strips.map((_, strip) => ({ row, strip })));
    const here = places.findIndex(({ row, strip }) => row === at.row && strip === at.strip);
    const next = places[clamp(here + down, 0, places.length - 1)];
    return { ...next, n: clamp(at.n, 0, rows[next.row].strips[next.strip].count - 1) };
  }

  /** The text of the token that is shown, or the first one.
   *  @type {() => Picture | null} */
  function pictureOf() {
    const at = active();
    const { text, cells } = rows[at?.row || 0];
    const tokens = text.keys || text.tokens;
    const asked = at && looks(at).keys;
    const values = asked ? tokens.map((_, n) => weightAt(asked, n) || 0) : cells.received;
    const title = at && asked ? `where ${nameOf(at, at.strip, at.n)} looks` : MODES[0][1];
    return {
      ...stripPicture({ kind: "tokens", id: view.id, title: view.title, tokens, unit: title }, {
        values, scale: asked ? { kind: "tint", low: 0, high: 1 } : { ...scale(), high: Math.max(1, ...cells.received.slice(1)), root: true },
      }), part: text.source,
    };
  }

  return { root: own.root, focus: () => box.focus(), refresh, fromSelection: () => {}, dispose: () => {}, scrolled: box };
}

/** The heading of a decile.
 *  @type {(decile: number, statistic: string) => string} */
function decileTitle(decile, statistic) {
  return decile === 10 ? `Decile 10 of ${statistic}: the largest` : `Decile ${decile}`;
}
