// The parts around every view: title, note, data tables, and buttons for CSV, PNG, copying, pinning and help.

/** @import { DataTable, Description, Frame, FrameParts, Mount, Picture, View } from "./types.d.ts" */
import { LIGHT } from "./colours.js";
import { NONE, exact, readable, slug } from "./data.js";
import { dataTableElement, toCsv } from "./data_tables.js";
import { SMALL, contextOf, font, wrapped, write } from "./draw.js";
import { button, copyText, element, save } from "./elements.js";
import { sized } from "./surface.js";

const PNG_RATIO = 2;

/** The elements around a view; without parts if the view has nothing to show.
 *  @type {(mount: Mount, view: View, parts: FrameParts | null) => Frame} */
export function frame(mount, view, parts) {
  const body = element("div", { class: "w-body" });
  const dataTables = element("div", { class: "w-data-tables", hidden: true });
  const tools = element("span", { class: "w-tools" });
  const heading = element("header", { class: "w-heading" }, element("h3", {}, view.title || ""), tools);
  const note = [view.note, view.marked_note].filter(Boolean).join(" ");
  const root = element("section", {
    class: `w-view w-kind-${view.kind}`, "data-view": view.id, "data-kind": view.kind,
    "data-title": view.title, "aria-label": view.title || view.id,
  }, heading, body, dataTables, note ? element("p", { class: "w-note" }, note) : null);

  const actions = {
    table: () => showDataTable(Boolean(dataTables.hidden)),
    csv: () => saveCsv(tables()[0]),
    png: () => savePng(),
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
      ...(parts.picture ? [button("PNG", "Save the picture as a PNG file", actions.png, quiet)] : []),
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
    picture(mount, view, drawn).toBlob((blob) => {
      if (blob) save(`${fileStem(mount, view, drawn.part)}.png`, blob);
    });
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

/** The name of a saved file without its extension; part names the part of the view that it shows.
 *  @type {(mount: Mount, view: View, part?: string) => string} */
function fileStem(mount, view, part) {
  return [
    view.file || view.id, part, mount.meta().model,
  ].map((text) => slug(text || "")).filter(Boolean).join("-") || "figure";
}

/** A picture with title, drawing, note and metadata, in the colours of a light page.
 *  @type {(mount: Mount, view: View, drawn: Picture) => HTMLCanvasElement} */
function picture(mount, view, { width, height, paint: drawTo, part }) {
  const { model, prompt, n, version } = mount.meta();
  const facts = [
    model, prompt, n === undefined || n === null ? "" : `n = ${n}`, version,
  ].filter(Boolean).join("  ·  ");
  const [wide, measurer] = [Math.max(width + 32, 360), contextOf(document.createElement("canvas"))];
  measurer.font = font(14, 600);
  const title = wrapped(
    [view.title, part].filter(Boolean).join(": "), wide - 32, (text) => measurer.measureText(text).width,
  );
  measurer.font = font(SMALL);
  const below = [view.note || "", facts].filter(Boolean).flatMap((text) => wrapped(
    text, wide - 32, (own) => measurer.measureText(own).width,
  ));
  const top = 20 + 19 * title.length;
  const canvas = document.createElement("canvas");
  const ctx = sized(canvas, { width: wide, height: top + height + 18 + 15 * below.length }, PNG_RATIO);
  ctx.fillStyle = LIGHT.paper;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  title.forEach((text, at) => write(ctx, text, 16, 20 + 19 * at, {
    colour: LIGHT.ink, size: 14, weight: 600,
  }));
  below.forEach((text, at) => write(
    ctx, text, 16, top + height + 12 + 15 * at, { colour: LIGHT.soft, size: SMALL },
  ));
  ctx.translate(16, top);
  drawTo(ctx, LIGHT);
  return canvas;
}
