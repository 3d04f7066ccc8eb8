// An invisible Streamlit component with the code and the style of the widget, which are sent once a
// visit: the component that is called at every rerun (mount_streamlit.js) takes them from here.

/** @import { Component, Host, Payload } from "./types.d.ts" */
import { element } from "./elements.js";
import { mountViews } from "./mount.js";

/** @param {Component<{ style: string }>} component */
export default function (component) {
  const { data: { style } } = component;
  globalThis.interpParts ||= { held: new Map(), waiting: new Set() };
  const parts = globalThis.interpParts;
  if (parts.mountViews) return;
  parts.mountViews = (/** @type {HTMLElement} */ parent, /** @type {Payload} */ payload, /** @type {Host} */ host) => {
    parent.append(element("style", {}, style));
    return mountViews(parent, payload, host);
  };
  for (const look of [...parts.waiting]) look();
}
