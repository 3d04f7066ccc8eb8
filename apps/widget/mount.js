// A mount: views that share a selection. An update with other views keeps those that are equal.

/**
 * @import {
 *   Controller, Description, Host, Meta, Mount, MountedViews, Payload, Selection, Theme, View,
 * } from "./types.d.ts"
 */
import { themeOf } from "./colours.js";
import { clamp, headName, same, withUnit } from "./data.js";
import { differenceView } from "./difference.js";
import { button, element, focusedBeside, save } from "./elements.js";
import { figureFiles } from "./frame.js";
import { scanView } from "./head_scan.js";
import { textsView } from "./head_texts.js";
import { headsView } from "./heads.js";
import { PLOTS, emptyView, plottedView } from "./plotted.js";
import { tokensView } from "./strip.js";
import { tableView } from "./table.js";
import { zipped } from "./zip.js";

const REPORT_AFTER = 150;
const KEYS = [
  ["arrows", "move to another cell"], [
    "Shift + arrows", "move to another head",
  ], ["[  ]", "previous, next layer"], ["Enter", "choose the cell"],
  [
    "s or Shift-click", "add a head to the set, or remove it",
  ], ["b", "hide or show BOS"], ["/", "search for a token"], ["p", "pin the view, to compare"],
  ["+  −", "larger, smaller cells of the map"], ["f", "fold or open the head's group of layers"],
  ["c", "copy the number"], ["t", "show the numbers as a table"], ["Escape", "clear the selection"],
];
/** @type {Record<string, (mount: Mount, view: any) => Controller>} */
const VIEWS = { tokens: tokensView, table: tableView, heads: headsView, texts: textsView, scan: scanView, none: emptyView };
/** @type {Selection} */
const NO_SELECTION = { head: null, heads: [], query: null, key: null, position: null };

/** @typedef {{ view: View, controller: Controller }} Mounted */

/** Mounts views in a parent; host.report(event) receives clicks. Returns {update, dispose}.
 *  @type {(parent: HTMLElement, payload: Payload, host: Host) => MountedViews} */
export function mountViews(parent, payload, host) {
  const live = element("div", { class: "w-unseen", role: "status", "aria-live": "polite" });
  const tip = element("div", { class: "w-tip", role: "presentation", hidden: true });
  const list = element("div", { class: "w-list" });
  const whole = button("Save all figures as SVG (zip)", "Vector graphics of all figures on this page", saveFigures, { class: "w-button w-file" });
  const root = element("div", { class: "w-root" }, whole, list, live, tip);
  parent.append(root);
  /** @type {Map<string, Mounted>} */
  const controllers = new Map();
  /** @type {Map<string, any>} */
  const states = new Map();
  /** @type {Set<() => void>} */
  const waiting = new Set();
  let [selection, meta, printing] = [{ ...NO_SELECTION }, /** @type {Meta} */ ({}), false];
  /** @type {Selection | null} */
  let given = null;
  /** @type {Theme | null} */
  let theme = null;
  const identity = Math.random().toString(36).slice(2); // of this mount, so that each report is unique
  /** The values that were chosen here, by field.
   *  @type {Record<string, unknown[]>} */
  const pending = {};
  /** @type {number | undefined} */
  let timer;
  let [counter, figures] = [0, ""];
  /** @type {NonNullable<Payload["initially"]>} */
  let initially = {};

  /** @type {Mount} */
  const mount = {
    root,
    selection: () => selection,
    meta: () => meta,
    theme: () => (theme ||= themeOf(root)),
    ratio: () => (printing ? 3 : Math.max(1, window.devicePixelRatio || 1)),
    announce: (text) => { live.textContent = text; },
    tip: (own, x = 0, y = 0) => showTip(root, tip, own, x, y),
    help: () => showHelp(root),
    search: (box, tokens, onFound) => searchTokens(mount, box, tokens, onFound),
    stateOf: (id, initial) => {
      if (!states.has(id)) states.set(id, { ...initial, ...(initially[id] || {}) });
      return states.get(id);
    },
    defer: (task) => waiting.add(task),
    explores: Boolean(host.explores),
    select, point, collect, report,
  };

  /** @type {Mount["select"]} */
  function select(change, { quiet = false } = {}) {
    const next = { ...selection, ...change };
    if (same(next, selection)) return;
    const before = /** @type {Record<string, unknown>} */ ({ ...selection });
    for (const [name, value] of Object.entries(change)) {
      if (!same(value, before[name])) pending[name] = [...(pending[name] || []).slice(-50), value];
    }
    selection = next;
    for (const { controller } of controllers.values()) controller.fromSelection();
    if (quiet) return;
    clearTimeout(timer);
    timer = setTimeout(() => report({
      pick: "selection", head: selection.head, query: selection.query, key: selection.key,
    }), REPORT_AFTER);
  }

  /** @type {Mount["point"]} */
  function point(head, from) {
    for (const { controller } of controllers.values()) if (controller.root !== from) controller.pointed?.(head);
  }

  /** Adds a head to the collected set, or removes it; null empties the set.
   *  @type {Mount["collect"]} */
  function collect(head, view) {
    const without = selection.heads.filter((own) => !same(own, head));
    const wasIn = without.length < selection.heads.length;
    const heads = head === null ? [] : [...without, ...(wasIn ? [] : [head])];
    select({ heads }, { quiet: true });
    for (const { controller } of controllers.values()) controller.refresh();
    const names = heads.map((own) => headName(...own)).join(", ");
    mount.announce(names ? `Collected: ${names}` : "The set is empty.");
    report({ view, pick: "collect", name: names });
  }

  /** @type {Mount["report"]} */
  function report(event) {
    counter += 1;
    host.report({ ...event, heads: selection.heads, id: `${identity}-${counter}` });
  }

  /** @type {MountedViews["update"]} */
  function update(next) {
    theme = null;
    meta = next.meta || {};
    initially = next.initially || {};
    figures = next.figures || "";
    whole.hidden = !figures;
    mount.theme();
    const had = new Map(controllers);
    controllers.clear();
    for (const view of next.views) {
      const old = had.get(view.id);
      had.delete(view.id);
      controllers.set(view.id, old && same(old.view, view) ? old : { view, controller: rebuilt(old, view) });
    }
    for (const { controller } of had.values()) remove(controller);
    arrange();
    takeSelection({ ...NO_SELECTION, ...next.selection });
    for (const task of [...waiting]) {
      waiting.delete(task);
      task();
    }
    for (const [id, { controller }] of controllers) controller.root.classList.toggle(
      "w-stale", (next.stale || []).includes(id),
    );
  }

  /** Applies the server's changes of the selection, except echoes of values that were chosen here.
   *  @type {(sent: Selection) => void} */
  function takeSelection(sent) {
    /** @type {Record<string, unknown>} */
    const news = {};
    const before = given && /** @type {Record<string, unknown>} */ ({ ...given });
    for (const [name, value] of Object.entries(sent)) {
      if (before && same(value, before[name])) continue;
      const echo = before ? (pending[name] || []).findIndex((own) => same(own, value)) : -1;
      pending[name] = echo < 0 ? [] : pending[name].slice(echo + 1);
      if (echo < 0) news[name] = value;
    }
    given = sent;
    const next = { ...selection, ...news };
    if (same(next, selection)) return;
    selection = next;
    for (const { controller } of controllers.values()) controller.fromSelection();
  }

  function saveFigures() {
    save(`${figures}.zip`, new Blob([zipped(figureFiles())], { type: "application/zip" }));
  }

  /** @type {(old: Mounted | undefined, view: View) => Controller} */
  function rebuilt(old, view) {
    const made = controllerOf(view);
    if (!old) return made;
    const focused = old.controller.root.contains(focusedBeside(root));
    const { scrollLeft, scrollTop } = old.controller.scrolled || {};
    old.controller.root.replaceWith(made.root);
    old.controller.dispose();
    mount.defer(() => {
      if (made.scrolled) Object.assign(made.scrolled, { scrollLeft, scrollTop });
      if (made.reveal) made.reveal();
      if (focused) made.focus({ preventScroll: true });
    });
    return made;
  }

  /** @type {(sent: View) => Controller} */
  function controllerOf(sent) {
    const view = sent.kind === "difference" ? differenceView(sent) : sent;
    const make = VIEWS[view.kind] || (PLOTS[view.kind] && plottedView);
    if (!make) throw new Error(`Views of kind ${view.kind} are not known.`);
    return make(mount, view);
  }

  /** @type {(controller: Controller) => void} */
  function remove(controller) {
    controller.dispose();
    controller.root.remove();
  }

  /** Sorts the views; those already in place are not moved, so that they keep focus and scroll. */
  function arrange() {
    let at = list.firstElementChild;
    for (const { controller } of controllers.values()) {
      if (at && controller.root === at) at = at.nextElementSibling;
      else list.insertBefore(controller.root, at);
    }
  }

  function redraw() {
    theme = null;
    mount.theme(); // also where all views are text, which asks for no colours
    for (const { controller } of controllers.values()) controller.refresh();
  }

  /** @type {(on: boolean) => void} */
  function print(on) {
    printing = on;
    root.toggleAttribute("data-print", on);
    redraw();
  }

  const [before, after] = [() => print(true), () => print(false)];
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  /** @type {(event: TransitionEvent) => void} */
  const faded = (event) => { if (event.target === root && event.propertyName === "background-color") redraw(); };
  window.addEventListener("beforeprint", before);
  window.addEventListener("afterprint", after);
  scheme.addEventListener("change", redraw);
  root.addEventListener("transitionend", faded);
  update(payload);

  return {
    update,
    dispose: () => {
      clearTimeout(timer);
      window.removeEventListener("beforeprint", before);
      window.removeEventListener("afterprint", after);
      scheme.removeEventListener("change", redraw);
      for (const { controller } of controllers.values()) remove(controller);
      root.remove();
    },
  };
}

/** Shows the description of a cell beside the pointer.
 *  @type {(root: HTMLElement, tip: HTMLElement, described: Description | null, x: number, y: number) => void} */
function showTip(root, tip, own, x, y) {
  tip.hidden = !own;
  if (!own) return;
  const number = own.value !== undefined;
  tip.replaceChildren(
    element("strong", {}, element("bdi", {}, own.name)),
    ...(own.text ? [element("span", {}, own.text)] : []),
    ...(number ? [element("span", { class: "w-value" }, withUnit(own.value, own.unit, own.signed))] : []),
    ...(own.lines || []).map((text) => element("span", { class: "w-soft" }, text)),
  );
  const [page, room] = [root.getBoundingClientRect(), tip.getBoundingClientRect()];
  const wide = Math.min(window.innerWidth, page.right) - page.left;
  const left = clamp(x - page.left + 14, 0, Math.max(0, wide - room.width));
  const above = y + 18 + room.height > window.innerHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${above ? y - page.top - room.height - 12 : y - page.top + 18}px`;
}

/** Shows the list of keys; any key closes it.
 *  @type {(root: HTMLElement) => void} */
function showHelp(root) {
  const rows = KEYS.flatMap(([key, meaning]) => [element("dt", {}, key), element("dd", {}, meaning)]);
  const before = focusedBeside(root);
  const close = () => { box.remove(); if (before) before.focus(); };
  const box = element("div", {
    class: "w-help", tabindex: "-1", role: "dialog", "aria-label": "keys",
    keydown: (event) => { event.stopPropagation(); close(); }, click: close,
  }, element("h4", {}, "Keys"), element("dl", {}, ...rows));
  root.append(box);
  box.focus();
}

/** Shows a search field for tokens; Enter goes to the next token that contains the text.
 *  @type {(mount: Mount, box: HTMLElement, tokens: string[], onFound: (n: number) => void) => void} */
function searchTokens(mount, box, tokens, onFound) {
  const before = focusedBeside(mount.root);
  let last = -1;
  const field = element("input", {
    type: "search", class: "w-field w-search", placeholder: "token", "aria-label": "search for a token",
    keydown: keys, input: () => { last = -1; find(); }, blur: close,
  });

  function find() {
    const found = nextToken(tokens, field.value, last);
    if (found < 0) return mount.announce("No token contains this text.");
    last = found;
    return onFound(found);
  }

  /** @type {(event: KeyboardEvent) => void} */
  function keys(event) {
    event.stopPropagation();
    if (event.key === "Enter") find();
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  }

  function close() {
    if (!field.isConnected) return;
    field.removeEventListener("blur", close);
    field.remove();
    if (before) before.focus();
  }

  box.prepend(field);
  field.focus();
}

/** The index of the next token that contains a text, wrapping at the end; -1 if there is none.
 *  @type {(tokens: string[], text: string, last: number) => number} */
export function nextToken(tokens, text, last) {
  const wanted = text.toLowerCase();
  if (!wanted) return -1;
  for (let step = 1; step <= tokens.length; step += 1) {
    const n = (last + step) % tokens.length;
    if (tokens[n].toLowerCase().includes(wanted)) return n;
  }
  return -1;
}
