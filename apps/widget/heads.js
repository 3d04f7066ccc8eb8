// The view "heads", in panes: a map of scores; the pattern of one head, and its attention on the tokens; what is
// known of it, and the ranking of all heads; small patterns. One payload has all patterns, so that the head under
// the pointer is shown at once.

/**
 * @import {
 *   Cell, Controller, Description, HeadActions, HeadsState, HeadsView, Hidden, MatrixPlot, Mount, Place,
 *   Scroll, Surface,
 * } from "./types.d.ts"
 */
import { headName, same } from "./data.js";
import { choice, element, toggle } from "./elements.js";
import { evidencePane } from "./evidence.js";
import { frame, readingOf } from "./frame.js";
import { scoreMap } from "./head_map.js";
import {
  blank, factsText, headKeys, headStrip, nameOf, tablesOfHeads, weightUnit,
} from "./head_parts.js";
import { isInside, matrixPlot, moved } from "./matrix.js";
import { lineOf, movedHead, patternStore, weightScale, weightsOf } from "./patterns.js";
import { partOf } from "./plotted.js";
import { smallPatterns } from "./small_patterns.js";
import { surface } from "./surface.js";

/** Number of decimals of a weight that was sent as a byte. */
const WEIGHT_PLACES = 3;
/** Number of heads up to which all have a small pattern at first; of more, those that rank highest. */
const MANY = 64;
/** @type {() => Scroll} */
const unscrolled = () => ({ left: 0, top: 0, moved: false });

/** The controller of a view "heads".
 *  @type {(mount: Mount, view: HeadsView) => Controller} */
export function headsView(mount, view) {
  const store = patternStore(view);
  const queries = view.queries || view.tokens;
  /** @type {HeadsState} */
  const state = mount.stateOf(view.id, {
    score: null, contrast: 0, // the first score, which may come after others, until one is chosen
    root: false, hideBos: false, weighted: false, mode: "to", truth: false, zoom: 0, sorted: false, folded: [],
    few: countOf() > MANY, scrolls: { map: unscrolled(), all: unscrolled(), list: unscrolled() },
  });
  /** @type {(Place & { head?: Cell }) | null} */
  let preview = null; // {head, query or key} under the pointer
  /** @type {{ set(on: boolean): void } | null} */
  let bosSwitch = null;
  const own = frame(mount, view, {
    dataTables: () => tablesOfHeads(view, large.plot()), describe: () => described(),
    picture: () => partOf(large, headName(...shownHead())),
    pictures: () => [
      map && map.picture(), partOf(thumbnails, "all patterns"), partOf(large, headName(...shownHead())),
    ],
  });
  const scores = view.scores || [];
  const scored = element("div", { class: "w-pane w-scored" });
  const known = element("div", { class: "w-pane w-evidence" });
  const all = element("div", { class: "w-all" });
  const right = element("div", { class: "w-pane w-right" });
  const below = element("div", { class: "w-below" });
  own.body.append(element("div", { class: "w-heads" }, scored, right, known, all));

  const map = scores.length ? scoreMap(mount, view, scores, scored, state, {
    onHover: hoverHead, onPick: pickHead, onScore: showScore,
  }) : null;
  if (!map) scored.append(element("p", { class: "w-soft" }, "There are no scores yet."));
  const evidence = evidencePane(mount, view, known, state, { onHover: hoverHead, onPick: pickHead });
  const thumbnails = smallPatterns(mount, view, store, all, state, { onHover: hoverHead, onPick: pickHead, hidden });

  const title = element("h4", { class: "w-head-name" });
  const strip = headStrip(mount, view, below, state, {
    difference: store.most,
    onHover: hoverToken, onPick: pickToken, onMode: (mode) => { state.mode = mode; showStrip(); },
  });
  right.append(element("div", { class: "w-row" }, title, ...strip.controls), patternControls(), below);
  /** @type {Surface<MatrixPlot>} */
  const large = surface(mount, right, {
    label: "attention pattern", limited: true, onHover: hoverCell, onPick: pickCell, onDrawn: own.ready,
  });
  for (const box of [large.box, thumbnails.box, evidence.box, ...(map ? [map.box] : [])]) {
    box.addEventListener("keydown", (event) => headKeys(event, headActions(box)));
  }
  mount.defer(() => {
    if (map) map.refresh();
    thumbnails.redraw();
    evidence.refresh();
    fromSelection();
  });

  // ---- drawing ------------------------------------------------------------------------------

  function countOf() {
    return Array.from({ length: store.layers }, (_, layer) => store.heads(layer)).reduce((sum, n) => sum + n, 0);
  }

  function showScore() {
    evidence.refresh();
    evidence.show(shownHead());
    thumbnails.showFew();
  }

  /** @type {() => Cell} */
  function chosenHead() {
    const { head } = mount.selection();
    return head && head[0] < store.layers && head[1] < store.heads(head[0]) ? head : [0, 0];
  }

  /** @type {() => Cell} */
  function shownHead() {
    return (preview && preview.head) || chosenHead();
  }

  /** @type {() => Hidden} */
  function hidden() {
    return { causal: view.causal, hideBos: view.bos && state.hideBos };
  }

  function chosenQuery() {
    const { query } = mount.selection();
    return query !== null && query < queries.length ? query : queries.length - 1;
  }

  function chosenKey() {
    const { key } = mount.selection();
    return key !== null && key < view.tokens.length ? key : mostAttended();
  }

  /** The key that the chosen query attends to most, shown until a key is chosen. */
  function mostAttended() {
    const pattern = store.of(...chosenHead(), state.weighted);
    if (!pattern) return 0;
    const weights = lineOf(pattern, { query: chosenQuery() }, hidden());
    return weights.reduce((best, weight, key) => (Math.abs(weight) > Math.abs(weights[best] || 0) ? key : best), 0);
  }

  function showLarge() {
    const head = shownHead();
    const whole = store.of(...head, state.weighted);
    const pattern = whole || store.thumbnail(...head);
    const weights = weightsOf(pattern, hidden());
    const rows = whole ? queries : blank(pattern.queries);
    const columns = whole ? view.tokens : blank(pattern.keys);
    const scale = weightScale(weights.data, { ...state, hideBos: hidden().hideBos, difference: store.most });
    const unit = weightUnit(view, state);
    const plot = matrixPlot({
      kind: "matrix", title: `${headName(...head)}: queries down, keys across`, rows, columns,
      row_axis: "query", column_axis: "key", unit, values: weights, scale, pick: "pair",
    }, { places: WEIGHT_PLACES });
    large.show(plot);
    title.textContent = whole ? nameOf(view, head) : `${nameOf(view, head)} (reduced resolution)`;
    own.root.dataset.head = head.join(",");
    const hovered = preview?.head || null;
    if (map) map.hover(hovered);
    thumbnails.hover(hovered);
    evidence.hover(hovered);
    evidence.show(head);
  }

  function showStrip() {
    const pattern = store.of(...shownHead(), state.weighted);
    const query = preview && preview.query !== undefined ? preview.query : chosenQuery();
    const key = preview && preview.key !== undefined ? preview.key : chosenKey();
    strip.show(pattern, { query, key }, hidden());
  }

  function chooseCell() {
    /** @type {Cell} */
    const cell = [chosenQuery(), chosenKey()];
    large.choose(store.of(...chosenHead(), state.weighted) ? cell : null);
  }

  function showAll() {
    showLarge();
    showStrip();
  }

  function fromSelection() {
    const head = chosenHead();
    if (map) map.choose(head);
    thumbnails.choose(head);
    evidence.choose(head);
    showAll();
    chooseCell();
    own.selected([chosenQuery(), chosenKey()], described());
    own.refreshDataTable();
    thumbnails.showChips();
  }

  /** Redraws everything after a change that affects all patterns. */
  function redraw() {
    if (map) map.refresh();
    thumbnails.redraw();
    evidence.refresh();
    showAll();
    chooseCell();
    strip.refresh();
  }

  // ---- events -------------------------------------------------------------------------------

  /** @type {(head: Cell | null) => void} */
  function hoverHead(head) {
    if (same(head, (preview && preview.head) || null)) return;
    pointed(head);
    mount.point(head, own.root);
  }

  /** @type {(head: Cell | null) => void} */
  function pointed(head) {
    preview = head && head[0] < store.layers && head[1] < store.heads(head[0]) ? { head } : null;
    showAll();
  }

  /** @type {(cell: Cell | null) => void} */
  function hoverCell(cell) {
    preview = cell ? { query: cell[0], key: cell[1] } : null;
    showStrip();
  }

  /** @type {(place: Place | null) => void} */
  function hoverToken(place) {
    preview = place;
    showStrip();
  }

  /** @type {(head: Cell, event?: MouseEvent) => void} */
  function pickHead(head, event) {
    preview = null;
    if (event && event.shiftKey) mount.collect(head, view.id);
    else chooseHead(head);
  }

  /** @type {(head: Cell) => void} */
  function chooseHead(head) {
    mount.select({ head });
    mount.announce([headName(...head), factsText(view, head)].filter(Boolean).join(": "));
  }

  /** @type {(cell: Cell) => void} */
  function pickCell([query, key]) {
    if (!store.of(...chosenHead(), false)) return;
    mount.select({ query, key });
    announceCell();
  }

  /** @type {(place: Place) => void} */
  function pickToken(place) {
    preview = null;
    mount.select(place);
    announceCell();
  }

  function announceCell() {
    const cell = described();
    if (cell) mount.announce(readingOf(cell));
  }

  /** @type {() => Description | null} */
  function described() {
    const plot = large.plot();
    /** @type {Cell} */
    const cell = [chosenQuery(), chosenKey()];
    if (!plot || !isInside(cell, plot.rows, plot.columns)) return null;
    const found = plot.describe(cell);
    const named = { ...found, name: `${headName(...chosenHead())}, ${found.name}`, unit: "" };
    return Number.isNaN(found.value) ? {
      ...named, text: "hidden", value: undefined,
    } : { ...named, text: found.unit };
  }

  /** @type {(down: number, right: number) => void} */
  function moveCell(down, right) {
    pickCell(moved([chosenQuery(), chosenKey()], down, right, queries.length, view.tokens.length));
  }

  /** @type {(down: number, right: number) => void} */
  function moveHead(down, right) {
    chooseHead(movedHead(store, chosenHead(), down, right));
  }

  /** @type {(box: HTMLElement) => HeadActions} */
  function headActions(box) {
    return {
      mount, own,
      moveCell: box === large.box ? moveCell : box === evidence.box ? evidence.move : moveHead,
      moveHead,
      zoom: (by) => map?.zoom(by),
      fold: () => map?.fold(chosenHead()),
      collect: () => mount.collect(chosenHead(), view.id),
      bos: () => { if (view.bos) setBos(!state.hideBos); },
      search: () => mount.search(
        right, state.mode === "to" ? queries : view.tokens,
        (n) => pickToken(state.mode === "to" ? { query: n } : { key: n }),
      ),
      clear: () => mount.select({ query: null, key: null }),
    };
  }

  /** @type {(on: boolean) => void} */
  function setBos(on) {
    state.hideBos = on;
    bosSwitch?.set(on);
    redraw();
  }

  function patternControls() {
    const scales = choice(
      "scale", [[false, "linear"], [true, "√"]], state.root, (root) => { state.root = root; redraw(); },
    );
    const bos = toggle("hide BOS", state.hideBos, setBos, "Leave BOS out of the colour scale (key b)");
    bosSwitch = bos;
    const weighted = toggle(
      "weighted by value", state.weighted, (on) => { state.weighted = on; showAll(); },
      "Attention times the norm of the value vector",
    );
    return element(
      "div", { class: "w-controls" }, scales.element, view.bos ? bos.element : null,
      view.weighted ? weighted.element : null,
    );
  }

  return {
    root: own.root, focus: () => large.box.focus(), refresh: redraw, fromSelection, pointed, scrolled: large.box,
    dispose: () => [large, thumbnails, map, evidence].forEach((one) => one?.dispose()),
  };
}
