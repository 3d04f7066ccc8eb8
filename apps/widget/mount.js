"use strict";
// A mount: views that share a selection. Mounting again with other views keeps what is equal.

const REPORT_AFTER = 150;
const KEYS = [
  ["arrows", "move the cell"], [
    "Shift + arrows", "another head",
  ], ["[  ]", "layer before, after"], ["Enter", "choose the cell"],
  [
    "s or Shift-click", "collect a head",
  ], ["b", "hide or show BOS"], ["/", "search a token"], ["p", "pin, to compare"],
  ["c", "copy the number"], ["t", "show as a table"], ["Escape", "clear"],
];
const VIEWS = { tokens: tokensView, table: tableView, heads: headsView };
const NO_SELECTION = { head: null, heads: [], query: null, key: null, position: null };

/** Mounts views into a parent; host.report(event) gets what is picked. Returns {update, dispose}. */
function mountViews(parent, payload, host) {
  const live = element("div", { class: "w-unseen", role: "status", "aria-live": "polite" });
  const tip = element("div", { class: "w-tip", role: "presentation", hidden: true });
  const list = element("div", { class: "w-list" });
  const root = element("div", { class: "w-root" }, list, live, tip);
  parent.append(root);
  const controllers = new Map();
  const keptStates = new Map();
  const waiting = new Set();
  let [selection, given, meta, theme, printing] = [{ ...NO_SELECTION }, null, {}, null, false];
  const identity = Math.random().toString(36).slice(2); // of this mount, so that no two reports are equal
  let [pending, timer, counter] = [{}, null, 0]; // pending: what was chosen here, by field
  let initially = {}; // by the ids of views: the state that they begin with

  const mount = {
    root,
    selection: () => selection,
    meta: () => meta,
    theme: () => (theme ||= themeOf(root)),
    ratio: () => (printing ? 3 : Math.max(1, window.devicePixelRatio || 1)),
    say: (text) => { live.textContent = text; },
    tip: (own, x, y) => showTip(root, tip, own, x, y),
    help: () => showHelp(root),
    search: (box, tokens, onFound) => searchTokens(mount, box, tokens, onFound),
    kept: (id, initial) => {
      if (!keptStates.has(id)) keptStates.set(id, { ...initial, ...(initially[id] || {}) });
      return keptStates.get(id);
    },
    defer: (task) => waiting.add(task),
    select, collect, report,
  };

  function select(change, { quiet = false } = {}) {
    const next = { ...selection, ...change };
    if (same(next, selection)) return;
    for (const [name, value] of Object.entries(change)) {
      if (!same(value, selection[name])) pending[name] = [...(pending[name] || []).slice(-50), value];
    }
    selection = next;
    for (const { controller } of controllers.values()) controller.fromSelection();
    if (quiet) return;
    clearTimeout(timer);
    timer = setTimeout(() => report({
      pick: "selection", head: selection.head, query: selection.query, key: selection.key,
    }), REPORT_AFTER);
  }

  /** Puts a head into the collected set, or takes it out; null empties the set. */
  function collect(head, view) {
    const without = selection.heads.filter((own) => !same(own, head));
    const wasIn = without.length < selection.heads.length;
    const heads = head === null ? [] : [...without, ...(wasIn ? [] : [head])];
    select({ heads }, { quiet: true });
    for (const { controller } of controllers.values()) controller.refresh();
    const names = heads.map((own) => headName(...own)).join(", ");
    mount.say(names ? `Collected: ${names}` : "The set is empty.");
    report({ view, pick: "collect", name: names });
  }

  function report(event) {
    counter += 1;
    host.report({ ...event, heads: selection.heads, id: `${identity}-${counter}` });
  }

  function update(next) {
    theme = null;
    meta = next.meta || {};
    initially = next.initially || {};
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

  /** What the server changed of the selection holds, unless it is an echo of what was chosen here. */
  function takeSelection(sent) {
    const news = {};
    for (const [name, value] of Object.entries(sent)) {
      if (given && same(value, given[name])) continue;
      const echo = given ? (pending[name] || []).findIndex((own) => same(own, value)) : -1;
      pending[name] = echo < 0 ? [] : pending[name].slice(echo + 1);
      if (echo < 0) news[name] = value;
    }
    given = sent;
    const next = { ...selection, ...news };
    if (same(next, selection)) return;
    selection = next;
    for (const { controller } of controllers.values()) controller.fromSelection();
  }

  function rebuilt(old, view) {
    const made = controllerOf(view);
    if (!old) return made;
    const focused = old.controller.root.contains(root.getRootNode().activeElement);
    const { scrollLeft, scrollTop } = old.controller.scrolled || {};
    old.controller.root.replaceWith(made.root);
    old.controller.dispose();
    mount.defer(() => {
      if (made.scrolled) Object.assign(made.scrolled, { scrollLeft, scrollTop });
      if (focused) made.focus({ preventScroll: true });
    });
    return made;
  }

  function controllerOf(view) {
    const make = VIEWS[view.kind] || (PLOTS[view.kind] && plottedView);
    if (!make) throw new Error(`Views of kind ${view.kind} are not known.`);
    return make(mount, view);
  }

  function remove(controller) {
    controller.dispose();
    controller.root.remove();
  }

  /** Puts the views in their order; those that stand right are not moved, so that they keep focus and scroll. */
  function arrange() {
    let at = list.firstElementChild;
    for (const { controller } of controllers.values()) {
      if (controller.root === at) at = at.nextElementSibling;
      else list.insertBefore(controller.root, at);
    }
  }

  function redraw() {
    theme = null;
    for (const { controller } of controllers.values()) controller.refresh();
  }

  function print(on) {
    printing = on;
    root.toggleAttribute("data-print", on);
    redraw();
  }

  const [before, after] = [() => print(true), () => print(false)];
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
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

/** Shows what a cell holds beside the pointer. */
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

/** Lists the keys; any key closes the list. */
function showHelp(root) {
  const rows = KEYS.flatMap(([key, meaning]) => [element("dt", {}, key), element("dd", {}, meaning)]);
  const before = root.getRootNode().activeElement;
  const close = () => { box.remove(); if (before) before.focus(); };
  const box = element("div", {
    class: "w-help", tabindex: "-1", role: "dialog", "aria-label": "keys",
    keydown: (event) => { event.stopPropagation(); close(); }, click: close,
  }, element("h4", {}, "Keys"), element("dl", {}, ...rows));
  root.append(box);
  box.focus();
}

/** A field that finds tokens; Enter goes to the next that contains the text. */
function searchTokens(mount, box, tokens, onFound) {
  const before = mount.root.getRootNode().activeElement;
  let last = -1;
  const field = element("input", {
    type: "search", class: "w-field w-search", placeholder: "token", "aria-label": "search a token",
    keydown: keys, input: () => { last = -1; find(); }, blur: close,
  });

  function find() {
    const found = nextToken(tokens, field.value, last);
    if (found < 0) return mount.say("No such token.");
    last = found;
    return onFound(found);
  }

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

/** The next token after one that contains a text, around the end; -1 if there is none. */
function nextToken(tokens, text, last) {
  const wanted = text.toLowerCase();
  if (!wanted) return -1;
  for (let step = 1; step <= tokens.length; step += 1) {
    const n = (last + step) % tokens.length;
    if (tokens[n].toLowerCase().includes(wanted)) return n;
  }
  return -1;
}
