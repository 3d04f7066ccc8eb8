// The view "table": rows that can be sorted by clicking a column title, and filtered if there are many.

/** @import { CellValue, Column, Controller, Mount, TableView } from "./types.d.ts" */
import { cellText, columnTitle, dataTablesOf } from "./data_tables.js";
import { button, element } from "./elements.js";
import { frame } from "./frame.js";

const FILTER_FROM = 12;
const MOST_ROWS = 500;

/** The indices of the rows that contain a text, sorted by a column; rows without a value come last.
 *  @type {(
 *    rows: CellValue[][], options: { filter?: string, column?: number | null, down?: boolean },
 *  ) => number[]} */
export function ordered(rows, { filter = "", column = null, down = true }) {
  const wanted = filter.trim().toLowerCase();
  /** @type {(value: CellValue) => boolean} */
  const has = (value) => cellText(value).toLowerCase().includes(wanted);
  const indices = rows.map((_, n) => n).filter((n) => !wanted || rows[n].some(has));
  if (column === null) return indices;
  return indices.sort((a, b) => {
    const [one, other] = [rows[a][column], rows[b][column]];
    const [none, noOther] = [isNone(one), isNone(other)];
    if (none || noOther) return Number(none) - Number(noOther) || a - b;
    const order = typeof one === "number" && typeof other === "number" ? one - other : compared(one, other);
    return (down ? -order : order) || a - b;
  });
}

/** Compares two texts; numbers within them are compared as numbers.
 *  @type {(one: CellValue, other: CellValue) => number} */
function compared(one, other) {
  return String(one).localeCompare(String(other), undefined, { numeric: true });
}

/** Whether a cell has no value.
 *  @type {(value: CellValue) => boolean} */
function isNone(value) {
  return value === null || value === undefined || value === "" || Number.isNaN(value);
}

/** The controller of a view "table".
 *  @type {(mount: Mount, view: TableView) => Controller} */
export function tableView(mount, view) {
  /** @type {{ filter: string, column: number | null, down: boolean }} */
  const state = mount.stateOf(view.id, { filter: "", column: null, down: true });
  const own = frame(mount, view, {
    dataTables: () => dataTablesOf(view),
    describe: () => (at === null ? null : { name: view.rows[at].map(cellText).join(", ") }),
  });
  /** @type {number | null} */
  let at = null;
  /** @type {Map<number, HTMLElement>} */
  let trs = new Map();
  const body = element("tbody");
  const heads = view.columns.map((column, n) => headCell(column, () => sortBy(n)));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body);
  const box = element("div", {
    class: "w-scroll w-table", tabindex: "0", role: "application", "aria-roledescription": "table",
    "aria-label": view.title || "table",
  }, table);
  const found = element("span", { class: "w-soft" });
  if (view.rows.length > FILTER_FROM) own.body.append(filterBox());
  own.body.append(box);
  box.addEventListener("keydown", keys);
  fill();
  mount.defer(() => {
    if (view.at) choose(view.at[0], false);
    reveal();
    own.ready();
  });

  function filterBox() {
    const field = element("input", {
      type: "search", class: "w-field", placeholder: "filter rows",
      "aria-label": `filter rows of ${view.title}`, input: () => { state.filter = field.value; fill(); },
    });
    field.value = state.filter;
    return element("div", { class: "w-controls" }, field, found);
  }

  /** @type {(column: number) => void} */
  function sortBy(column) {
    state.down = state.column === column ? !state.down : true;
    state.column = column;
    fill();
  }

  function fill() {
    const indices = ordered(view.rows, state);
    trs = new Map(indices.slice(0, MOST_ROWS).map((n) => [n, row(n)]));
    body.replaceChildren(...trs.values());
    heads.forEach((head, n) => head.setAttribute(
      "aria-sort", state.column === n ? (state.down ? "descending" : "ascending") : "none",
    ));
    const cut = indices.length > MOST_ROWS ? `, the first ${MOST_ROWS} shown; the CSV file has all` : "";
    found.textContent = `${indices.length} of ${view.rows.length} rows${cut}`;
    if (at !== null) choose(at, false);
  }

  /** @type {(n: number) => HTMLElement} */
  function row(n) {
    const cells = view.rows[n].map((value, c) => element(
      "td", { class: alignment(view.columns[c], value) }, element("bdi", {}, cellText(value)),
    ));
    return element("tr", {
      class: view.pick ? "w-picks" : null, "data-row": n, click: () => pick(n),
    }, ...cells);
  }

  /** @type {(n: number | null, aloud?: boolean) => void} */
  function choose(n, aloud = true) {
    at = n;
    for (const [index, tr] of trs) tr.classList.toggle("w-chosen", index === n);
    const text = n === null ? "" : view.columns.map(
      (column, c) => `${column.title} ${cellText(view.rows[n][c])}`,
    ).join(", ");
    own.selected(n === null ? null : [n], null);
    if (n !== null && aloud) trs.get(n)?.scrollIntoView({ block: "nearest" });
    if (aloud && text) mount.announce(text);
  }

  /** Scrolls the box, not the page, to the chosen row. */
  function reveal() {
    const tr = at === null ? undefined : trs.get(at);
    if (!tr || (tr.offsetTop >= box.scrollTop && tr.offsetTop + tr.offsetHeight <= box.scrollTop + box.clientHeight)) return;
    box.scrollTop = tr.offsetTop - box.clientHeight / 2;
  }

  /** @type {(n: number) => void} */
  function pick(n) {
    choose(n);
    if (view.pick) mount.report({ view: view.id, pick: view.pick, row: n, name: cellText(view.rows[n][0]) });
  }

  /** @type {(event: KeyboardEvent) => void} */
  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const shown = Array.from(trs.keys());
    const here = at === null ? -1 : shown.indexOf(at);
    if (event.key === "ArrowDown" && shown.length) choose(shown[Math.min(here + 1, shown.length - 1)]);
    else if (event.key === "ArrowUp" && shown.length) choose(shown[Math.max(here - 1, 0)]);
    else if (event.key === "Enter" && at !== null && event.target === box) pick(at);
    else if (event.key === "Escape") choose(null);
    else if (event.key === "c") own.actions.copy();
    else if (event.key === "p") mount.report({ pick: "pin" });
    else if (event.key === "?") mount.help();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  return {
    root: own.root, focus: () => box.focus(), refresh: () => {}, fromSelection: () => {}, dispose: () => {},
    scrolled: box, reveal,
  };
}

/** @type {(column: Column, onClick: () => void) => HTMLElement} */
function headCell(column, onClick) {
  const title = button(
    columnTitle(column), "Sort by this column", onClick, { tabindex: "-1", class: "w-sort" },
  );
  return element("th", { scope: "col", class: column.align === "right" ? "w-number" : null }, title);
}

/** @type {(column: Column, value: CellValue) => string | null} */
function alignment(column, value) {
  return column.align === "right" || (column.align === undefined && typeof value === "number") ? "w-number" : null;
}
