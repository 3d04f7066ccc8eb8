// The map of a view "heads": a score of each head as a colour. Its layers fold, its cells zoom, and the heads
// of a layer can be sorted by their scores.

/**
 * @import {
 *   Cell, HeadsState, HeadsView, Mount, Picture, Plot, Score, Size, Surface, SurfaceOptions,
 * } from "./types.d.ts"
 */
import { contrasted } from "./colours.js";
import { ESTIMATE, clamp, decodedOnce, headsOf, intervalText } from "./data.js";
import { numbered } from "./draw.js";
import { REGION, button, element, select, toggle } from "./elements.js";
import { knownFacts, nameOf } from "./head_parts.js";
import { isInside, matrixPlot } from "./matrix.js";
import { partOf } from "./plotted.js";
import { layerGroups, mapCells, mapRows, rankText, scaleOf } from "./ranking.js";
import { surface } from "./surface.js";

/** @import { HeadFacts } from "./head_parts.js" */

const CONTRASTS = 10;
/** How much larger cells are than those of a map that fits its box. */
const ZOOMS = [1, 1.5, 2.25, 3.4, 5, 8];
/** Least and greatest sizes of cells of a map that fits its box, in pixels. */
const LEAST = 4;
const [WIDE, HIGH] = [72, 36];

/** @typedef {{ contrast: number, truth: boolean, zoom?: number, sorted?: boolean, folded?: number[] }} MapState */
/** @typedef {Surface & { zoom(by: number): void, fold(head: Cell): void, picture(): Picture | null }} HeadMap */

/** The map, with controls for the score, the contrast, the order, folding and zoom.
 *  @type {(
 *    mount: Mount, view: HeadsView, scores: Score[], parent: HTMLElement, state: HeadsState,
 *    options: SurfaceOptions & { onScore(): void },
 *  ) => HeadMap} */
export function scoreMap(mount, view, scores, parent, state, { onHover, onPick, onScore }) {
  const chosen = () => chosenScore(scores, state);
  const layers = decodedOnce(chosen().values).shape[0];
  const groups = layerGroups(layers);
  parent.classList.toggle("w-short", groups.length === 0);
  const list = select(
    "score shown on the map", scores.map((score) => [score.id, score.name]), chosen().id,
    (id) => {
      state.score = id;
      refresh();
      onScore();
      mount.report({ view: view.id, pick: "score", name: id });
    },
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
  const sorted = toggle(
    "sort", state.sorted, (on) => { state.sorted = on; refresh(); },
    "Sort the heads of each layer by the score",
  );
  const folds = button("fold", "Fold groups of layers into a row each, or open them (key f: one group)", () => {
    state.folded = state.folded.length ? [] : groups.map(([first]) => first);
    refresh();
  });
  const [smaller, larger] = [
    button("−", "Smaller cells (key −)", () => zoom(-1), { "aria-label": "smaller cells" }),
    button("+", "Larger cells (key +)", () => zoom(1), { "aria-label": "larger cells" }),
  ];
  parent.append(element(
    "div", { class: "w-row" }, list, element("span", { class: "w-choice" }, groups.length ? folds : null, smaller, larger),
  ), element(
    "div", { class: "w-controls" }, element("label", { class: "w-toggle" }, "contrast", slider),
    sorted.element, view.truth ? truth.element : null,
  ));
  const drawing = surface(mount, parent, {
    label: "scores of heads", limited: true, snug: true, scroll: state.scrolls.map, onHover, onLabel: foldRow,
    onPick: (head, event) => {
      if (isFolded(head)) fold(head);
      onPick(head, event);
    },
  });
  const note = element("p", { class: "w-note", ...REGION, "aria-label": "about the score" });
  parent.append(note);

  function refresh() {
    const score = chosen();
    folds.textContent = state.folded.length ? "open" : "fold";
    smaller.disabled = state.zoom === 0;
    larger.disabled = state.zoom === ZOOMS.length - 1;
    drawing.show(mapPlot(view, score, state, () => mount.selection().heads));
    note.textContent = [score.control, score.n ? `n = ${score.n}` : ""].filter(Boolean).join(" · ");
    note.title = note.textContent;
  }

  /** @type {(by: number) => void} */
  function zoom(by) {
    state.zoom = clamp(state.zoom + by, 0, ZOOMS.length - 1);
    refresh();
    const head = drawing.selected();
    if (head) drawing.reveal(head);
  }

  /** @type {(head: Cell) => Cell | undefined} */
  const groupOf = ([layer]) => groups.find(([first, last]) => first <= layer && layer <= last);
  /** @type {(head: Cell) => boolean} */
  const isFolded = (head) => state.folded.includes((groupOf(head) || [-1])[0]);

  /** Folds the group of a head's layer, or opens it.
   *  @type {(head: Cell) => void} */
  function fold(head) {
    const group = groupOf(head);
    if (!group) return;
    const others = state.folded.filter((first) => first !== group[0]);
    state.folded = others.length < state.folded.length ? others : [...others, group[0]];
    refresh();
    mount.announce(`Layers ${group[0]} to ${group[1]}: ${isFolded(head) ? "folded" : "open"}`);
  }

  /** @type {(row: number) => void} */
  function foldRow(row) {
    fold([mapRows(layers, state.folded)[row][0], 0]);
  }

  function picture() {
    const drawn = partOf(drawing, chosen().name);
    return drawn && { ...drawn, note: note.textContent || "" };
  }

  return { ...drawing, refresh, zoom, fold, picture };
}

/** The score that the controls name; else the first.
 *  @type {(scores: Score[], state: { score: string | null }) => Score} */
export function chosenScore(scores, state) {
  return scores.find((score) => score.id === state.score) || scores[0];
}

/** The plot of a map of scores, whose cells are heads.
 *  @type {(view: HeadFacts, score: Score, state: MapState, collected: () => Cell[]) => Plot} */
export function mapPlot(view, score, state, collected) {
  const { shape: [layers, heads], data } = decodedOnce(score.values);
  const { sorted, folded = [], zoom = 0 } = state;
  const rows = mapRows(layers, folded);
  const cells = mapCells(score, rows, sorted);
  /** @type {Map<number, Cell>} */
  const places = new Map(cells.flatMap((row, r) => row.map(([layer, head], c) => (
    [layer * heads + head, /** @type {Cell} */ ([r, c])]
  ))));
  /** @type {(values: ArrayLike<number>) => { shape: number[], data: Float64Array }} */
  const arranged = (values) => ({
    shape: [rows.length, heads],
    data: Float64Array.from(cells.flat(), ([layer, head]) => values[layer * heads + head]),
  });
  const estimated = score.estimated ? decodedOnce(score.estimated).data : null;
  const plot = matrixPlot({
    kind: "matrix", rows: rows.map(([first, last]) => (first === last ? `L${first}` : `L${first}–${last}`)),
    columns: Array.from({ length: heads }, (_, n) => (sorted ? String(n + 1) : `H${n}`)),
    row_axis: "", column_axis: "", unit: score.unit, values: arranged(data), numbers: true, pick: "head",
    estimated: estimated ? arranged(estimated) : undefined,
    marked: state.truth ? headsOf(view.truth).filter(has).map(placeOfHead) : [],
    scale: contrasted(scaleOf(score), 2 ** (state.contrast / 2)),
  }, { cells: sizesOfCells });
  const ends = score.low && score.high ? [decodedOnce(score.low).data, decodedOnce(score.high).data] : null;

  /** The size of a cell, given the size of all of them.
   *  @type {(whole: Size) => Size} */
  function sizesOfCells({ width, height }) {
    return {
      width: Math.min(ZOOMS[zoom] * clamp(width / heads, LEAST, WIDE), WIDE),
      height: Math.min(ZOOMS[zoom] * clamp(height / rows.length, LEAST, HIGH), HIGH),
    };
  }

  /** @type {(head: Cell) => boolean} */
  function isHead(head) {
    return isInside(head, layers, heads);
  }

  /** The row and column of a head; in a folded row, its column, which shows the largest of the group.
   *  @type {(head: Cell) => Cell} */
  function placeOfHead([layer, head]) {
    const own = places.get(layer * heads + head);
    return own || [rows.findIndex(([first, last]) => first <= layer && layer <= last), head];
  }

  /** Whether it is drawn: not if a folded row with sorted heads leaves it out.
   *  @type {(head: Cell) => boolean} */
  function has(head) {
    return isHead(head) && (!sorted || places.has(head[0] * heads + head[1]));
  }

  /** @type {Plot["describe"]} */
  function describe(head) {
    const found = plot.describe(placeOfHead(head));
    const at = head[0] * heads + head[1];
    const interval = ends ? intervalText(ends[0][at], ends[1][at], found.signed) : "";
    const rank = rankText(score, head);
    return {
      ...found, name: nameOf(view, head), value: data[at],
      lines: [
        score.name, estimated?.[at] ? ESTIMATE : "", interval,
        rank && `rank ${rank}`, ...knownFacts(view, head),
      ].filter(Boolean),
    };
  }

  /** @type {Plot["draw"]} */
  function over(ctx, geometry, theme) {
    collected().forEach((head, n) => {
      if (has(head)) numbered(ctx, theme, plot.box(geometry, placeOfHead(head)), String(n + 1));
    });
  }

  return {
    ...plot, rows: layers, columns: heads, describe, over, has,
    mark: (ctx, geometry, theme, head) => plot.mark(ctx, geometry, theme, placeOfHead(head)),
    box: (geometry, head) => plot.box(geometry, placeOfHead(head)),
    pick: (geometry, x, y) => {
      const place = plot.pick(geometry, x, y);
      return place && cells[place[0]][place[1]];
    },
    labelAt: (geometry, x, y) => {
      const [left] = plot.box(geometry, [0, 0]);
      return x < left ? (plot.pick(geometry, left, y) || [null])[0] : null;
    },
  };
}
