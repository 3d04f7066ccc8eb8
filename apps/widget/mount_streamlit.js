// The widget as a Streamlit component (API v2), which is called at every rerun with its data.
// Long arrays are sent apart (mount_parts.js); data that refers to them waits until they arrive.
// If new data arrives before the script has loaded, Streamlit may clean up a call after the next
// call, or the latest call of an element that stays on the page. So the views are removed only when
// their element has left the page.

/** @import { Component, Picked } from "./types.d.ts" */
import { mountViews } from "./mount.js";

const mounts = new WeakMap();
globalThis.interpParts ||= { held: new Map(), waiting: new Set() };
const parts = globalThis.interpParts;

/** The data with its long arrays inserted; undefined while one is missing.
 *  @type {(value: any) => any} */
function whole(value) {
  if (value === null || typeof value !== "object") return value;
  if (typeof value.part === "string") return parts.held.get(value.part)?.part;
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
  const { parentElement, data, setTriggerValue } = component;
  const own = mounts.get(parentElement) || { host: { explores: data.explores !== false }, views: null, look: null };
  const call = {};
  own.call = call;
  mounts.set(parentElement, own);
  own.host.report = (/** @type {Picked} */ event) => setTriggerValue("picked", event);
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
  return () => setTimeout(() => {
    if (parentElement.isConnected || mounts.get(parentElement) !== own || own.call !== call) return;
    mounts.delete(parentElement);
    parts.waiting.delete(own.look);
    if (own.views) own.views.dispose();
  });
}
