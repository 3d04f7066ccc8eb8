// The functions of the widget that need no page.

import assert from "node:assert/strict";
import test from "node:test";

import { barsPlot } from "../../../apps/widget/bars.js";
import {
  LIGHT, colourAt, colourOf, contrast, contrasted, luminance, ofHex, placeOf, textOn,
} from "../../../apps/widget/colours.js";
import { curvesPlot, logTicks } from "../../../apps/widget/curves.js";
import {
  ARRAYS, ESTIMATE, cellFormat, decoded, exact, extent, headsOf, readable, same, slug,
} from "../../../apps/widget/data.js";
import { dataTablesOf, toCsv } from "../../../apps/widget/data_tables.js";
import { badgePlace, elided, niceTicks, tickStep, wrapped } from "../../../apps/widget/draw.js";
import { readingOf } from "../../../apps/widget/frame.js";
import { mapPlot } from "../../../apps/widget/head_map.js";
import { matrixPlot } from "../../../apps/widget/matrix.js";
import { nextToken } from "../../../apps/widget/mount.js";
import { networkPlot } from "../../../apps/widget/network.js";
import { columnLayout, drawnEdges, edgeName, largestOf, sizesOf } from "../../../apps/widget/path_layout.js";
import { scatterPlot } from "../../../apps/widget/scatter.js";
import {
  lineOf, movedHead, patternStore, pooled, thumbnailsPlot, weightScale, weightsOf,
} from "../../../apps/widget/patterns.js";
import { layerGroups, mapCells, mapRows, rankText, rankingOf } from "../../../apps/widget/ranking.js";
import { ordered } from "../../../apps/widget/table.js";
import { textCells, weightAt } from "../../../apps/widget/text_cells.js";

/** The payload of an array. */
const sent = (dtype, array, shape = [array.length]) => ({
  dtype, shape, data: Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64"),
});
const float32 = (rows) => sent("float32", Float32Array.from(rows.flat()), [rows.length, rows[0].length]);
const measure = (text) => 7 * text.length;
const lightness = (rgb) => luminance(rgb) ** (1 / 3);

test("arrays of every dtype are decoded", () => {
  for (const [dtype, Kind] of Object.entries(ARRAYS)) {
    const values = dtype === "bool" ? [0, 1, 1] : [0, 1, 100];
    assert.deepEqual(Array.from(decoded(sent(dtype, Kind.from(values))).data), values, dtype);
  }
  const halves = sent("float16", Uint16Array.from([0x3c00, 0xc000, 0x3555, 0x0001, 0x7c00, 0x7e00]));
  const [first, second, third, least, most, none] = decoded(halves).data;
  assert.deepEqual([first, second, least, most], [1, -2, 2 ** -24, Infinity]);
  assert.ok(Math.abs(third - 1 / 3) < 1e-4 && Number.isNaN(none));
});

test("a table of heads says which values are estimates", () => {
  const score = { id: "a", name: "effect", unit: "nats", values: float32([[1, 2]]) };
  const heads = { kind: "heads", title: "heads" };
  const [measured] = dataTablesOf({ ...heads, scores: [score] });
  const [estimated] = dataTablesOf({ ...heads, scores: [{ ...score, estimated: float32([[1, 0]]) }] });
  assert.deepEqual(measured, { caption: "heads: scores of heads", columns: ["head", "effect (nats)"], rows: [["L0H0", 1], ["L0H1", 2]] });
  assert.deepEqual(estimated.columns, ["head", "effect (nats)", "effect: 1 where estimated"]);
  assert.deepEqual(estimated.rows, [["L0H0", 1, 1], ["L0H1", 2, 0]]);
});

test("an estimate is named in descriptions and tables of cells, bars and edges", () => {
  const plain = [matrixPlot(MATRIX).describe([0, 0]), barsPlot(BARS).describe([0]), networkPlot(NETWORK).describe([0, 0])];
  for (const described of plain) assert.ok(!(described.lines || []).some((line) => line.includes(ESTIMATE)));
  const { shape: [rows, columns] } = MATRIX.values;
  const marks = Array.from({ length: rows }, (_, r) => Array.from({ length: columns }, (_, c) => Number(r + c === 0)));
  const matrix = { ...MATRIX, estimated: marks };
  assert.ok(matrixPlot(matrix).describe([0, 0]).lines.includes(ESTIMATE));
  assert.ok(!matrixPlot(matrix).describe([0, 1]).lines.includes(ESTIMATE));
  assert.deepEqual(dataTablesOf(matrix)[1].rows.map((row) => row.slice(1)), marks);
  const second = { title: "other", values: [1, 2], estimated: [0, 1] };
  const bars = { ...BARS, estimated: [1, 0], second };
  const lines = [0, 1].map((row) => barsPlot(bars).describe([row]).lines.join("; "));
  assert.ok(lines[0].startsWith(ESTIMATE) && !lines[0].includes(`(${ESTIMATE})`));
  assert.ok(!lines[1].startsWith(ESTIMATE) && lines[1].endsWith(`(${ESTIMATE})`));
  const titles = dataTablesOf(bars)[0].columns;
  assert.ok(titles.includes("logits: 1 where estimated") && titles.includes("other: 1 where estimated"));
  const network = { ...NETWORK, estimated: true };
  assert.deepEqual(networkPlot(network).describe([0, 0]).lines, [ESTIMATE]);
  assert.equal(dataTablesOf(network)[0].columns[2], "nats, estimated");
});

test("NaN stays NaN, null is NaN, shapes hold", () => {
  assert.ok(Number.isNaN(decoded(float32([[NaN, 2]])).data[0]));
  const list = decoded([[1, null], [3, 4]]);
  assert.deepEqual(list.shape, [2, 2]);
  assert.ok(Number.isNaN(list.data[1]));
  assert.throws(() => decoded({ ...float32([[1, 2]]), shape: [3] }), /2 elements/);
  assert.throws(() => decoded({ ...float32([[1, 2]]), dtype: "complex64" }), /complex64/);
});

/** Two paths over tokens: embed@0 → L0H0.v@1 → L1H0.k@2 → logits@2, and a weak one from embed@2. */
const PATHS = {
  kind: "network", id: "p", title: "Paths", unit: "logits", root: 4, least: 1, pick: "edge",
  columns: ["0 a", "1 b", "2 a"], rows: ["embed", "L0", "L0 MLP", "L1", "L1 MLP", "logits"],
  nodes: [
    { name: "embed@0", x: 0, y: 0 }, { name: "embed@2", x: 2, y: 0 }, { name: "L0H0@1", x: 1, y: 1 },
    { name: "L1H0@2", x: 2, y: 3, note: "contributes +2 logits" }, { name: "logits@2", x: 2, y: 5 },
  ],
  edges: [[0, 2, 5, "v"], [2, 3, -3, "k"], [3, 4, 2], [1, 3, 0.5, "q"]],
};

test("edges are drawn from a size on, as far as they lead to the root", () => {
  assert.deepEqual([0, 1, 2.5].map((least) => drawnEdges(PATHS, least)), [[0, 1, 2, 3], [0, 1, 2], []]);
  assert.deepEqual(drawnEdges({ ...PATHS, root: undefined }, 2.5), [0, 1]);
  assert.deepEqual(drawnEdges({ ...PATHS, edges: PATHS.edges.with(1, [2, 3, 0.1, "k"]) }, 1), [2]);
  assert.deepEqual(sizesOf(PATHS.edges), [5, 3, 2, 0.5]);
});

test("names of edges have the letter that a head reads, as in the tables of the analysis", () => {
  assert.deepEqual(PATHS.edges.map((edge) => edgeName(PATHS.nodes, edge)), [
    "embed@0 → L0H0.v@1", "L0H0@1 → L1H0.k@2", "L1H0@2 → logits@2", "embed@2 → L1H0.q@2",
  ]);
  const [table] = dataTablesOf(PATHS);
  assert.deepEqual(table.rows[1], ["L0H0@1", "L1H0.k@2", -3]);
});

test("nodes stand above their tokens, side by side in a cell, and rows without a node are left out", () => {
  const nodes = [...PATHS.nodes, { name: "L1H1@2", x: 2, y: 3 }];
  const { at, rows, columns } = columnLayout(nodes, [0, 2, 3, 4, 5], { node: 50, left: 60, width: 300 }, () => 20);
  assert.deepEqual(rows.map(({ row }) => row), [5, 3, 1, 0]);
  assert.deepEqual(columns.map(({ column }) => column), [0, 1, 2]);
  const [[one, high], [other, same_]] = [at.get(3), at.get(5)];
  assert.equal(high, same_);
  assert.equal(other - one, 56);
  assert.equal((one + other) / 2, at.get(4)[0]);
  assert.ok(at.get(4)[1] < high && high < at.get(2)[1] && at.get(2)[1] < at.get(0)[1]);
});

test("what is not drawn of a graph of paths can't be picked, and the rest says what it is", () => {
  const plot = networkPlot(PATHS);
  const geometry = plot.layout(600, measure);
  const middle = (cell) => {
    const [x, y, wide, high] = plot.box(geometry, cell);
    return [x + wide / 2, y + high / 2];
  };
  assert.deepEqual(plot.pick(geometry, ...middle([1, 3])), [1, 3]);
  assert.deepEqual(plot.pick(geometry, ...middle([0, 1])), [0, 1]);
  assert.equal(geometry.at.has(1), false);
  assert.equal(readingOf(plot.describe([0, 1])), "L0H0@1 → L1H0.k@2: −3 logits");
  assert.equal(readingOf(plot.describe([1, 3])), "L1H0@2: contributes +2 logits · 2 edges");
  const whole = networkPlot({ ...PATHS, least: 0 });
  assert.equal(whole.layout(600, measure).at.has(1), true);
  assert.equal(readingOf(whole.describe([1, 3])), "L1H0@2: contributes +2 logits · 3 edges");
});

test("numbers are written shortest, exactly and readably", () => {
  assert.equal(exact(Math.fround(0.1)), "0.1");
  assert.equal(exact(0.1234567890123), "0.1234567890123");
  for (const value of [1 / 3, 1e-20, 123456.789, -7.0000005]) assert.equal(Math.fround(Number(exact(Math.fround(value)))), Math.fround(value));
  assert.deepEqual([1234.56, -0.00012346, 0, NaN, null].map((x) => readable(x)), ["1235", "−0.0001235", "0", "no value", "no value"]);
  assert.equal(readable(0.5, true), "+0.5");
  assert.equal(readable(1e-9), "1e−9");
});

test("numbers in cells have equal decimals and no room to spare", () => {
  assert.deepEqual([0.5, -0.25, -0.001, 0, 1, NaN].map(cellFormat(1.9)), [".50", "−.25", ".00", "0", "1.00", ""]);
  assert.deepEqual([12.34, -3].map(cellFormat(12.34)), ["12", "−3"]);
  assert.deepEqual([0.0123].map(cellFormat(0.02)), [".012"]);
});

test("a scale has its ends and its middle", () => {
  const diverging = { kind: "diverging", low: -2, high: 2 };
  assert.deepEqual([-2, 0, 2, 5].map((x) => placeOf(diverging, x)), [0, 0.5, 1, 1]);
  assert.deepEqual([0, 0.25, 1].map((x) => placeOf({ kind: "sequential", low: 0, high: 1, root: true }, x)), [0, 0.5, 1]);
  assert.equal(placeOf({ ...diverging, root: true }, -0.5), 0.25);
  assert.ok(Number.isNaN(placeOf(diverging, NaN)));
  assert.equal(placeOf(contrasted(diverging, 4), 0.5), 1);
});

test("what helps has one colour on either side of zero, and what hurts another", () => {
  const above = { kind: "diverging", low: -2, high: 2, helps: "above" };
  const below = { ...above, helps: "below" };
  for (const value of [-2, -0.5, 0, 0.1, 1.5]) {
    assert.deepEqual(colourOf(below, -value, false), colourOf(above, value, false));
    assert.deepEqual(colourOf(above, value, false), colourOf({ ...above, helps: null }, value, false));
    if (value) assert.notDeepEqual(colourOf(below, value, false), colourOf(above, value, false));
  }
  assert.ok(Number.isNaN(placeOf(below, NaN)));
});

for (const dark of [false, true]) {
  test(`sequential colours rise in lightness, ${dark ? "dark" : "light"}`, () => {
    const steps = Array.from({ length: 50 }, (_, n) => lightness(colourAt("sequential", dark, n / 49)));
    for (let n = 1; n < steps.length; n += 1) assert.ok(steps[n] > steps[n - 1], `step ${n}`);
  });

  test(`diverging colours are as light on both sides and neutral at zero, ${dark ? "dark" : "light"}`, () => {
    const scale = { kind: "diverging", low: -1, high: 1 };
    const away = [];
    for (let n = 0; n <= 20; n += 1) {
      const [below, above] = [-n / 20, n / 20].map((x) => lightness(colourOf(scale, x, dark)));
      assert.ok(Math.abs(below - above) < 0.05, `at ${n / 20}: ${below} and ${above}`);
      away.push((below + above) / 2);
    }
    for (let n = 1; n < away.length; n += 1) assert.ok(dark ? away[n] > away[n - 1] : away[n] < away[n - 1], `step ${n}`);
    const zero = colourOf(scale, 0, dark);
    assert.ok(Math.max(...zero) - Math.min(...zero) <= 1, `zero is ${zero}`);
  });

  test(`texts are readable on every colour, ${dark ? "dark" : "light"}`, () => {
    for (const kind of ["sequential", "diverging", "tint"]) {
      for (let n = 0; n <= 40; n += 1) {
        const colour = colourAt(kind, dark, n / 40);
        assert.ok(contrast(colour, ofHex(textOn(colour))) >= 4.5, `${kind} at ${n / 40}`);
      }
    }
  });
}

test("labels are thinned in steps of 1, 2 and 5, and cut to their room", () => {
  assert.deepEqual([[14, 20], [14, 10], [14, 3], [14, 0.5]].map(([need, step]) => tickStep(need, step)), [1, 2, 5, 50]);
  assert.equal(elided("abcdef", 100, measure), "abcdef");
  assert.equal(elided("abcdef", 28, measure), "abc…");
  assert.equal(elided("😀😀😀", 30, measure), "😀…");
  assert.deepEqual(niceTicks(0, 1, 4), [0, 0.5, 1]);
  assert.deepEqual(niceTicks(0, 3, 10, 1), [0, 1, 2, 3]);
  assert.deepEqual(niceTicks(-0.3, 0.3, 7), [-0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3]);
});

const MATRIX = {
  kind: "matrix", id: "m", title: "Effect", rows: ["0", "1"], columns: ["0", "1", "2"], row_axis: "layer", column_axis: "head",
  unit: "nats", values: float32([[1, NaN, -2], [0.5, 0, 3]]), scale: { kind: "diverging", low: -3, high: 3 }, numbers: true, pick: "head",
};
const BARS = { kind: "bars", id: "b", title: "Bars", labels: ["one", "two"], values: float32([[1, -2]]), low: float32([[0.5, NaN]]), high: float32([[1.5, NaN]]), unit: "logits" };
const CURVES = { kind: "curves", id: "c", title: "Curves", axis: "layer", panels: [{ title: "loss", unit: "nats", curves: [{ name: "a", x: [1, 10, 100], y: [3, null, 1] }] }], marked: [] };
const SCATTER = { kind: "scatter", id: "s", title: "Heads", x: [1, 3, 2], y: [0.5, 0, 1], labels: ["L0H0", "L0H1", "L1H0"], axes: ["distance", "entropy"], units: ["tokens", "nats"], groups: ["L0", "L1"], group: [0, 0, 1] };
const NETWORK = { kind: "network", id: "n", title: "Graph", unit: "nats", nodes: [{ name: "embed", x: 0, y: 0 }, { name: "L0H1", x: 1, y: 1, label: "copy" }, { name: "logits", x: 0, y: 2 }], edges: [[0, 1, 2], [1, 2, -1]] };

test("the middle of every cell picks that cell, and beside the plot is none", () => {
  const plots = [matrixPlot(MATRIX), matrixPlot({ ...MATRIX, numbers: false, pick: "pair" }), barsPlot(BARS), networkPlot(NETWORK), scatterPlot(SCATTER)];
  for (const plot of plots) {
    for (const width of [320, 1000]) {
      const geometry = plot.layout(width, measure);
      for (let row = 0; row < plot.rows; row += 1) {
        for (let column = 0; column < plot.columns; column += 1) {
          const [x, y, wide, high] = plot.box(geometry, [row, column]);
          assert.deepEqual(plot.pick(geometry, x + wide / 2, y + high / 2), [row, column]);
        }
      }
      assert.equal(plot.pick(geometry, geometry.width - 1, -5), null);
    }
  }
  const curves = curvesPlot(CURVES);
  const geometry = curves.layout(600, measure);
  for (const cell of [[0, 0], [0, 2]]) {
    const [x, y] = curves.box(geometry, cell);
    assert.deepEqual(curves.pick(geometry, x + 4, y + 4), cell);
  }
});

test("ends are those of finite numbers", () => {
  assert.deepEqual(extent([3, NaN, Infinity, -1, -Infinity]), [-1, 3]);
  assert.deepEqual(extent([NaN]), [0, 1]);
});

test("arrows stay inside a plot", () => {
  const plot = matrixPlot(MATRIX);
  assert.deepEqual(plot.move([0, 0], -1, 0), [0, 0]);
  assert.deepEqual(plot.move([0, 2], 1, 1), [1, 2]);
  assert.deepEqual(plot.move(null, 1, 1), [0, 0]);
});

test("a picture while the slider moves has the largest lines, and every node and name", () => {
  const view = { ...PATHS, least: 0 };
  const strokes = (most) => {
    const plot = networkPlot(view, most);
    const ctx = recorder();
    let curves = 0;
    ctx.bezierCurveTo = () => { curves += 1; };
    plot.draw(ctx, plot.layout(700, measure), LIGHT);
    return curves;
  };
  const all = drawnEdges(view, 0);
  assert.deepEqual([strokes(undefined), strokes(2), strokes(0)], [all.length, 2, 0]);
  const smallest = Math.min(...largestOf(view.edges, all, 2).map((n) => Math.abs(view.edges[n][2])));
  assert.equal(smallest, sizesOf(view.edges)[1]);
  assert.deepEqual(networkPlot(view, 0).layout(700, measure), networkPlot(view).layout(700, measure));
});

test("arrows go from point to point: to the right, and down", () => {
  const plot = scatterPlot(SCATTER);
  assert.deepEqual(plot.move(null, 0, 0), [0, 0]);
  assert.deepEqual(plot.move([0, 0], 0, 1), [0, 2]);
  assert.deepEqual(plot.move([0, 0], 1, 0), [0, 1]);
  assert.deepEqual(plot.move([0, 1], 0, 1), [0, 1]);
});

test("the text of a cell has its name, value and unit", () => {
  assert.equal(readingOf(matrixPlot(MATRIX).describe([1, 2])), "L1H2: +3 nats");
  assert.equal(readingOf(matrixPlot(MATRIX).describe([0, 1])), "L0H1: no value");
  assert.equal(readingOf(matrixPlot({ ...MATRIX, pick: "pair" }).describe([1, 0])), "query 1 '1', key 0 '0': +0.5 nats");
  assert.equal(readingOf(matrixPlot({ ...MATRIX, pick: null }).describe([1, 0])), "layer 1, head 0: +0.5 nats");
  assert.equal(readingOf(barsPlot(BARS).describe([0])), "one: +1 logits, 95 % interval +0.5 to +1.5");
  assert.equal(readingOf(scatterPlot(SCATTER).describe([0, 1])), "L0H1: distance 3 tokens · entropy 0 nats");
  assert.equal(readingOf(networkPlot(NETWORK).describe([0, 1])), "L0H1 → logits: −1 nats");
  const beside = [{ title: "target", values: float32([[1, 2, 3], [4, 5, -6]]) }];
  assert.equal(readingOf(matrixPlot({ ...MATRIX, beside }).describe([1, 2])), "L1H2: +3 nats, target −6 nats");
});

test("marks on bars are in the scale, the text of a row and the data table, and have a legend", () => {
  const marks = [{ title: "target", values: float32([[4, NaN]]) }, { title: "distractor", values: float32([[3, -1]]) }];
  const plot = barsPlot({ ...BARS, first: "difference", marks });
  assert.equal(readingOf(plot.describe([0])), "one: +1 logits, 95 % interval +0.5 to +1.5, target +4 logits, distractor +3 logits");
  for (const width of [320, 1000]) {
    const { keys, top, origin, span, left } = plot.layout(width, measure);
    assert.deepEqual(keys.map(({ title, isMark }) => [title, isMark]), [["difference", false], ["target", true], ["distractor", true]]);
    assert.ok(keys.every(({ y }) => y < top) && origin + span > left);
  }
  assert.deepEqual(barsPlot(BARS).layout(320, measure).keys, []);
  const [table] = dataTablesOf({ ...BARS, first: "difference", marks });
  assert.deepEqual(table.columns.slice(-2), ["target", "distractor"]);
  assert.deepEqual(table.rows[1].slice(-1), [-1]);
});

/** What is drawn with its colour: rectangles with fillRect, texts with their places. */
function inked(plot, width = 700) {
  const ctx = recorder();
  const [filled, texts, at] = [[], [], [0, 0]];
  let colour = "";
  Object.defineProperty(ctx, "fillStyle", { set: (value) => { colour = value; } });
  Object.assign(ctx, {
    fillRect: (...box) => filled.push({ colour, box }), translate: (x, y) => at.splice(0, 2, x, y),
    fillText: (text) => texts.push({ text, y: at[1] }),
  });
  plot.draw(ctx, plot.layout(width, measure), LIGHT);
  return { filled, texts };
}

test("bars without intervals fill the width, however small their values are", () => {
  const small = { ...BARS, values: float32([[0.04, -0.02]]), low: undefined, high: undefined };
  const none = float32([[NaN, NaN]]);
  const [plain, empty] = [small, { ...small, low: none, high: none }].map((view) => inked(barsPlot(view)).filled);
  assert.deepEqual(empty, plain);
  const wide = inked(barsPlot({ ...small, low: float32([[-1, NaN]]), high: float32([[1, NaN]]) })).filled;
  assert.notDeepEqual(wide, plain);
});

test("a contribution and an ablation that say that a component helps are bars of one hue", () => {
  const scale = { kind: "diverging", low: -2, high: 2, helps: "above" };
  const second = { title: "ablation", values: float32([[-1, 1]]), helps: "below" };
  const { filled } = inked(barsPlot({ kind: "bars", id: "b", title: "Bars", labels: ["helps", "hurts"], values: float32([[1, -1]]), scale, second }));
  const bars = filled.filter(({ box: [, , width, height] }) => width > 20 && height < 20);
  const [direct, ablation, directHurts, ablationHurts] = bars.map(({ colour }) => colour.match(/\d+ \d+ \d+/)[0]);
  assert.deepEqual([direct, directHurts], [ablation, ablationHurts]);
  assert.notEqual(direct, directHurts);
  const widths = bars.map(({ box: [, , width] }) => Math.round(width));
  assert.ok(widths.every((width) => width === widths[0]));
  const [x, mirrored] = [bars[0].box[0], bars[1].box[0]];
  assert.ok(mirrored < x); // a negative number stays left of zero
});

test("only a long chart has its ticks and its unit above the bars too", () => {
  for (const [rows, times] of [[4, 1], [40, 2]]) {
    const plot = barsPlot({ kind: "bars", id: "b", title: "Bars", labels: Array.from({ length: rows }, (_, n) => `L${n}MLP`), values: float32([Array.from({ length: rows }, (_, n) => n)]), unit: "logits" });
    const { top } = plot.layout(700, measure);
    const units = inked(plot).texts.filter(({ text }) => text === "logits");
    assert.equal(units.length, times);
    assert.equal(units.filter(({ y }) => y < top).length, times - 1);
  }
});

test("labels for another shape are refused", () => {
  assert.throws(() => matrixPlot({ ...MATRIX, rows: ["0"] }), /labels for other rows/);
});

test("the data table of a view has all its numbers", () => {
  assert.deepEqual(dataTablesOf(MATRIX)[0].rows, [["0", 1, NaN, -2], ["1", 0.5, 0, 3]]);
  assert.deepEqual(dataTablesOf(BARS)[0].rows, [["one", 1, 0.5, 1.5], ["two", -2, NaN, NaN]]);
  assert.deepEqual(dataTablesOf(CURVES)[0].rows.map((row) => row.slice(2)), [[1, 3], [10, NaN], [100, 1]]);
  assert.deepEqual(dataTablesOf(SCATTER)[0].rows, [["L0H0", 1, 0.5], ["L0H1", 3, 0], ["L1H0", 2, 1]]);
  assert.deepEqual(dataTablesOf(NETWORK)[0].rows, [["embed", "L0H1", 2], ["L0H1", "logits", -1]]);
  const tokens = { kind: "tokens", tokens: ["a", "b"], ids: [5, 6], values: float32([[0.5, 1]]), unit: "nats" };
  assert.deepEqual(dataTablesOf(tokens)[0].rows, [[0, "a", 5, 0.5], [1, "b", 6, 1]]);
  const heads = { kind: "heads", title: "Heads", scores: [{ name: "effect", unit: "nats", values: float32([[1, 2], [3, 4]]) }] };
  assert.deepEqual(dataTablesOf(heads)[0].rows, [["L0H0", 1], ["L0H1", 2], ["L1H0", 3], ["L1H1", 4]]);
});

test("CSV is quoted, and formulas stay texts", () => {
  const rows = [["a,b", 1.5], ['say "x"', NaN], ["=1+1", -2], ["-x", 0], ["@y", 0], ["+z", 0], ["\tt", 0], ["line\nbreak", 0]];
  assert.equal(
    toCsv({ columns: ["name", "v"], rows }),
    'name,v\r\n"a,b",1.5\r\n"say ""x""",\r\n\'=1+1,-2\r\n\'-x,0\r\n\'@y,0\r\n\'+z,0\r\n\'\tt,0\r\n"line\nbreak",0\r\n',
  );
});

test("the name of a file has no way out of its folder", () => {
  assert.equal(slug("../../etc/passwd <b>"), "etc-passwd-b");
  assert.equal(slug("python-4l@500"), "python-4l-500");
});

test("rows are filtered and sorted, with none at the end", () => {
  const rows = [["b", 2], ["a", null], ["c", 10], ["ab", -1]];
  assert.deepEqual(ordered(rows, {}), [0, 1, 2, 3]);
  assert.deepEqual(ordered(rows, { column: 1, down: true }), [2, 0, 3, 1]);
  assert.deepEqual(ordered(rows, { column: 1, down: false }), [3, 0, 2, 1]);
  assert.deepEqual(ordered(rows, { column: 0, down: false }), [1, 3, 0, 2]);
  assert.deepEqual(ordered(rows, { filter: "A" }), [1, 3]);
});

const PATTERNS = Uint8Array.from([255, 0, 51, 204, 255, 0, 127, 128, 255, 255, 0, 255, 1, 2, 3, 4]);

test("patterns are those of their head, and hidden cells have no weight", () => {
  const store = patternStore({ patterns: sent("uint8", PATTERNS, [2, 2, 2, 2]) });
  assert.deepEqual([store.layers, store.heads(1)], [2, 2]);
  assert.deepEqual(Array.from(store.of(1, 0).data), [255, 255, 0, 255]);
  const causal = weightsOf(store.of(0, 0), { causal: true, hideBos: false });
  assert.deepEqual(Array.from(causal.data, (x) => Math.round(100 * x)), [100, NaN, 20, 80]);
  assert.deepEqual(Array.from(weightsOf(store.of(0, 0), { causal: true, hideBos: true }).data, (x) => Math.round(100 * x)), [NaN, NaN, NaN, 80]);
  assert.deepEqual(lineOf(store.of(0, 0), { query: 1 }, {}), [0.2, 0.8]);
  assert.deepEqual(lineOf(store.of(0, 0), { key: 0 }, {}), [1, 0.2]);
  assert.equal(weightScale([NaN, 0.4], { hideBos: true }).high, 0.4);
  assert.equal(weightScale([NaN, 0.4], { hideBos: false }).high, 1);
});

test("layers may differ, or be sent small", () => {
  const layer = (array, shape) => sent("uint8", Uint8Array.from(array), shape);
  const store = patternStore({ patterns: [layer([1, 2, 3, 4], [1, 2, 2]), layer([9, 8], [2, 1, 1])] });
  assert.deepEqual([store.heads(0), store.heads(1), Array.from(store.of(1, 1).data)], [1, 2, [8]]);
  const small = patternStore({ patterns: { thumbnails: layer([7, 9], [2, 1, 1, 1]), layer: { index: 1, patterns: layer([1, 2, 3, 4], [1, 2, 2]) } } });
  assert.equal(small.of(0, 0), null);
  assert.deepEqual(Array.from(small.of(1, 0).data), [1, 2, 3, 4]);
  assert.deepEqual([small.thumbnail(0, 0), small.thumbnail(1, 0)].map((tile) => tile.data[0]), [7, 9]);
});

test("a thumbnail keeps the largest weight of the cells it stands for", () => {
  const data = new Uint8Array(16);
  data[6] = 200;
  assert.deepEqual(Array.from(pooled({ queries: 4, keys: 4, data }, 2).data), [0, 200, 0, 0]);
});

test("the middle of every thumbnail picks that head, also where they wrap", () => {
  const store = patternStore({ patterns: sent("uint8", new Uint8Array(3 * 12), [3, 12, 1, 1]) });
  const plot = thumbnailsPlot(store, {});
  for (const width of [300, 400, 1000]) {
    const geometry = plot.layout(width);
    assert.ok(geometry.across === 12 || width < 700);
    for (let layer = 0; layer < 3; layer += 1) {
      for (let head = 0; head < 12; head += 1) {
        const [x, y, size] = plot.box(geometry, [layer, head]);
        assert.ok(x + size <= width);
        assert.deepEqual(plot.pick(geometry, x + size / 2, y + size / 2), [layer, head]);
      }
    }
  }
});

test("a search goes around the end", () => {
  const tokens = ["def", "·add", "(", "·Add"];
  assert.equal(nextToken(tokens, "add", -1), 1);
  assert.equal(nextToken(tokens, "add", 1), 3);
  assert.equal(nextToken(tokens, "add", 3), 1);
  assert.equal(nextToken(tokens, "x", -1), -1);
  assert.equal(nextToken(tokens, "", -1), -1);
});

test("equal data is equal, whatever the object", () => {
  assert.ok(same({ a: [1, { b: null }] }, { a: [1, { b: null }] }));
  for (const other of [{ a: [1] }, { a: [1, { b: 0 }] }, { a: { 0: 1, 1: { b: null } } }, null, { a: [1, { b: null }], c: 1 }]) {
    assert.ok(!same({ a: [1, { b: null }] }, other));
  }
});

test("the heads of a known circuit are found by name", () => {
  assert.deepEqual(headsOf({ L1H3: "induction", L0MLP: "no head", "decoder.L2H10": "x" }), [[1, 3], [2, 10]]);
});

test("ticks of a logarithmic axis are powers and halves of them", () => {
  assert.deepEqual(logTicks(1, 100), [1, 2, 5, 10, 20, 50, 100]);
  assert.deepEqual(logTicks(1, 100000), [1, 10, 100, 1000, 10000, 100000]);
});

/** A context that records the rectangles drawn on it, and the points of lines and texts. */
function recorder() {
  const [drawn, points] = [[], []];
  const rectangle = (...box) => drawn.push(box);
  const point = (x, y) => points.push([x, y]);
  const none = () => {};
  return {
    drawn, points, fillRect: rectangle, strokeRect: rectangle, rect: rectangle, roundRect: rectangle,
    moveTo: point, lineTo: point, arc: point, translate: point, bezierCurveTo: (...ends) => point(...ends.slice(4)),
    measureText: (text) => ({ width: 6 * text.length }), save: none, restore: none, rotate: none, fillText: none,
    setLineDash: none, beginPath: none, closePath: none, stroke: none, fill: none, clip: none,
  };
}

test("plots draw and mark their cells inside their size, at any width", () => {
  const marks = [{ title: "target", values: float32([[4, NaN]]) }];
  const panels = [1, 1e6].map((most) => ({
    title: "loss", unit: "nats", curves: [{ name: "a", x: [1, 2, 4], y: [most, null, -most] }, { name: "b", x: [1], y: [0], faint: true }],
  }));
  const plots = [
    barsPlot(BARS), barsPlot({ ...BARS, first: "difference", marks }), networkPlot(NETWORK), scatterPlot(SCATTER),
    barsPlot({ ...BARS, values: float32([[NaN, NaN]]), second: { title: "other", values: float32([[1, 2]]) } }),
    curvesPlot(CURVES), curvesPlot({ ...CURVES, panels, marked: [3], log: true }),
  ];
  for (const plot of plots) {
    for (const width of [240, 700, 2000]) {
      const geometry = plot.layout(width, measure);
      const ctx = recorder();
      plot.draw(ctx, geometry, LIGHT);
      plot.mark(ctx, geometry, LIGHT, plot.move(null, 0, 0));
      assert.ok(ctx.drawn.length + ctx.points.length > 4);
      const corners = ctx.drawn.flatMap(([x, y, wide, high]) => [[x, y], [x + wide, y + high]]);
      for (const [x, y] of [...corners, ...ctx.points]) {
        assert.ok(x >= -5 && x <= geometry.width + 5 && y >= -5 && y <= geometry.height + 5, `${x}, ${y} at ${width}`);
      }
    }
  }
});

test("lines of a text are as wide as their room, or one word", () => {
  const lines = wrapped("one two threeandmore four", 49, measure);
  assert.deepEqual(lines, ["one two", "threeandmore", "four"]);
  assert.deepEqual(wrapped("", 49, measure), [""]);
});

test("another head is in the map also where layers have fewer heads", () => {
  const store = { layers: 2, heads: (layer) => [4, 1][layer] };
  assert.deepEqual(movedHead(store, [0, 3], 1, 0), [1, 0]);
  assert.deepEqual(movedHead(store, [0, 3], -1, 1), [0, 3]);
  assert.deepEqual(movedHead(store, [1, 0], -5, 2), [0, 2]);
});

test("the number of a collected head is inside the head's own cell, on the map and on the patterns", () => {
  const heads = [[0, 0], [2, 3], [29, 8]];
  const values = sent("float32", new Float32Array(270), [30, 9]);
  const map = mapPlot({ scores: [] }, { values, unit: "" }, { contrast: 0, truth: false }, () => heads);
  const store = patternStore({ patterns: sent("uint8", new Uint8Array(270), [30, 9, 1, 1]) });
  const all = thumbnailsPlot(store, { collected: () => heads });
  for (const [plot, width] of [[map, 600], [map, 120], [all, 600], [all, 240]]) {
    const geometry = plot.layout(width, measure);
    for (const [n, head] of heads.entries()) {
      const [x, y, wide, high] = plot.box(geometry, head);
      const ctx = recorder();
      const withOneHead = plot === map
        ? mapPlot({ scores: [] }, { values, unit: "" }, { contrast: 0, truth: false }, () => [head])
        : thumbnailsPlot(store, { collected: () => [head] });
      withOneHead.over(ctx, geometry, {});
      assert.ok(ctx.drawn.length >= 1, `${n}`);
      for (const [left, top, w, h] of ctx.drawn) {
        assert.ok(left >= x && top >= y && left + w <= x + wide && top + h <= y + high, `${head} at ${width}`);
      }
    }
  }
});

test("a badge that does not fit into its cell is left out", () => {
  assert.equal(badgePlace([0, 0, 10, 18], 6), null);
  assert.equal(badgePlace([0, 0, 40, 12], 6), null);
  assert.deepEqual(badgePlace([10, 20, 40, 18], 6), [39, 20, 11, 13]);
});

/** A score of 20 layers and 3 heads: 3 * layer + head, the odd ones negative; NaN for the last head. */
const SIGNED = Float32Array.from({ length: 60 }, (_, n) => (n === 59 ? NaN : n % 2 ? -n : n));
const SCORE = { id: "s", name: "effect", unit: "nats", values: sent("float32", SIGNED, [20, 3]), scale: { kind: "diverging", low: -60, high: 60 } };

test("effects are ranked by size, roles by value, and heads without a score come last without a rank", () => {
  const bySize = rankingOf(SCORE);
  assert.deepEqual(bySize.order.slice(0, 3), [[19, 1], [19, 0], [18, 2]]);
  assert.deepEqual([bySize.order.length, bySize.count, bySize.order[59]], [60, 59, [19, 2]]);
  assert.deepEqual([rankText(SCORE, [19, 1]), rankText(SCORE, [19, 0]), rankText(SCORE, [19, 2])], ["1 of 59", "2 of 59", ""]);
  const byValue = rankingOf({ ...SCORE, by: "value" });
  assert.deepEqual([byValue.order[0], byValue.order[58]], [[19, 1], [19, 0]]);
  bySize.order.forEach(([layer, head], rank) => assert.equal(bySize.ranks[3 * layer + head], rank));
});

test("groups of layers cover all layers once, and few layers do not fold", () => {
  assert.deepEqual(layerGroups(8), []);
  for (const layers of [9, 20, 30, 48, 80]) {
    const groups = layerGroups(layers);
    assert.ok(groups.length <= 8);
    assert.deepEqual(groups.flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, n) => first + n)), Array.from({ length: layers }, (_, n) => n));
    assert.equal(mapRows(layers, []).length, layers);
    assert.deepEqual(mapRows(layers, groups.map(([first]) => first)), groups);
  }
  assert.deepEqual(mapRows(20, [3]).slice(2, 5), [[2, 2], [3, 5], [6, 6]]);
});

test("a folded row shows the largest of each column, and sorted rows the largest first", () => {
  const rows = mapRows(20, [3]);
  const size = ([layer, head]) => Math.abs(SIGNED[3 * layer + head]);
  const plain = mapCells(SCORE, rows);
  assert.deepEqual(plain[0], [[0, 0], [0, 1], [0, 2]]);
  assert.deepEqual(plain[3], [[5, 0], [5, 1], [5, 2]]);
  const sorted = mapCells(SCORE, rows, true);
  for (const row of sorted.slice(0, -1)) for (let n = 1; n < row.length; n += 1) assert.ok(size(row[n - 1]) >= size(row[n]));
  assert.deepEqual(sorted[3], [[5, 2], [5, 1], [5, 0]]);
  assert.deepEqual(sorted.at(-1), [[19, 1], [19, 0], [19, 2]]);
});

test("the middle of every cell of the map picks its own head, folded, sorted or zoomed", () => {
  for (const sorted of [false, true]) {
    for (const folded of [[], [3], layerGroups(20).map(([first]) => first)]) {
      for (const zoom of [0, 2, 4]) {
        const plot = mapPlot({}, SCORE, { contrast: 0, truth: false, zoom, sorted, folded }, () => []);
        const geometry = plot.layout(360, measure, 400);
        const shown = mapCells(SCORE, mapRows(20, folded), sorted).flat();
        for (const head of shown) {
          const [x, y, width, height] = plot.box(geometry, head);
          assert.deepEqual(plot.pick(geometry, x + width / 2, y + height / 2), head);
          const { name, value } = plot.describe(head);
          assert.deepEqual([name, value], [`L${head[0]}H${head[1]}`, SIGNED[3 * head[0] + head[1]]]);
        }
        const hidden = [3, 0];
        assert.equal(plot.has(hidden), !sorted || shown.some(([layer, head]) => layer === 3 && head === 0));
        assert.deepEqual(plot.describe(hidden).value, SIGNED[9]);
      }
    }
  }
});

test("a label picks its row, and a cell none", () => {
  const plot = mapPlot({}, SCORE, { contrast: 0, truth: false, folded: [3] }, () => []);
  const geometry = plot.layout(360, measure, 400);
  const [x, y, , height] = plot.box(geometry, [4, 0]);
  assert.equal(plot.labelAt(geometry, x - 10, y + height / 2), 3);
  assert.equal(plot.labelAt(geometry, x + 5, y + height / 2), null);
  assert.equal(plot.labelAt(geometry, x - 10, 2), null);
});

test("a map of up to 5,120 heads fits its box at first, and its cells grow to the size of a number", () => {
  for (const [layers, heads] of [[4, 8], [30, 9], [48, 32], [80, 64]]) {
    const values = sent("float32", new Float32Array(layers * heads), [layers, heads]);
    const sizes = [0, 1, 2, 3, 4, 5].map((zoom) => {
      const plot = mapPlot({}, { ...SCORE, values }, { contrast: 0, truth: false, zoom }, () => []);
      const geometry = plot.layout(372, measure, 440);
      if (zoom === 0) assert.ok(geometry.height <= 440 && geometry.width <= 372, `${layers} x ${heads}`);
      return plot.box(geometry, [0, 0]).slice(2);
    });
    sizes.slice(1).forEach(([width, height], n) => assert.ok(width >= sizes[n][0] && height >= sizes[n][1]));
    assert.ok(Math.min(...sizes[0]) >= 4 && sizes[5][0] >= 32 && sizes[5][1] >= 14);
  }
});

test("a pattern fits the height of its box, and without a height the width", () => {
  const labels = Array.from({ length: 22 }, (_, n) => `token${n}`);
  const plot = matrixPlot({ ...MATRIX, rows: labels, columns: labels, row_axis: "query", column_axis: "key", values: sent("float32", new Float32Array(484), [22, 22]), pick: "pair" });
  assert.ok(plot.layout(370, measure, 300).height <= 300);
  const [free, limited] = [plot.layout(900, measure), plot.layout(900, measure, 400)];
  assert.ok(limited.height <= 400 && free.height > 700);
});

test("small patterns are those of a list, in its order, and only what is in range is drawn", () => {
  const store = patternStore({ patterns: sent("uint8", new Uint8Array(1536), [48, 32, 1, 1]) });
  const heads = [[40, 3], [0, 0], [17, 31]];
  const drawn = [];
  const options = { image: (...head) => { drawn.push(head); return {}; }, collected: () => [] };
  const few = thumbnailsPlot(store, { ...options, heads });
  const places = few.layout(400);
  heads.forEach((head) => {
    const [x, y, size] = few.box(places, head);
    assert.deepEqual(few.pick(places, x + size / 2, y + size / 2), head);
  });
  assert.deepEqual([few.has([17, 31]), few.has([17, 30])], [true, false]);
  const all = thumbnailsPlot(store, options);
  const geometry = all.layout(400);
  all.draw({ ...recorder(), drawImage: () => {} }, geometry, LIGHT, [1000, 1300]);
  assert.ok(drawn.length > 9 && drawn.length < 100, `${drawn.length}`);
  for (const head of drawn) {
    const [, y, size] = all.box(geometry, head);
    assert.ok(y + size >= 1000 && y - 14 <= 1300);
  }
});

test("the cells of a text are the same by query and by key, in numbers and in bytes", () => {
  const text = {
    number: 0, source: "text 0", tokens: ["a", "b", "c"],
    count: sent("uint8", Uint8Array.from([1, 2, 1])), key: sent("uint8", Uint8Array.from([0, 0, 1, 1])),
  };
  const weights = [1, 0.2, 0.8, 0.6];
  for (const weight of [sent("float32", Float32Array.from(weights)), sent("uint8", Uint8Array.from(weights.map((w) => 255 * w)))]) {
    const cells = textCells({ ...text, weight });
    const rounded = (list) => list.map(([n, w]) => [n, Number(w.toFixed(4))]);
    assert.deepEqual(cells.keys.map(rounded), [[[0, 1]], [[1, 0.8], [0, 0.2]], [[1, 0.6]]]);
    assert.deepEqual(cells.queries.map(rounded), [[[0, 1], [1, 0.2]], [[1, 0.8], [2, 0.6]], []]);
    assert.deepEqual(cells.received.map((sum) => Number(sum.toFixed(4))), [1.2, 1.4, 0]);
    assert.deepEqual(cells.given.map((sum) => Number(sum.toFixed(4))), [0, 0.8, 0.6]);
    assert.equal(weightAt(cells.keys[2], 0), undefined);
  }
  const crossing = textCells({ ...text, keys: ["x", "y"], weight: weights });
  assert.equal(crossing.queries.length, 2);
});
