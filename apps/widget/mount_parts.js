"use strict";
// A long array of other mounts, as a component of Streamlit without a face: it is sent once, and the
// views that name it are drawn when it is here.

export default function (component) {
  const { name, part } = component.data;
  const parts = (globalThis.interpParts ||= { held: new Map(), waiting: new Set() });
  parts.held.set(name, part);
  for (const look of [...parts.waiting]) look();
  return () => parts.held.delete(name);
}
