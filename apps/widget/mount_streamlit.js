"use strict";
// The widget as a component of Streamlit (API v2): called at every rerun with the data of that run.
// Long arrays come by themselves (mount_parts.js); data that names them waits until they are here.
// Streamlit may clean a call up after the next one, when data follows data before the script has
// loaded: only the clean-up of the latest call takes the views away.

const mounts = new WeakMap();
const parts = (globalThis.interpParts ||= { held: new Map(), waiting: new Set() });

/** The data with its parts in place; undefined while one is missing. */
function whole(value) {
  if (value === null || typeof value !== "object") return value;
  if (typeof value.part === "string") return parts.held.get(value.part)?.part;
  const found = Array.isArray(value) ? [] : {};
  for (const [name, own] of Object.entries(value)) {
    found[name] = whole(own);
    if (found[name] === undefined) return undefined;
  }
  return found;
}

export default function (component) {
  const { parentElement, data, setTriggerValue } = component;
  const own = mounts.get(parentElement) || { host: {}, views: null, look: null };
  const call = {};
  own.call = call;
  mounts.set(parentElement, own);
  own.host.report = (event) => setTriggerValue("picked", event);
  parts.waiting.delete(own.look);
  own.look = () => {
    const payload = whole(data);
    if (payload === undefined) {
      parts.waiting.add(own.look);
      return;
    }
    parts.waiting.delete(own.look);
    if (own.views) own.views.update(payload);
    else own.views = mountViews(parentElement, payload, own.host);
  };
  own.look();
  return () => {
    if (mounts.get(parentElement) !== own || own.call !== call) return;
    mounts.delete(parentElement);
    parts.waiting.delete(own.look);
    if (own.views) own.views.dispose();
  };
}
