// The view "scan": all heads in a plane of two numbers that are chosen, and a finder by a third.

/** @import { Box, Cell, Context, Controller, Mount, ScanState, ScanView, ScatterView } from "./types.d.ts" */
import { decodedOnce } from "./data.js";
import { dataTablesOf } from "./data_tables.js";
import { choice, element, select } from "./elements.js";
import { frame } from "./frame.js";
import { headFinder } from "./head_finder.js";
import { STEP_KEYS, pictureOf } from "./plotted.js";
import { scatterPlot } from "./scatter.js";
import { surface } from "./surface.js";

/** A ring around a point.
 *  @type {(ctx: Context, box: Box, colour: string) => void} */
function ringed(ctx, [x, y, width, height], colour) {
  ctx.beginPath();
  ctx.arc(x + width / 2, y + height / 2, width / 2, 0, 2 * Math.PI);
  ctx.strokeStyle = colour;
  ctx.lineWidth = 2;
  ctx.stroke();
}

/** The controller of a view "scan".
 *  @type {(mount: Mount, view: ScanView) => Controller} */
export function scanView(mount, view) {
  /** @type {ScanState} */
  const state = mount.stateOf(view.id, { x: view.x, y: view.y, by: view.by, weighting: 0 });
  const own = frame(mount, view, {
    dataTables: () => dataTablesOf(view), picture: () => pictureOf(drawing),
    describe: () => { const cell = drawing.selected(); return cell && plot.describe(cell); },
  });
  let drawn = points();
  let plot = scatterPlot(drawn);
  /** @type {number[]} */
  let searched = [];
  const finder = headFinder(mount, {
    id: view.id, names: view.names, onPick: open, onHover: (n) => drawing.hover(n === null ? null : cellOf(n)),
    onSearch: (heads) => { searched = heads; drawing.refresh(); },
  });
  const plane = element("div", { class: "w-plane" });
  own.body.append(controls(), element("div", { class: "w-scan" }, plane, finder.root));
  const drawing = surface(mount, plane, {
    label: view.title, onPick: (cell) => open(headOf(cell)), onHover: (cell) => finder.hover(cell && headOf(cell)),
  });
  drawing.box.addEventListener("keydown", keys);
  mount.defer(() => { refresh(); own.ready(); });

  function controls() {
    const names = view.axes.map(({ name }) => [name, name]);
    /** @type {(label: string, axis: "x" | "y" | "by") => HTMLElement} */
    const axisSelect = (label, axis) => element(
      "label", { class: "w-toggle" }, label, select(label, names, state[axis], (name) => { state[axis] = name; refresh(); }),
    );
    /** @type {[number, string][]} */
    const weightings = view.weightings.map((name, n) => [n, name]);
    const weighting = choice("weights", weightings, state.weighting, (n) => { state.weighting = n; refresh(); });
    return element(
      "div", { class: "w-controls" }, axisSelect("across", "x"), axisSelect("down", "y"), axisSelect("ranked by", "by"),
      weightings.length > 1 ? weighting.element : null,
    );
  }

  /** The numbers of all heads on an axis.
   *  @type {(name: string) => number[]} */
  function numbersOf(name) {
    const { shape: [, axes, heads], data } = decodedOnce(view.values);
    const at = (state.weighting * axes + Math.max(0, view.axes.findIndex((axis) => axis.name === name))) * heads;
    return Array.from(data.subarray(at, at + heads));
  }

  /** The points: heads that have both numbers.
   *  @type {() => ScatterView & { heads: number[] }} */
  function points() {
    const [xs, ys] = [numbersOf(state.x), numbersOf(state.y)];
    const heads = view.names.map((_, n) => n).filter((n) => Number.isFinite(xs[n]) && Number.isFinite(ys[n]));
    /** @type {(name: string) => string} */
    const unitOf = (name) => view.axes.find((axis) => axis.name === name)?.unit || "";
    return {
      kind: "scatter", id: view.id, title: view.title, x: heads.map((n) => xs[n]), y: heads.map((n) => ys[n]), heads,
      labels: heads.map((n) => view.names[n]), axes: [state.x, state.y], units: [unitOf(state.x), unitOf(state.y)],
      groups: view.groups, group: heads.map((n) => view.group[n]),
    };
  }

  /** @type {(cell: Cell) => number} */
  function headOf(cell) {
    return drawn.heads[cell[1]];
  }

  /** @type {(n: number) => Cell | null} */
  function cellOf(n) {
    const at = drawn.heads.indexOf(n);
    return at < 0 ? null : [0, at];
  }

  function refresh() {
    drawn = points();
    const scatter = scatterPlot(drawn);
    plot = {
      ...scatter, describe: (cell) => ({
        ...scatter.describe(cell), lines: [`rank ${finder.rankText(headOf(cell))} by ${state.by}`],
      }),
      over: (ctx, geometry, theme) => searched.map(cellOf).forEach((cell) => {
        if (cell) ringed(ctx, scatter.box(geometry, cell), theme.accent);
      }),
    };
    finder.rank(numbersOf(state.by));
    drawing.choose(null);
    drawing.show(plot);
    own.refreshDataTable();
  }

  /** @type {(n: number) => void} */
  function open(n) {
    const cell = cellOf(n);
    drawing.choose(cell);
    own.selected([0, n], null);
    mount.announce(finder.describe(n));
    mount.report({ view: view.id, pick: "point", row: 0, column: n, name: view.names[n] });
  }

  /** @type {(event: KeyboardEvent) => void} */
  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [step, selected] = [STEP_KEYS[event.key], drawing.selected()];
    if (step) {
      const cell = plot.move(selected, ...step);
      drawing.choose(cell);
      own.selected(cell && [0, headOf(cell)], null);
      if (cell) { finder.hover(headOf(cell)); mount.announce(finder.describe(headOf(cell))); }
    } else if (event.key === "Enter" && selected) open(headOf(selected));
    else if (event.key === "Escape") drawing.choose(null);
    else if (event.key === "/") finder.field.focus();
    else if (event.key === "c") own.actions.copy();
    else if (event.key === "t") own.actions.table();
    else if (event.key === "?") mount.help();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  return {
    root: own.root, focus: () => drawing.box.focus(), refresh: () => { drawing.refresh(); finder.fill(); },
    fromSelection: () => {}, dispose: drawing.dispose, scrolled: drawing.box,
  };
}
