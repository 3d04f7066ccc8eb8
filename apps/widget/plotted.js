// Views that consist of one plot: matrix, bars, curves, network.

import { barsPlot } from "./bars.js";
import { curvesPlot } from "./curves.js";
import { same } from "./data.js";
import { dataTablesOf } from "./data_tables.js";
import { element } from "./elements.js";
import { frame, readingOf } from "./frame.js";
import { isInside, matrixPlot } from "./matrix.js";
import { networkPlot } from "./network.js";
import { surface } from "./surface.js";

export const PLOTS = { matrix: matrixPlot, bars: barsPlot, curves: curvesPlot, network: networkPlot };

/** Whether a view of one plot has nothing to draw. */
function isEmpty(view) {
  const parts = {
    matrix: [view.rows, view.columns], bars: [view.labels], curves: [view.panels], network: [view.nodes],
  };
  return parts[view.kind].some((own) => own.length === 0);
}

/** The controller of a view that has nothing to draw. */
function emptyView(mount, view) {
  const own = frame(mount, view, {});
  own.body.append(element("p", { class: "w-soft" }, "Nothing to show."));
  own.ready();
  const none = () => {};
  return { root: own.root, focus: none, refresh: none, fromSelection: none, dispose: none };
}

/** The controller of a view that is one plot. */
export function plottedView(mount, view) {
  if (isEmpty(view)) return emptyView(mount, view);
  const plot = PLOTS[view.kind](view);
  const own = frame(mount, view, {
    dataTables: () => dataTablesOf(view), describe: () => (at() ? plot.describe(at()) : null),
    picture: () => pictureOf(drawing),
  });
  const drawing = surface(mount, own.body, { label: view.title, onPick: pickCell, onDrawn: own.ready });
  drawing.box.addEventListener("keydown", (event) => plotKeys(event, mount, own, drawing, choose, pickCell));
  mount.defer(() => { drawing.show(plot); fromSelection(); });

  function at() {
    return drawing.selected();
  }

  function choose(cell, aloud = true) {
    drawing.choose(cell);
    own.selected(cell, cell ? plot.describe(cell) : null);
    if (aloud) mount.announce(cell ? readingOf(plot.describe(cell)) : "");
  }

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

  /** Follows the selection of the mount. */
  function fromSelection() {
    const { head, query, key } = mount.selection();
    const pair = query !== null && key !== null ? [query, key] : null;
    const wanted = { head, pair }[view.pick] || (at() ? null : view.at);
    if (wanted && isInside(wanted, plot.rows, plot.columns) && !same(wanted, at())) choose(wanted, false);
  }

  return {
    root: own.root, focus: () => drawing.box.focus(), refresh: drawing.refresh, fromSelection,
    dispose: drawing.dispose, scrolled: drawing.box, reveal: () => { if (view.at) drawing.reveal(view.at); },
  };
}

/** A plot for a saved picture, in its size on the page. */
export function pictureOf(drawing) {
  const [plot, geometry] = [drawing.plot(), drawing.geometry()];
  return {
    width: geometry.width, height: geometry.height, paint: (ctx, theme) => plot.draw(ctx, geometry, theme),
  };
}

export const STEP_KEYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Handles the keys of a view that is one plot. */
function plotKeys(event, mount, own, drawing, choose, pickCell) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const plot = drawing.plot();
  const step = STEP_KEYS[event.key];
  if (step) choose(plot.move(drawing.selected(), ...step));
  else if (event.key === "Enter" && drawing.selected()) pickCell(drawing.selected(), event);
  else if (event.key === "Escape") choose(null);
  else if (event.key === "c") own.actions.copy();
  else if (event.key === "t") own.actions.table();
  else if (event.key === "p") mount.report({ pick: "pin" });
  else if (event.key === "?") mount.help();
  else return;
  event.preventDefault();
  event.stopPropagation();
}
