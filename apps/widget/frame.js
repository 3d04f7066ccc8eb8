// The parts around every view: title, note, data tables, and buttons to save, copy and pin it.

/** @import { DataTable, Description, Frame, FrameParts, Mount, View } from "./types.d.ts" */
import { NONE, exact, readable } from "./data.js";
import { dataTableElement, toCsv } from "./data_tables.js";
import { button, copyText, element, save } from "./elements.js";
import { fileStem, pngOf, svgFiles } from "./picture.js";
import { zipped } from "./zip.js";

/** The views on the page that have pictures: their elements, and functions that return SVG files.
 *  @type {Map<HTMLElement, () => ReturnType<typeof svgFiles>>} */
const figures = new Map();

/** All figures on the page as SVG files, numbered in their order.
 *  @type {() => ReturnType<typeof svgFiles>} */
export function figureFiles() {
  for (const root of figures.keys()) if (!root.isConnected) figures.delete(root);
  const placed = [...figures].sort(([one], [other]) => (isBefore(one, other) ? -1 : 1));
  const digits = String(placed.length).length;
  return placed.flatMap(([, files], n) => files().map(({ name, text }) => (
    { name: `${String(n + 1).padStart(digits, "0")}-${name}`, text }
  )));
}

/** Whether an element is above another, or to the left of it; they may be in different shadow roots.
 *  @type {(one: Element, other: Element) => boolean} */
function isBefore(one, other) {
  const [a, b] = [one.getBoundingClientRect(), other.getBoundingClientRect()];
  return a.top === b.top ? a.left < b.left : a.top < b.top;
}

/** Does what a key does in every view with cells; whether it does something.
 *  @type {(mount: Mount, own: Frame, key: string) => boolean} */
export function frameKey(mount, own, key) {
  if (key === "c") own.actions.copy();
  else if (key === "t") own.actions.table();
  else if (key === "p") mount.report({ pick: "pin" });
  else if (key === "?") mount.help();
  else return false;
  return true;
}

/** The elements around a view; without parts if the view has nothing to show.
 *  @type {(mount: Mount, view: View, parts: FrameParts | null) => Frame} */
export function frame(mount, view, parts) {
  const body = element("div", { class: "w-body" });
  const dataTables = element("div", { class: "w-data-tables", hidden: true });
  const tools = element("span", { class: "w-tools" });
  const heading = element("header", { class: "w-heading" }, element("h3", {}, view.title || ""), tools);
  const note = [view.note, view.marked_note].filter(Boolean).join(" ");
  const root = element("section", {
    class: `w-view w-kind-${view.kind}${view.half ? " w-half" : ""}`, "data-view": view.id, "data-kind": view.kind,
    "data-title": view.title, "aria-label": view.title || view.id,
  }, heading, view.run ? element("p", { class: "w-run" }, view.run) : null, body, dataTables, note ? element("p", { class: "w-note" }, note) : null);

  if (parts?.picture) figures.set(root, files);

  const actions = {
    table: () => showDataTable(Boolean(dataTables.hidden)),
    csv: () => saveCsv(tables()[0]),
    png: () => savePng(),
    svg: () => saveSvg(),
    copy: () => copy(),
    pin: () => mount.report({ pick: "pin" }),
    link: () => {
      copyText(window.location.href);
      mount.announce("Copied the address.");
    },
  };
  const quiet = { tabindex: "-1" };
  const table = button(
    "table", "Show the numbers as a table (key t)", actions.table, { ...quiet, "aria-pressed": "false" },
  );
  if (parts) {
    tools.append(
      button("copy", "Copy the selected number (key c)", actions.copy, quiet),
      ...(view.kind === "table" ? [] : [table]),
      button("CSV", "Save the numbers as a CSV file", actions.csv, quiet),
      ...(parts.picture ? [
        button("PNG", "Save the picture as a PNG file", actions.png, quiet),
        button("SVG", "Save the picture as vector graphics (SVG)", actions.svg, quiet),
      ] : []),
      ...(mount.explores ? [
        button("pin", "Pin this page's views beside the next ones, or unpin them (key p)", actions.pin, quiet),
        button("link", "Copy the address of what is shown", actions.link, quiet),
      ] : []),
      button("?", "Show the keys (key ?)", mount.help, quiet),
    );
  }

  /** @type {(on: boolean) => void} */
  function showDataTable(on) {
    dataTables.hidden = !on;
    table.setAttribute("aria-pressed", String(on));
    if (on) refreshDataTable();
  }

  function tables() {
    return parts ? parts.dataTables() : [];
  }

  function refreshDataTable() {
    if (dataTables.hidden) return;
    dataTables.replaceChildren(...tables().map((own) => dataTableElement(own, () => saveCsv(own))));
  }

  /** @type {(table: DataTable) => void} */
  function saveCsv(own) {
    save(`${fileStem(mount, view)}.csv`, toCsv(own), "text/csv");
  }

  function savePng() {
    const drawn = parts?.picture?.();
    if (!drawn) return;
    pngOf(mount, view, drawn).toBlob((blob) => {
      if (blob) save(`${fileStem(mount, view, drawn.part)}.png`, blob);
    });
  }

  function files() {
    const drawn = parts?.pictures ? parts.pictures() : [parts?.picture?.() ?? null];
    return svgFiles(mount, view, drawn.filter((own) => own !== null));
  }

  function saveSvg() {
    const own = files();
    if (own.length === 1) save(own[0].name, own[0].text, "image/svg+xml");
    else if (own.length) save(`${fileStem(mount, view)}.zip`, new Blob([zipped(own)], { type: "application/zip" }));
  }

  function copy() {
    const own = parts && parts.describe();
    if (!own) return mount.announce("Nothing is selected.");
    const text = readingOf(own, exact);
    copyText(text);
    return mount.announce(`Copied: ${text}`);
  }

  /** Writes the selected cell and its value to data attributes of the view.
   *  @type {Frame["selected"]} */
  function selected(place, own) {
    if (place) root.dataset.selected = place.join(",");
    else delete root.dataset.selected;
    if (own && own.value !== undefined) root.dataset.value = String(own.value);
    else delete root.dataset.value;
  }

  return { root, body, actions, selected, refreshDataTable, ready: () => { root.dataset.ready = "true"; } };
}

/** The description of a cell in one line: "L1H3: 0.81 nats, 95 % interval 0.7 to 0.9".
 *  @type {(described: Description, format?: (value: number) => string) => string} */
export function readingOf(own, format = (/** @type {number} */ value) => readable(value, own.signed)) {
  const missing = own.value === undefined ? "" : NONE;
  const value = typeof own.value === "number" && !Number.isNaN(own.value)
    ? [format(own.value), own.unit].filter(Boolean).join(" ") : missing;
  const read = [`${own.name}${value || own.text ? ":" : ""}`, own.text, value].filter(Boolean).join(" ");
  return [read, ...(own.lines || [])].join(", ");
}
