// A − B of two views: the numbers, what stays an estimate, and the reasons why there is none.

import assert from "node:assert/strict";
import { test } from "node:test";

import { dataTablesOf } from "../../../apps/widget/data_tables.js";
import { differenceView } from "../../../apps/widget/difference.js";
import { patternStore, pooled, weightScale } from "../../../apps/widget/patterns.js";

const difference = (a, b, more = {}) => differenceView({ kind: "difference", id: "x", a, b, ...more });
const values = (view) => Array.from(view.values.data || view.values);
const MATRIX = {
  kind: "matrix", id: "x", title: "map", rows: ["a", "b"], columns: ["c"], row_axis: "", column_axis: "",
  values: [[3], [null]], scale: { kind: "sequential", low: 0, high: 3 }, unit: "nats", pick: "head",
};
const bytes = (shape, numbers) => ({ shape, data: Uint8Array.from(numbers) });

test("matrices are subtracted on a scale around zero, and the title says which", () => {
  const other = { ...MATRIX, values: [[5], [1]], rows: ["a", "B"], title: "map 2" };
  const made = difference(MATRIX, other, { run: "A: plain; B: edited" });
  assert.deepEqual(values(made), [-2, NaN]);
  assert.deepEqual(made.scale, { kind: "diverging", low: -2, high: 2 });
  assert.deepEqual(made.rows, ["a", "b | B"]);
  assert.deepEqual([made.title, made.run, made.unit], ["A − B, where A is “map” and B is “map 2”", "A: plain; B: edited", "nats"]);
  assert.deepEqual(values(difference(other, MATRIX)), [2, NaN]);
  assert.equal(difference(MATRIX, { ...other, title: "map" }).title, "A − B: map");
});

test("an estimate on either side stays marked, in the table too", () => {
  const estimated = { ...MATRIX, estimated: [[0], [1]] };
  for (const [a, b] of [[estimated, MATRIX], [MATRIX, estimated]]) {
    assert.deepEqual(Array.from(difference(a, b).estimated.data), [0, 1]);
  }
  assert.equal(difference(MATRIX, MATRIX).estimated, undefined);
});

test("what can't be subtracted has a reason", () => {
  const wide = { ...MATRIX, values: [[1, 2]], rows: ["a"], columns: ["c", "d"] };
  const strip = { kind: "tokens", id: "x", title: "t", tokens: ["a", "b"], values: [1, 2] };
  for (const [a, b, reason] of [
    [MATRIX, wide, /A has 2 × 1 cells, B has 1 × 2/],
    [MATRIX, { ...MATRIX, unit: "logits" }, /units differ, nats and logits/],
    [MATRIX, null, /only A/], [null, MATRIX, /only B/],
    [MATRIX, { ...strip, unit: "nats" }, /different kinds/],
    [strip, { ...strip, tokens: ["a"], values: [1] }, /A has 2 tokens, B has 1/],
    [strip, { ...strip, values: undefined }, /no numbers/],
    [{ kind: "table", id: "x", title: "t" }, { kind: "table", id: "x", title: "t" }, /tables/],
    [{ kind: "network", id: "x", title: "t" }, { kind: "network", id: "x", title: "t" }, /graphs/],
  ]) {
    const made = difference(a, b);
    assert.equal(made.kind, "none");
    assert.match(made.reason, reason);
  }
});

test("cells that name different things are hatched", () => {
  const [a, b] = [["x"], ["y"]].map(([text]) => ({ ...MATRIX, values: [[3], [1]], texts: [[text], ["z"]] }));
  const made = difference(a, b);
  assert.deepEqual(values(made), [NaN, 0]);
  assert.deepEqual(made.texts, [["x | y"], ["z"]]);
});

test("tokens are subtracted by position", () => {
  const strip = { kind: "tokens", id: "x", title: "t", tokens: ["a", "b"], ids: [1, 2], values: [1, 2], unit: "nats" };
  const made = difference({ ...strip, values: [4, null] }, { ...strip, tokens: ["a", "c"] });
  assert.deepEqual(values(made), [3, NaN]);
  assert.deepEqual([made.tokens, made.aligned, made.ids], [["a", "b"], ["a", "c"], undefined]);
  assert.equal(difference(strip, strip).aligned, undefined);
});

test("predictions are subtracted by token: every row has the probabilities of both", () => {
  const view = (labels, ids, all, of = "v") => ({
    kind: "bars", id: "x", title: "top", labels, values: ids.map((id) => all[id]), every: { of, ids, values: all },
  });
  const a = view(["Mary", "John"], [2, 0], [0.25, 0.125, 0.5, 0.125]);
  const b = view(["Paris", "Mary"], [3, 2], [0, 0.125, 0.25, 0.625]);
  const made = difference(a, b);
  assert.deepEqual(made.labels, ["Paris", "Mary", "John"]);
  assert.deepEqual(values(made), [-0.5, 0.25, 0.25]);
  const [table] = dataTablesOf(made);
  assert.deepEqual(table.rows, [["Paris", -0.5], ["Mary", 0.25], ["John", 0.25]]);
  const named = difference(a, view(["Paris", "Mary"], [3, 2], [0, 0.125, 0.25, 0.625], "other"));
  assert.deepEqual([named.labels, values(named)], [["Mary"], [0.25]]);
  assert.match(named.note, /Only in A, so not subtracted: John\. Only in B, so not subtracted: Paris\./);
});

test("bars with a second quantity subtract both, without intervals", () => {
  const view = (first, second) => ({
    kind: "bars", id: "x", title: "t", labels: ["p", "q"], values: first, low: first, high: first,
    second: { title: "ablation", values: second },
  });
  const made = difference(view([1, 2], [3, 4]), view([0, 5], [1, 1]));
  assert.deepEqual([made.labels, values(made), made.second.values], [["q", "p"], [-3, 1], [3, 2]]);
  assert.equal(made.low, undefined);
  assert.match(difference(view([1, 2], [3, 4]), { ...view([1, 2], [3, 4]), second: undefined }).reason, /quantities/);
});

test("curves are subtracted over equal points", () => {
  const view = (name, x, y) => ({ kind: "curves", id: "x", title: "t", axis: "layer", panels: [{ title: "rank", unit: "", curves: [{ name, x, y }] }] });
  assert.deepEqual(difference(view("a", [0, 1], [5, 3]), view("a", [0, 1], [1, 1])).panels[0].curves[0].y, [4, 2]);
  assert.match(difference(view("a", [0, 1], [5, 3]), view("a", [0, 2], [1, 1])).reason, /no curve/);
});

const heads = (patterns, scores, more = {}) => ({
  kind: "heads", id: "x", title: "attention", tokens: ["a", "b"], patterns: [bytes([1, 2, 2], patterns)],
  scores: [{ id: "s", name: "effect", unit: "nats", values: [[scores]] }, ...(more.scores || [])], ...more.fields,
});

test("patterns and scores of heads are subtracted; weights are signed", () => {
  const [a, b] = [heads([255, 0, 51, 204], 2), heads([255, 0, 204, 51], 0.5)];
  b.scores[0].estimated = [[1]];
  const made = difference(a, b);
  assert.deepEqual([values(made.scores[0]), Array.from(made.scores[0].estimated.data)], [[1.5], [1]]);
  const store = patternStore(made);
  assert.deepEqual(Array.from(store.of(0, 0).data), [0, 0, -153, 153]);
  assert.deepEqual([store.most, store.thumbnail(0, 0).data[2]], [0.6, -153]);
  assert.deepEqual(weightScale([], { difference: store.most }), { kind: "diverging", low: -0.6, high: 0.6, root: undefined });
  assert.equal(patternStore(a).most, null);
  assert.deepEqual(Array.from(patternStore(a).of(0, 0).data), [255, 0, 51, 204]);
  assert.equal(patternStore(difference(a, a)).most, 1);
});

test("a pattern of differences keeps the one of largest size where it is reduced", () => {
  assert.deepEqual(Array.from(pooled({ queries: 2, keys: 2, data: Int16Array.of(1, -9, 3, 2) }, 1).data), [-9]);
});

test("of prompts of other lengths, the chosen score alone is subtracted", () => {
  const longer = { ...heads([255], 1), tokens: ["a"], patterns: [bytes([1, 1, 1], [255])] };
  const made = difference(heads([255, 0, 51, 204], 2), longer, { score: "s" });
  assert.deepEqual([made.kind, values(made)], ["matrix", [1]]);
  assert.match(made.note, /patterns have different sizes, 2 × 2 and 1 × 1/);
});
