"use strict";
// A long array of other mounts, as a component of Streamlit without a face: it is sent once, and the
// views that name it are drawn when it is here. Several mounts may hold the same.

const owned = new WeakMap();

export default function (component) {
  const { parentElement, data: { name, part } } = component;
  const parts = (globalThis.interpParts ||= { held: new Map(), waiting: new Set() });
  const release = () => {
    const own = owned.get(parentElement);
    if (!own) return;
    owned.delete(parentElement);
    const held = parts.held.get(own);
    held.mounts -= 1;
    if (held.mounts === 0) parts.held.delete(own);
  };
  if (owned.get(parentElement) !== name) {
    release();
    const held = parts.held.get(name) || { part, mounts: 0 };
    held.mounts += 1;
    parts.held.set(name, held);
    owned.set(parentElement, name);
    for (const look of [...parts.waiting]) look();
  }
  return release;
}
