// The widget as a Streamlit component (API v2), which is called at every rerun with its data.
// The code that draws views (mount_code.js) and long arrays (mount_parts.js) are sent apart; data
// waits until they have arrived.
// If new data arrives before the script has loaded, Streamlit may clean up a call after the next
// call, or the latest call of an element that stays on the page. So the views are removed only when
// their element has left the page.

/** @import { Component, Picked } from "./types.d.ts" */

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
  const { parentElement, data, setTriggerValue } = component;
  const own = mounts.get(parentElement) || { host: { explores: data.explores !== false }, views: null, look: null };
  const call = {};
  own.call = call;
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
  return () => setTimeout(() => {
    if (parentElement.isConnected || mounts.get(parentElement) !== own || own.call !== call) return;
    mounts.delete(parentElement);
    parts.waiting.delete(own.look);
    if (own.views) own.views.dispose();
  });
}
