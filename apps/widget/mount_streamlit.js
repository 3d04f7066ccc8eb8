// The widget as a Streamlit component (API v2), which is called at every rerun with its data.
// The code that draws views (mount_code.js) and long arrays (mount_parts.js) are sent apart; data
// waits until they have arrived.

/** @import { Component, Picked } from "./types.d.ts" */
import { unlessCancelled } from "./calls.js";

const mounts = new WeakMap();
globalThis.interpParts ||= { held: new Map(), waiting: new Set() };
const parts = globalThis.interpParts;

/** The data with what was sent apart inserted; undefined while something is missing.
 *  @type {(value: any) => any} */
function whole(value) {
  if (value === null || typeof value !== "object" || typeof value.data === "string") return value;
  if (typeof value.part === "string") return whole(parts.held.get(value.part)?.part);
  /** @type {any} */
  const found = Array.isArray(value) ? [] : {};
  for (const [name, own] of Object.entries(value)) {
    found[name] = whole(own);
    if (found[name] === undefined) return undefined;
  }
  return found;
}

/** @param {Component<{ explores?: boolean }>} component */
export default function (component) {
  const { parentElement } = component;
  return unlessCancelled(parentElement, () => show(component), () => remove(parentElement));
}

/** Draws the data of a call as soon as all of it has arrived.
 *  @param {Component<{ explores?: boolean }>} component */
function show({ parentElement, data, setTriggerValue }) {
  const own = mounts.get(parentElement) || { host: { explores: data.explores !== false }, views: null, look: null };
  mounts.set(parentElement, own);
  own.host.report = (/** @type {Picked} */ event) => setTriggerValue("picked", event);
  parts.waiting.delete(own.look);
  own.look = () => {
    const payload = whole(data);
    const { mountViews } = parts;
    if (payload === undefined || !mountViews) {
      parts.waiting.add(own.look);
      return;
    }
    parts.waiting.delete(own.look);
    if (own.views) own.views.update(payload);
    else own.views = mountViews(parentElement, payload, own.host);
  };
  own.look();
}

/** @type {(element: HTMLElement) => void} */
function remove(element) {
  const own = mounts.get(element);
  if (!own) return;
  mounts.delete(element);
  parts.waiting.delete(own.look);
  if (own.views) own.views.dispose();
}
