"use strict";
// The widget as a component of Streamlit (API v2): called at every rerun with the data of that run.
// Long arrays come by themselves (mount_parts.js); data that names them waits until they are here.

const mounts = new WeakMap();
const parts = (globalThis.interpParts ||= { held: new Map(), waiting: new Set() });

/** The data with its parts in place; null while one is missing. */
function whole(value) {
  if (Array.isArray(value)) {
    const each = value.map(whole);
    return each.includes(null) && !value.includes(null) ? null : each;
  }
  if (value === null || typeof value !== "object") return value;
  if (typeof value.part === "string") return parts.held.get(value.part)?.part || null;
  const found = {};
  for (const [name, own] of Object.entries(value)) {
    found[name] = whole(own);
    if (found[name] === null && own !== null) return null;
  }
  return found;
}

export default function (component) {
  const { parentElement, data, setTriggerValue } = component;
  const own = mounts.get(parentElement) || { host: {}, views: null, look: null };
  mounts.set(parentElement, own);
  own.host.report = (event) => setTriggerValue("picked", event);
  parts.waiting.delete(own.look);
  own.look = () => {
    const payload = whole(data);
    if (payload === null) {
      parts.waiting.add(own.look);
      return;
    }
    parts.waiting.delete(own.look);
    if (own.views) own.views.update(payload);
    else own.views = mountViews(parentElement, payload, own.host);
  };
  own.look();
  return () => {
    if (mounts.get(parentElement) !== own) return;
    mounts.delete(parentElement);
    parts.waiting.delete(own.look);
    if (own.views) own.views.dispose();
  };
}
