// The numbers of a view as data tables {caption, columns, rows}, shown on the page and saved as CSV.

/**
 * @import {
 *   BarsView, CellValue, Column, CurvesView, DataTable, DrawnView, HeadsView, Matrix, NetworkView, ScatterView,
 *   ScanView, Sent, TableView, TextsView, TokensView,
 * } from "./types.d.ts"
 */
import { decodedOnce, exact, headName, readable } from "./data.js";
import { button, element } from "./elements.js";
import { readerName } from "./path_layout.js";
import { textCells } from "./text_cells.js";

/** @typedef {[title: string, values: CellValue[]]} DataColumn */

/** The data tables of a view; the first one is saved by its CSV button.
 *  @type {(view: DrawnView) => DataTable[]} */
export function dataTablesOf(view) {
  const makers = {
    matrix: matrixDataTable, bars: barsDataTable, curves: curvesDataTable, network: networkDataTable,
    scatter: scatterDataTable, tokens: tokensDataTable, table: tableDataTable, heads: headsDataTable, texts: textsDataTable, scan: scanDataTables,
  };
  const tables = /** @type {(view: DrawnView) => DataTable | DataTable[]} */ (makers[view.kind]);
  return [tables(view)].flat();
}

/** @type {(view: Matrix) => DataTable[]} */
export function matrixDataTable(view) {
  const beside = (view.beside || []).map(({ title, values }) => (
    { ...view, values, beside: [], title: `${view.title}: ${title}` }
  ));
  const { estimated } = view;
  const marks = estimated ? [{ ...view, values: estimated, unit: "", title: marksTitle(view.title || "") }] : [];
  return [matrixTableOf(view), ...[...marks, ...beside].map(matrixTableOf)];
}

/** @type {(view: Matrix) => DataTable} */
function matrixTableOf(view) {
  const { shape: [, columns], data } = decodedOnce(view.values);
  const head = [view.row_axis || "", view.column_axis].filter(Boolean).join(" \\ ");
  const rows = view.rows.map((label, r) => {
    const values = Array.from(data.subarray(r * columns, (r + 1) * columns));
    const texts = view.texts?.[r];
    return [label, ...(texts ? values.map((value, c) => textAndNumber(texts[c], value)) : values)];
  });
  return { caption: captionOf(view), columns: [head, ...view.columns], rows };
}

/** @type {(view: BarsView) => DataTable} */
function barsDataTable(view) {
  /** @type {DataColumn[]} */
  const columns = [["", view.labels], [valueTitle(view), numbers(view.values)]];
  if (view.estimated) columns.push([marksTitle(valueTitle(view)), numbers(view.estimated)]);
  if (view.low && view.high) columns.push(["low", numbers(view.low)], ["high", numbers(view.high)]);
  for (const other of [...(view.marks || []), ...(view.second ? [view.second] : [])]) {
    columns.push([other.title, numbers(other.values)]);
    if (other.estimated) columns.push([marksTitle(other.title), numbers(other.estimated)]);
  }
  return ofColumns(captionOf(view), columns);
}

/** A table from columns [[title, values], …].
 *  @type {(caption: string, columns: DataColumn[]) => DataTable} */
function ofColumns(caption, columns) {
  const rows = columns[0][1].map((_, n) => columns.map(([, own]) => own[n]));
  return { caption, columns: columns.map(([title]) => title), rows };
}

/** @type {(view: CurvesView) => DataTable} */
function curvesDataTable(view) {
  const rows = view.panels.flatMap((panel) =>
    panel.curves.flatMap((own) => {
      const [x, y] = [numbers(own.x), numbers(own.y)];
      return x.map((value, n) => [
        [panel.title, panel.unit].filter(Boolean).join(", "), own.name, value, y[n],
      ]);
    }));
  return { caption: view.title, columns: ["panel", "curve", view.axis, "value"], rows };
}

/** @type {(view: NetworkView) => DataTable} */
function networkDataTable(view) {
  const rows = view.edges.map((edge) => [view.nodes[edge[0]].name, readerName(view.nodes, edge), edge[2]]);
  const title = `${valueTitle(view)}${view.estimated ? ", estimated" : ""}`;
  return { caption: captionOf(view), columns: ["from", "to", title], rows };
}

/** @type {(view: ScatterView) => DataTable} */
function scatterDataTable(view) {
  const titles = view.axes.map((axis, n) => (view.units[n] ? `${axis} (${view.units[n]})` : axis));
  return ofColumns(view.title, [["", view.labels], [titles[0], numbers(view.x)], [titles[1], numbers(view.y)]]);
}

/** @type {(view: TokensView) => DataTable} */
function tokensDataTable(view) {
  /** @type {DataColumn[]} */
  const columns = [["position", view.tokens.map((_, n) => n)], ["token", view.tokens]];
  if (view.ids) columns.push(["id", view.ids]);
  if (view.roles) columns.push(["role", view.roles]);
  if (view.aligned) columns.push(["corrupted", view.aligned]);
  if (view.values) columns.push([valueTitle(view), numbers(view.values)]);
  return ofColumns(captionOf(view), columns);
}

/** @type {(view: TableView) => DataTable} */
function tableDataTable(view) {
  return { caption: view.title, columns: view.columns.map(columnTitle), rows: view.rows };
}

/** @type {(view: HeadsView) => DataTable[]} */
function headsDataTable(view) {
  const columns = (view.scores || []).flatMap(({ name, unit, values, estimated }) => [
    { title: unit ? `${name} (${unit})` : name, values: decodedOnce(values) },
    ...(estimated ? [{ title: marksTitle(name), values: decodedOnce(estimated) }] : []),
  ]);
  const [layers, heads] = columns.length ? columns[0].values.shape : [0, 0];
  const rows = Array.from({ length: layers * heads }, (_, n) => [
    headName(Math.floor(n / heads), n % heads), ...columns.map(({ values }) => values.data[n]),
  ]);
  const titles = columns.map(({ title }) => title);
  return [{ caption: `${view.title}: scores of heads`, columns: ["head", ...titles], rows }];
}

/** The cells of all texts of a view.
 *  @type {(view: TextsView) => DataTable} */
function textsDataTable(view) {
  const rows = view.texts.flatMap((text) => textCells(text).keys.flatMap((keys, query) => keys.map(([key, weight]) => [
    text.source, query, text.tokens[query], key, (text.keys || text.tokens)[key], weight,
  ])));
  return { caption: view.title, columns: ["text", "query", "query token", "key", "key token", "weight"], rows };
}

/** The numbers of all heads, a table for each weighting.
 *  @type {(view: ScanView) => DataTable[]} */
function scanDataTables(view) {
  const { shape: [, axes, heads], data } = decodedOnce(view.values);
  return view.weightings.map((weighting, w) => ofColumns(`${view.title} (${weighting})`, [
    ["head", view.names],
    ...view.axes.map(({ name, unit }, n) => /** @type {DataColumn} */ ([
      `${name} (${unit})`, Array.from(data.subarray((w * axes + n) * heads, (w * axes + n + 1) * heads)),
    ])),
  ]));
}

/** The text and the number of a cell.
 *  @type {(text: string, value: number) => CellValue} */
function textAndNumber(text, value) {
  return text && !Number.isNaN(value) ? `${text} ${exact(value)}` : text || value;
}

/** The numbers of a list or of a sent array.
 *  @type {(sent: Sent) => number[]} */
export function numbers(sent) {
  return Array.from(decodedOnce(sent).data);
}

/** The title of the numbers that say which numbers are estimates.
 *  @type {(title: string) => string} */
function marksTitle(title) {
  return `${title}: 1 where estimated`;
}

/** A view's title with its unit.
 *  @type {(view: { title?: string, unit?: string }) => string} */
function captionOf(view) {
  return [view.title, view.unit && `(${view.unit})`].filter(Boolean).join(" ");
}

/** The title of a column of values.
 *  @type {(view: { unit?: string }) => string} */
function valueTitle(view) {
  return view.unit || "value";
}

/** The title of a column of a view "table".
 *  @type {(column: Column) => string} */
export function columnTitle(column) {
  return column.unit ? `${column.title} (${column.unit})` : column.title;
}

/** A table as CSV; texts that a spreadsheet would run as formulas are prefixed with an apostrophe.
 *  @type {(table: DataTable) => string} */
export function toCsv({ columns, rows }) {
  return [columns, ...rows].map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

/** A cell of a CSV file.
 *  @type {(value: CellValue) => string} */
function csvCell(value) {
  if (typeof value === "number") return Number.isNaN(value) ? "" : exact(value);
  const text = value === null || value === undefined ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

/** Largest number of cells of a table on the page; the CSV file has all. */
const MOST_CELLS = 20000;

/** The element of a data table.
 *  @type {(table: DataTable, onSave: () => void) => HTMLElement} */
export function dataTableElement({ caption, columns, rows }, onSave) {
  const most = Math.max(10, Math.floor(MOST_CELLS / columns.length));
  const cut = rows.length > most ? ` (the first ${most} of ${rows.length} rows)` : "";
  const head = element(
    "tr", {}, ...columns.map((name) => element("th", { scope: "col" }, element("bdi", {}, String(name)))),
  );
  const body = rows.slice(0, most).map((row) => element(
    "tr", {}, ...row.map((value, n) => dataTableCell(value, n)),
  ));
  const title = element("caption", {}, caption, cut, " ", button("CSV", "Save this table as CSV", onSave));
  return element(
    "div", { class: "w-scroll w-data-table" },
    element("table", {}, title, element("thead", {}, head), element("tbody", {}, ...body)),
  );
}

/** @type {(value: CellValue, n: number) => HTMLElement} */
function dataTableCell(value, n) {
  if (n === 0) return element("th", { scope: "row" }, element("bdi", {}, cellText(value)));
  return element(
    "td", { class: typeof value === "number" ? "w-number" : null }, element("bdi", {}, cellText(value)),
  );
}

/** The text of a cell of a table.
 *  @type {(value: CellValue) => string} */
export function cellText(value) {
  if (typeof value === "number") return Number.isNaN(value) ? "" : readable(value);
  return value === null || value === undefined ? "" : String(value);
}
