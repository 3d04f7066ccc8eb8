// An invisible Streamlit component that holds a long array for other mounts: the array is sent once,
// and the views that refer to it are drawn when it has arrived. Several mounts may hold the same
// array. As in mount_streamlit.js, only the clean-up of the latest call releases it, and only if its
// element has left the page; else views that refer to it would wait for ever.

/** @import { Component } from "./types.d.ts" */

const owned = new WeakMap(); // by element: the name of its array, and its latest call

/** @param {Component<{ name: string, part: unknown }>} component */
export default function (component) {
  const { parentElement, data: { name, part } } = component;
  globalThis.interpParts ||= { held: new Map(), waiting: new Set() };
  const parts = globalThis.interpParts;
  const release = () => {
    const own = owned.get(parentElement);
    if (!own) return;
    owned.delete(parentElement);
    const held = parts.held.get(own.name);
    if (!held) return;
    held.mounts -= 1;
    if (held.mounts === 0) parts.held.delete(own.name);
  };
  const call = {};
  if (owned.get(parentElement)?.name !== name) {
    release();
    const held = parts.held.get(name) || { part, mounts: 0 };
    held.mounts += 1;
    parts.held.set(name, held);
  }
  owned.set(parentElement, { name, call });
  for (const look of [...parts.waiting]) look();
  return () => setTimeout(() => {
    if (!parentElement.isConnected && owned.get(parentElement)?.call === call) release();
  });
}
