// The components of Streamlit: called again and again for one element, and cleaned up in any order.
// Their modules are imported as they are; the one that draws views is given here.

import assert from "node:assert";
import { test } from "node:test";

const disposed = [];
globalThis.mountViews = (parent, payload) => {
  parent.drawn = payload;
  return {
    update: (next) => { parent.drawn = next; },
    dispose: () => { parent.drawn = null; disposed.push(parent); },
  };
};
globalThis.element = (tag, _attributes, text) => ({ tag, text });
const { default: views } = await import("./mount_streamlit.js");
const { default: code } = await import("./mount_code.js");
const { default: part } = await import("./mount_parts.js");
const parts = globalThis.interpParts;

const mounted = (element, data) => views({ parentElement: element, data, setTriggerValue() {} });
const mountedPart = (element, name) => part({ parentElement: element, data: { name, part: { of: name } } });
const later = () => new Promise((resolve) => { setTimeout(resolve, 5); });

test("views wait for the code that draws them, with its style; it is taken once", async () => {
  const styles = [];
  const element = { append: (made) => styles.push(made) };
  mounted(element, { n: 1 });
  await later();
  assert.equal(element.drawn, undefined);
  code({ data: { style: "a" } });
  assert.deepEqual(element.drawn, { n: 1 });
  code({ data: { style: "b" } });
  mounted(element, { n: 2 });
  await later();
  assert.deepEqual(element.drawn, { n: 2 });
  assert.deepEqual(styles, [{ tag: "style", text: "a" }]);
});

test("a call that is cleaned up at once has older data, even if it is the last one", async () => {
  const [element, other] = [{ isConnected: true, append() {} }, { isConnected: true }];
  mounted(element, { n: 2 });
  mounted(element, { n: 1 })();
  mountedPart(other, "new");
  mountedPart(other, "old")();
  await later();
  assert.deepEqual(element.drawn, { n: 2 });
  assert.deepEqual([...parts.held.keys()], ["new"]);
  mounted(element, { n: 3 })();
  mounted(element, { n: 4 });
  mountedPart(other, "old")();
  mountedPart(other, "newer");
  await later();
  assert.deepEqual(element.drawn, { n: 4 });
  assert.deepEqual([...parts.held.keys()], ["newer"]);
  other.isConnected = false;
  mountedPart(other, "newer")();
  await later();
  assert.equal(parts.held.size, 0);
});

test("views stay while their element is on the page, and are removed once", async () => {
  const element = { isConnected: true, append() {} };
  const first = mounted(element, { n: 1 });
  const second = mounted(element, { n: 2 });
  await later();
  first();
  second();
  await later();
  assert.deepEqual(element.drawn, { n: 2 });
  element.isConnected = false;
  second();
  first();
  await later();
  assert.equal(element.drawn, null);
  assert.deepEqual(disposed, [element]);
});

test("a part stays while its element is on the page, and is released once", async () => {
  const [element, otherElement] = [{ isConnected: true }, { isConnected: true }];
  const first = mountedPart(element, "a");
  const second = mountedPart(element, "a");
  const other = mountedPart(otherElement, "a");
  await later();
  first();
  second();
  await later();
  assert.ok(parts.held.has("a"));
  element.isConnected = false;
  second();
  first();
  await later();
  assert.ok(parts.held.has("a"));
  otherElement.isConnected = false;
  other();
  await later();
  assert.equal(parts.held.size, 0);
});

test("a part may refer to other parts", async () => {
  const [place, element, otherElement] = [{ append() {} }, {}, {}];
  const partOf = (own, name, value) => part({ parentElement: own, data: { name, part: value } });
  const away = mounted(place, { views: [{ scores: { part: "scores" } }] });
  const first = partOf(element, "scores", [{ values: { part: "array" } }]);
  await later();
  assert.equal(place.drawn, undefined);
  const array = { dtype: "float32", shape: [1], data: "AACAPw==" };
  const second = partOf(otherElement, "array", array);
  await later();
  assert.deepEqual(place.drawn, { views: [{ scores: [{ values: array }] }] });
  for (const release of [away, first, second]) release();
  await later();
  assert.equal(parts.held.size, 0);
});

test("views wait for their parts, and a part goes with its last mount", async () => {
  const [place, element, otherElement] = [{ append() {} }, {}, {}];
  const away = mounted(place, { views: [{ part: "a" }, null] });
  await later();
  assert.equal(place.drawn, undefined);
  const [release, again] = [mountedPart(element, "a"), mountedPart(otherElement, "a")];
  await later();
  assert.deepEqual(place.drawn, { views: [{ of: "a" }, null] });
  release();
  await later();
  assert.ok(parts.held.has("a"));
  const next = mountedPart(otherElement, "b");
  await later();
  assert.deepEqual([...parts.held.keys()], ["b"]);
  again();
  next();
  away();
  await later();
  assert.equal(parts.held.size, 0);
  assert.equal(parts.waiting.size, 0);
});
