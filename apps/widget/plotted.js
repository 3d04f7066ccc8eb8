// Views that consist of one plot: matrix, bars, curves, network, scatter.

/**
 * @import {
 *   Cell, Controller, Frame, Mount, NetworkView, NoneView, Picture, Plot, PlottedView, Surface,
 * } from "./types.d.ts"
 */
import { barsPlot } from "./bars.js";
import { curvesPlot } from "./curves.js";
import { headsOf, readable, same } from "./data.js";
import { dataTablesOf } from "./data_tables.js";
import { element } from "./elements.js";
import { frame, frameKey, readingOf } from "./frame.js";
import { isInside, matrixPlot } from "./matrix.js";
import { networkPlot } from "./network.js";
import { drawnEdges, sizesOf } from "./path_layout.js";
import { scatterPlot } from "./scatter.js";
import { surface } from "./surface.js";

/** Edges that are drawn while the slider moves, so that each picture takes a frame; and milliseconds
 *  after its last move until all are. */
const [LINES_WHILE_MOVED, REST] = [120, 120];

/** @type {Record<string, (view: any) => Plot>} */
export const PLOTS = {
  matrix: matrixPlot, bars: barsPlot, curves: curvesPlot, network: networkPlot, scatter: scatterPlot,
};

/** Whether a view of one plot has nothing to draw.
 *  @type {(view: PlottedView) => boolean} */
function isEmpty(view) {
  switch (view.kind) {
    case "matrix": return view.rows.length === 0 || view.columns.length === 0;
    case "bars": return view.labels.length === 0;
    case "curves": return view.panels.length === 0;
    case "network": return view.nodes.length === 0;
    case "scatter": return view.labels.length === 0;
  }
}

/** The controller of a view that has nothing to draw.
 *  @type {(mount: Mount, view: PlottedView | NoneView) => Controller} */
export function emptyView(mount, view) {
  const own = frame(mount, view, null);
  own.body.append(element("p", { class: "w-soft" }, view.kind === "none" ? view.reason : "Nothing to show."));
  own.ready();
  const none = () => {};
  return { root: own.root, focus: none, refresh: none, fromSelection: none, dispose: none };
}

/** The controller of a view that is one plot.
 *  @type {(mount: Mount, view: PlottedView) => Controller} */
export function plottedView(mount, view) {
  if (isEmpty(view)) return emptyView(mount, view);
  let plot = PLOTS[view.kind](view);
  const own = frame(mount, view, {
    dataTables: () => dataTablesOf(view), describe: described,
    picture: () => pictureOf(drawing),
  });
  if (view.kind === "network" && view.least !== undefined) own.body.append(threshold(view));
  const drawing = surface(mount, own.body, {
    label: view.title, onPick: pickCell, onDrawn,
    onHover: (cell) => mount.point(cell && headOf(cell), own.root),
  });
  drawing.box.addEventListener("keydown", (event) => plotKeys(event, mount, own, drawing, choose, pickCell));
  mount.defer(() => { drawing.show(plot); fromSelection(); });

  /** When it is first drawn, a graph that is wider than the page shows what is around its root. */
  function onDrawn() {
    const isFirst = !own.root.dataset.ready;
    own.ready();
    if (isFirst && view.kind === "network" && view.root !== undefined) drawing.reveal([1, view.root], { centred: true });
  }

  function at() {
    return drawing.selected();
  }

  /** The labels of rows, which may be names of heads. */
  function rowLabels() {
    return view.kind === "bars" ? view.labels : view.kind === "matrix" ? view.rows : [];
  }

  /** The head that a cell is about.
   *  @type {(cell: Cell) => Cell | null} */
  function headOf(cell) {
    return view.pick === "head" ? cell : headsOf({ [rowLabels()[cell[0]]]: "" })[0] || null;
  }

  /** Marks the cell or the row of a head that is under the pointer in another view.
   *  @type {NonNullable<Controller["pointed"]>} */
  function pointed(head) {
    if (view.pick === "head") return drawing.hover(head && isInside(head, plot.rows, plot.columns) ? head : null);
    const row = head ? rowLabels().findIndex((label) => same(headsOf({ [label]: "" })[0], head)) : -1;
    return drawing.hover(row < 0 ? null : [row, 0]);
  }

  function described() {
    const cell = at();
    return cell && plot.describe(cell);
  }

  /** @type {(cell: Cell | null, aloud?: boolean) => void} */
  function choose(cell, aloud = true) {
    drawing.choose(cell);
    own.selected(cell, cell ? plot.describe(cell) : null);
    if (aloud) mount.announce(cell ? readingOf(plot.describe(cell)) : "");
  }

  /** @type {(cell: Cell, event: { shiftKey: boolean }) => void} */
  function pickCell(cell, event) {
    if (view.pick === "head" && event.shiftKey) {
      mount.collect(cell, view.id);
      return;
    }
    choose(cell);
    if (view.pick === "head") mount.select({ head: cell }, { quiet: true });
    if (view.pick === "pair") mount.select({ query: cell[0], key: cell[1] }, { quiet: true });
    if (!view.pick) return;
    const described = plot.describe(cell);
    const index = view.kind === "network" ? { row: cell[1] } : { row: cell[0], column: cell[1] };
    const x = view.pick === "x" ? { x: described.x } : {};
    mount.report({ view: view.id, pick: described.pick || view.pick, ...index, ...x, name: described.name });
  }

  /** A slider for the size from which edges are drawn.
   *  @type {(network: NetworkView) => HTMLElement} */
  function threshold(network) {
    const state = mount.stateOf(view.id, { edges: 0 }); // 0 until the slider is moved
    const sizes = sizesOf(network.edges);
    const words = element("output", { class: "w-soft" });
    let rest = 0;
    const at = state.edges || sizes.filter((size) => size >= (network.least || 0)).length;
    const [first] = sizesOf(network.edges.filter(([, to]) => to === network.root));
    const slider = element("input", {
      type: "range", min: String(sizes.indexOf(first) + 1), max: String(sizes.length), step: "1", value: String(at), "aria-label": "edges",
      input: () => {
        state.edges = Number(slider.value);
        redraw(LINES_WHILE_MOVED);
        drawing.show(plot);
        clearTimeout(rest);
        rest = window.setTimeout(() => { redraw(); drawing.show(plot); }, REST);
      },
    });
    /** @type {(most?: number) => void} */
    function redraw(most) {
      const least = sizes[Number(slider.value) - 1] || 0;
      plot = networkPlot({ ...network, least }, most);
      const count = drawnEdges(network, least).length;
      words.textContent = `${count} of ${sizes.length}, ≥ ${readable(least)} ${view.unit || ""}`;
    }
    redraw();
    return element("div", { class: "w-controls" }, element("label", { class: "w-toggle" }, "edges", slider), words);
  }

  /** Follows the selection of the mount. */
  function fromSelection() {
    const { head, query, key } = mount.selection();
    /** @type {Record<string, Cell | null>} */
    const chosen = { head, pair: query !== null && key !== null ? [query, key] : null };
    const wanted = chosen[view.pick || ""] || (at() ? null : view.at);
    if (wanted && isInside(wanted, plot.rows, plot.columns) && !same(wanted, at())) choose(wanted, false);
  }

  return {
    root: own.root, focus: () => drawing.box.focus(), refresh: drawing.refresh, fromSelection, pointed,
    dispose: drawing.dispose, scrolled: drawing.box, reveal: () => { if (view.at) drawing.reveal(view.at); },
  };
}

/** A plot for a saved picture, in its size on the page.
 *  @type {(drawing: Surface) => Picture | null} */
export function pictureOf(drawing) {
  const [plot, geometry] = [drawing.plot(), drawing.geometry()];
  return plot && geometry && {
    width: geometry.width, height: geometry.height, paint: (ctx, theme) => plot.draw(ctx, geometry, theme),
  };
}

/** A plot that is a part of a view, for a saved picture; with the cells of a set that are outlined.
 *  @type {(drawing: Surface, part: string) => Picture | null} */
export function partOf(drawing, part) {
  const [plot, geometry, drawn] = [drawing.plot(), drawing.geometry(), pictureOf(drawing)];
  return plot && geometry && drawn && {
    ...drawn, part, paint: (ctx, theme) => {
      drawn.paint(ctx, theme);
      plot.over?.(ctx, geometry, theme);
    },
  };
}

/** @type {Record<string, [down: number, right: number]>} */
export const STEP_KEYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Handles the keys of a view that is one plot.
 *  @type {(
 *    event: KeyboardEvent, mount: Mount, own: Frame, drawing: Surface, choose: (cell: Cell | null) => void,
 *    pickCell: (cell: Cell, event: KeyboardEvent) => void,
 *  ) => void} */
function plotKeys(event, mount, own, drawing, choose, pickCell) {
  const [plot, selected] = [drawing.plot(), drawing.selected()];
  if (!plot || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = STEP_KEYS[event.key];
  if (step) choose(plot.move(selected, ...step));
  else if (event.key === "Enter" && selected) pickCell(selected, event);
  else if (event.key === "Escape") choose(null);
  else if (!frameKey(mount, own, event.key)) return;
  event.preventDefault();
  event.stopPropagation();
}
