// A Streamlit component that keeps the file of a story in the browser's tab, so that a reload of the
// page restores it, and that reads a file that a user chooses.

/** @import { Component } from "./types.d.ts" */
import { unlessCancelled } from "./calls.js";
import { themeOf } from "./colours.js";
import { button, element } from "./elements.js";

/** By the element: its state between calls. */
const opened = new WeakMap();
const STORED = "interp-story";
let count = 0;

/** @typedef {{ text: string, begun: boolean, most: number }} Story */

/** @param {Component<Story>} component */
export default function (component) {
  return unlessCancelled(component.parentElement, () => store(component), () => {});
}

/** @param {Component<Story>} component */
function store({ parentElement, data: { text, begun, most }, setTriggerValue }) {
  const own = opened.get(parentElement) || mounted(parentElement);
  themeOf(own.root);
  opened.set(parentElement, own);
  own.most = most;
  own.send = (/** @type {object} */ file) => {
    count += 1;
    setTriggerValue("opened", { ...file, id: `${Date.now()}-${count}` });
  };
  const stored = sessionStorage.getItem(STORED);
  if (text) sessionStorage.setItem(STORED, text);
  else if (begun) sessionStorage.removeItem(STORED);
  else if (stored && !own.restored) own.send({ text: stored, restored: true });
  own.restored = true;
}

/** The button, in an element; returns its state.
 *  @type {(parent: HTMLElement) => { root: HTMLElement, most: number, restored: boolean, send(file: object): void }} */
function mounted(parent) {
  const root = element("div", { class: "w-root" });
  const own = { root, most: 0, restored: false, send: () => {} };
  const field = element("input", {
    type: "file", accept: ".json,application/json", class: "w-unseen", tabindex: "-1", "aria-label": "story file",
    change: async () => {
      const file = field.files?.[0];
      if (!file) return;
      const text = file.size > 4 * own.most ? "" : await file.text();
      /** @type {(sent: object) => void} */ (own.send)({ text, size: file.size, restored: false });
      field.value = "";
    },
  });
  root.append(field, button(
    "Open a story file…", "Read a story from a JSON file that was saved here", () => field.click(),
    { class: "w-button w-file" },
  ));
  parent.append(root);
  return own;
}
