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
const { default: views } = await import("./mount_streamlit.js");
const { default: part } = await import("./mount_parts.js");
const parts = globalThis.interpParts;

const mounted = (element, data) => views({ parentElement: element, data, setTriggerValue() {} });
const mountedPart = (element, name) => part({ parentElement: element, data: { name, part: { of: name } } });

const later = () => new Promise((resolve) => { setTimeout(resolve, 5); });

test("views go with the last call of an element that has left the page", async () => {
  const element = { isConnected: true };
  const first = mounted(element, { n: 1 });
  const second = mounted(element, { n: 2 });
  first();
  second();
  await later();
  assert.deepEqual(element.drawn, { n: 2 });
  element.isConnected = false;
  first();
  await later();
  assert.deepEqual(element.drawn, { n: 2 });
  second();
  second();
  await later();
  assert.equal(element.drawn, null);
  assert.deepEqual(disposed, [element]);
});

test("a clean-up that comes after the next call leaves its part", () => {
  const element = {};
  const first = mountedPart(element, "a");
  const second = mountedPart(element, "a");
  first();
  assert.ok(parts.held.has("a"));
  second();
  assert.equal(parts.held.size, 0);
});

test("views wait for their parts, and a part goes with its last mount", () => {
  const [place, element, otherElement] = [{}, {}, {}];
  const away = mounted(place, { views: [{ part: "a" }, null] });
  assert.equal(place.drawn, undefined);
  const [release, again] = [mountedPart(element, "a"), mountedPart(otherElement, "a")];
  assert.deepEqual(place.drawn, { views: [{ of: "a" }, null] });
  release();
  assert.ok(parts.held.has("a"));
  const next = mountedPart(otherElement, "b");
  assert.deepEqual([...parts.held.keys()], ["b"]);
  again();
  assert.deepEqual([...parts.held.keys()], ["b"]);
  next();
  away();
  assert.equal(parts.held.size, 0);
  assert.equal(parts.waiting.size, 0);
});
