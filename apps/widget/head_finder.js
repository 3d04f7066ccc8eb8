// A list of heads by a number, with ranks among all, and a search field for their names.

/** @import { Finder, FinderOptions, Mount } from "./types.d.ts" */
import { clamp, readable } from "./data.js";
import { element } from "./elements.js";

const LIST_ROW = 24;
const MORE_ROWS = 8;

/** The finder of heads by name and rank; the keys are those of both the field and the list.
 *  @type {(mount: Mount, options: FinderOptions) => Finder} */
export function headFinder(mount, { id, names, onHover, onPick, onSearch }) {
  /** @type {number[]} */
  let values = [];
  /** @type {number[]} */
  let ranked = [];
  /** @type {number[]} */
  let listed = [];
  /** @type {Map<number, number>} */
  let ranks = new Map();
  let [chosen, hovered] = [-1, -1];
  const field = element("input", {
    type: "search", class: "w-field", placeholder: "find a head: L3H5", "aria-label": "find a head", role: "combobox",
    "aria-expanded": "true", "aria-controls": `${id}-heads`, input: () => { chosen = -1; search(); }, keydown: keys,
  });
  const rows = element("div", { class: "w-rows" });
  const list = element("div", {
    class: "w-ranked", id: `${id}-heads`, tabindex: "0", role: "listbox", "aria-label": "heads by rank", keydown: keys,
    scroll: fill,
  }, rows);
  const count = element("span", { class: "w-soft" });
  const root = element("div", { class: "w-finder" }, field, list, count);
  list.addEventListener("pointerover", (event) => {
    const n = headAt(event);
    if (n >= 0) onHover(n);
  });
  list.addEventListener("pointerleave", () => onHover(null));
  list.addEventListener("click", (event) => {
    const n = headAt(event);
    if (n >= 0) onPick(n);
  });

  /** The head of the row that an event is about; −1 if there is none.
   *  @type {(event: Event) => number} */
  function headAt(event) {
    const row = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[role=option]"));
    return row ? Number(row.dataset.head) : -1;
  }

  /** Ranks the heads by other numbers.
   *  @type {Finder["rank"]} */
  function rank(next) {
    values = next;
    ranked = names.map((_, n) => n).filter((n) => !Number.isNaN(values[n])).sort((one, other) => values[other] - values[one] || one - other);
    // Heads with equal numbers share the best rank.
    ranks = new Map();
    ranked.forEach((n, at) => ranks.set(n, at && values[ranked[at - 1]] === values[n] ? ranks.get(ranked[at - 1]) || 1 : at + 1));
    search();
  }

  /** Lists the heads whose names contain the text of the field: exact names first, then those that begin with it. */
  function search() {
    const text = field.value.trim().toLowerCase();
    /** @type {(n: number) => number} */
    const fit = (n) => {
      const name = names[n].toLowerCase();
      return name === text ? 0 : name.startsWith(text) && !/\d/.test(name[text.length]) ? 1 : name.includes(text) ? 2 : 3;
    };
    listed = text ? ranked.filter((n) => fit(n) < 3).sort((one, other) => fit(one) - fit(other)) : ranked;
    count.textContent = text ? `${listed.length} of ${ranked.length} heads` : `${ranked.length} heads`;
    list.scrollTop = 0;
    fill();
    onSearch(text ? listed : []);
  }

  /** Draws the rows in view. */
  function fill() {
    const first = clamp(Math.floor(list.scrollTop / LIST_ROW) - MORE_ROWS, 0, listed.length);
    const last = Math.min(listed.length, Math.ceil((list.scrollTop + list.clientHeight) / LIST_ROW) + MORE_ROWS);
    rows.style.height = `${listed.length * LIST_ROW}px`;
    rows.replaceChildren(...listed.slice(first, last).map((n, at) => {
      const row = element(
        "div", {
          role: "option", id: `${id}-head-${n}`, "data-head": n, "aria-posinset": first + at + 1, "aria-setsize": listed.length,
          "aria-selected": String(n === chosen), class: n === hovered ? "w-hovered" : null,
        },
        element("span", { class: "w-rank" }, String(ranks.get(n))), element("span", {}, names[n]),
        element("span", { class: "w-number" }, readable(values[n], false, 3)),
      );
      row.style.top = `${(first + at) * LIST_ROW}px`;
      return row;
    }));
    for (const own of [field, list]) {
      if (chosen < 0) own.removeAttribute("aria-activedescendant");
      else own.setAttribute("aria-activedescendant", `${id}-head-${chosen}`);
    }
  }

  /** @type {(down: number) => void} */
  function move(down) {
    if (!listed.length) return;
    const at = clamp(listed.indexOf(chosen) + down, 0, listed.length - 1);
    chosen = listed[at];
    if (at * LIST_ROW < list.scrollTop) list.scrollTop = at * LIST_ROW;
    else if ((at + 1) * LIST_ROW > list.scrollTop + list.clientHeight) list.scrollTop = (at + 1) * LIST_ROW - list.clientHeight;
    fill();
    onHover(chosen);
    mount.announce(describe(chosen));
  }

  /** @type {(event: KeyboardEvent) => void} */
  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Enter" && listed.length) onPick(chosen >= 0 ? chosen : listed[0]);
    else if (event.key === "Escape") {
      field.value = "";
      chosen = -1;
      onHover(null);
      search();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @type {Finder["describe"]} */
  function describe(n) {
    return `${names[n]}: ${readable(values[n])}, rank ${rankText(n)}`;
  }

  /** @type {Finder["rankText"]} */
  function rankText(n) {
    return ranks.has(n) ? `${ranks.get(n)} of ${ranked.length}` : "";
  }

  /** @type {Finder["hover"]} */
  function hover(n) {
    hovered = n ?? -1;
    fill();
  }

  return { root, field, rank, hover, fill, rankText, describe };
}
