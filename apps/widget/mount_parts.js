// An invisible Streamlit component that holds a long array for other mounts: the array is sent once,
// and the views that refer to it are drawn when it has arrived. Several mounts may hold the same
// array, which goes with the last of them.

/** @import { Component } from "./types.d.ts" */
import { unlessCancelled } from "./calls.js";

const names = new WeakMap(); // of the array that an element holds
globalThis.interpParts ||= { held: new Map(), waiting: new Set() };
const parts = globalThis.interpParts;

/** @param {Component<{ name: string, part: unknown }>} component */
export default function (component) {
  const { parentElement, data } = component;
  return unlessCancelled(parentElement, () => hold(parentElement, data), () => release(parentElement));
}

/** @type {(element: HTMLElement, data: { name: string, part: unknown }) => void} */
function hold(element, { name, part }) {
  if (names.get(element) === name) return;
  release(element);
  const held = parts.held.get(name) || { part, mounts: 0 };
  held.mounts += 1;
  parts.held.set(name, held);
  names.set(element, name);
  for (const look of [...parts.waiting]) look();
}

/** @type {(element: HTMLElement) => void} */
function release(element) {
  const name = names.get(element);
  const held = parts.held.get(name);
  names.delete(element);
  if (!held) return;
  held.mounts -= 1;
  if (held.mounts === 0) parts.held.delete(name);
}
