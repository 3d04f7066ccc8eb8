// Elements of the page. Text is always inserted as text, never as HTML.

/** @import { Attributes } from "./types.d.ts" */

/**
 * An element with attributes (functions become event listeners) and children, elements or text.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...(Element | string | null | undefined)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, /** @type {EventListener} */ (value));
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Attributes of an element that scrolls, so that the keyboard can scroll it. */
export const REGION = { tabindex: "0", role: "region" };

/** The element with the focus, in the document or the shadow root of an element.
 *  @type {(root: Element) => HTMLElement | null} */
export function focusedBeside(root) {
  const { activeElement } = /** @type {Document | ShadowRoot} */ (root.getRootNode());
  return /** @type {HTMLElement | null} */ (activeElement);
}

/** A button.
 *  @type {(
 *    text: string, title: string, onClick: (event: MouseEvent) => void, more?: Attributes,
 *  ) => HTMLButtonElement} */
export function button(text, title, onClick, more = {}) {
  return element("button", { type: "button", class: "w-button", title, click: onClick, ...more }, text);
}

/** A switch with two states.
 *  @type {(
 *    text: string, on: boolean, onChange: (on: boolean) => void, title?: string,
 *  ) => { element: HTMLElement, set(on: boolean): void }} */
export function toggle(text, on, onChange, title = "") {
  const box = element("input", { type: "checkbox", change: () => onChange(box.checked) });
  box.checked = on;
  const made = element("label", { class: "w-toggle", title }, box, text);
  return { element: made, set: (value) => { box.checked = value; } };
}

/**
 * A group of buttons, one of which is pressed; options: [[value, text], …].
 * @template Value
 * @param {string} name
 * @param {[Value, string][]} options
 * @param {Value} chosen
 * @param {(value: Value) => void} onChange
 */
export function choice(name, options, chosen, onChange) {
  const buttons = options.map(([value, text]) => button(text, "", () => { set(value); onChange(value); }));
  const made = element("span", { class: "w-choice", role: "group", "aria-label": name }, ...buttons);
  /** @param {Value} value */
  function set(value) {
    buttons.forEach((own, n) => own.setAttribute("aria-pressed", String(options[n][0] === value)));
  }
  set(chosen);
  return { element: made, set };
}

/** A drop-down list; options: [[value, text], …].
 *  @type {(
 *    name: string, options: string[][], chosen: string, onChange: (value: string) => void,
 *  ) => HTMLSelectElement} */
export function select(name, options, chosen, onChange) {
  const made = element("select", {
    class: "w-select", "aria-label": name, change: () => onChange(made.value),
  });
  for (const [value, text] of options) made.append(element("option", { value }, text));
  made.value = chosen;
  return made;
}

/** Saves a file.
 *  @type {(name: string, parts: string | Blob, type?: string) => void} */
export function save(name, parts, type) {
  const url = URL.createObjectURL(parts instanceof Blob ? parts : new Blob([parts], { type }));
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Copies a text; uses a text field if the browser does not allow access to the clipboard.
 *  @type {(text: string) => Promise<void>} */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = element("textarea", { class: "w-unseen" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}
