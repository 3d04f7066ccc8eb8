// The pane of evidence of a view "heads": what is known of one head, and all heads ranked by a score. Of the
// ranked heads, only the rows in view are on the page.

/** @import { Cell, HeadsState, HeadsView, Mount, Score } from "./types.d.ts" */
import { colourOf, css } from "./colours.js";
import { clamp, decodedOnce, intervalText, readable, withUnit } from "./data.js";
import { REGION, element } from "./elements.js";
import { chosenScore } from "./head_map.js";
import { factsText, nameOf } from "./head_parts.js";
import { rankText, rankingOf, scaleOf } from "./ranking.js";

/** Height of a row in pixels, as in the style sheet, and number of rows above and below those in view. */
const [RANK_ROW, BEYOND] = [24, 8];

/** @typedef {{
 *    box: HTMLElement, show(head: Cell): void, hover(head: Cell | null): void, choose(head: Cell): void,
 *    move(down: number): void, refresh(): void, dispose(): void,
 *  }} EvidencePane */

/** The pane; show changes the head whose facts are shown, hover and choose the marks in the ranking.
 *  @type {(
 *    mount: Mount, view: HeadsView, parent: HTMLElement, state: HeadsState, options: {
 *      onHover(head: Cell | null): void, onPick(head: Cell, event?: MouseEvent): void,
 *    },
 *  ) => EvidencePane} */
export function evidencePane(mount, view, parent, state, { onHover, onPick }) {
  const scores = view.scores || [];
  const title = element("h4", { class: "w-head-name" });
  const known = element("p", { class: "w-known" });
  const chosenLine = element("p", { class: "w-known w-chosen-score" });
  const facts = scores.map((score) => {
    const [value, rank] = [element("td", { class: "w-number" }), element("td", { class: "w-number" })];
    const row = element("tr", {}, element("th", { scope: "row" }, score.short || score.name), value, rank);
    return { score, value, rank, row };
  });
  const table = element(
    "table", { class: "w-facts", "aria-label": "scores of the head" },
    element("thead", {}, element("tr", {}, ...["score", "value", "rank"].map((text, n) => (
      element("th", { scope: "col", class: n ? "w-number" : null }, text)
    )))),
    element("tbody", {}, ...facts.map(({ row }) => row)),
  );
  const heading = element("h4", {});
  const rows = element("div", { class: "w-rows", role: "presentation" });
  const list = element("div", { class: "w-ranked", role: "listbox", tabindex: "0" }, rows);
  const scroll = state.scrolls.list;
  /** @type {[Cell | null, Cell | null]} */
  let [chosen, hovered] = [null, null];
  parent.append(title, known);
  if (scores.length) parent.append(
    chosenLine, element("div", { class: "w-facts-box", ...REGION, "aria-label": "all scores of the head" }, table), heading, list,
  );

  list.addEventListener("scroll", () => {
    scroll.top = list.scrollTop;
    fill();
  });
  list.addEventListener("pointerover", (event) => onHover(headAt(event)));
  list.addEventListener("pointerleave", () => onHover(null));
  list.addEventListener("click", (event) => {
    const head = headAt(event);
    if (head) onPick(head, event);
  });

  /** @type {(event: Event) => Cell | null} */
  function headAt(event) {
    const row = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[role=option]"));
    return row ? rankingOf(chosenScore(scores, state)).order[Number(row.dataset.rank)] : null;
  }

  /** @type {(score: Score, head: Cell) => number} */
  function rankOf(score, [layer, head]) {
    return rankingOf(score).ranks[layer * decodedOnce(score.values).shape[1] + head];
  }

  /** @type {EvidencePane["show"]} */
  function show(head) {
    title.textContent = nameOf(view, head);
    known.textContent = factsText(view, head);
    known.title = known.textContent;
    for (const { score, value, rank, row } of facts) {
      const ranked = rankText(score, head);
      value.textContent = readable(scoreOf(score, head), isSigned(score), 2);
      rank.textContent = ranked.split(" ")[0];
      row.title = [
        `${score.name}: ${withUnit(scoreOf(score, head), score.unit, isSigned(score))}`, intervalOf(score, head),
        ranked && `rank ${ranked}`, score.control,
      ].filter(Boolean).join("; ");
      row.classList.toggle("w-chosen", score === chosenScore(scores, state));
    }
    if (!scores.length) return;
    const score = chosenScore(scores, state);
    const ranked = rankText(score, head);
    const estimated = score.estimated && scoreOf({ ...score, values: score.estimated }, head);
    chosenLine.textContent = [
      `${score.name}${score.unit ? ` (${score.unit})` : ""}: ${readable(scoreOf(score, head), isSigned(score))}`,
      estimated ? "estimated, not measured" : intervalOf(score, head), ranked && `rank ${ranked}`,
    ].filter(Boolean).join(" · ");
  }

  /** Draws the rows in view, of those that have a score. */
  function fill() {
    const score = chosenScore(scores, state);
    const { order, count } = rankingOf(score);
    const [scale, dark] = [scaleOf(score), mount.theme().dark];
    const most = Math.max(Math.abs(scale.low), Math.abs(scale.high)) || 1;
    const first = clamp(Math.floor(list.scrollTop / RANK_ROW) - BEYOND, 0, count);
    const last = Math.min(count, Math.ceil((list.scrollTop + list.clientHeight) / RANK_ROW) + BEYOND);
    rows.style.height = `${count * RANK_ROW}px`;
    rows.replaceChildren(...order.slice(first, last).map((head, n) => {
      const value = scoreOf(score, head);
      const bar = element("span", { class: "w-bar", "aria-hidden": "true" });
      bar.style.width = `${(40 * Math.min(1, Math.abs(value) / most)).toFixed(1)}%`;
      bar.style.background = css(colourOf(scale, value, dark));
      const row = element(
        "div", {
          role: "option", id: `${view.id}-rank-${first + n}`, "data-rank": first + n, "aria-posinset": first + n + 1,
          "aria-setsize": count, "aria-selected": "false",
        },
        bar, element("span", { class: "w-rank" }, String(first + n + 1)),
        element("span", {}, nameOf(view, head)), element("span", { class: "w-number" }, readable(value, isSigned(score), 3)),
      );
      row.style.top = `${(first + n) * RANK_ROW}px`;
      return row;
    }));
    markRows();
  }

  function markRows() {
    const score = chosenScore(scores, state);
    const [own, under] = [chosen, hovered].map((head) => (head ? rankOf(score, head) : -1));
    list.removeAttribute("aria-activedescendant");
    for (const row of /** @type {NodeListOf<HTMLElement>} */ (rows.childNodes)) {
      const rank = Number(row.dataset.rank);
      row.setAttribute("aria-selected", String(rank === own));
      row.classList.toggle("w-hovered", rank === under);
      if (rank === own) list.setAttribute("aria-activedescendant", row.id);
    }
  }

  /** Scrolls to the chosen row, unless it is in view. */
  function reveal() {
    const top = chosen ? rankOf(chosenScore(scores, state), chosen) * RANK_ROW : 0;
    if (top < list.scrollTop) list.scrollTop = top - RANK_ROW;
    else if (top + RANK_ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + 2 * RANK_ROW - list.clientHeight;
  }

  /** @type {EvidencePane["choose"]} */
  function choose(head) {
    if (!scores.length || String(head) === String(chosen)) return;
    const isFirst = chosen === null;
    chosen = head;
    fill();
    if (isFirst) list.scrollTop = scroll.top;
    else reveal();
  }

  /** @type {EvidencePane["hover"]} */
  function hover(head) {
    hovered = head;
    if (scores.length) markRows();
  }

  /** Chooses the head a number of ranks away.
   *  @type {EvidencePane["move"]} */
  function move(down) {
    const score = chosenScore(scores, state);
    const { order, count } = rankingOf(score);
    if (chosen && count) onPick(order[clamp(rankOf(score, chosen) + down, 0, count - 1)]);
  }

  function refresh() {
    if (!scores.length) return;
    const score = chosenScore(scores, state);
    const { count } = rankingOf(score);
    heading.textContent = `${count} heads by ${score.short || score.name}`;
    heading.title = heading.textContent;
    list.setAttribute("aria-label", heading.textContent);
    fill();
  }

  const observer = new ResizeObserver(() => { if (scores.length) fill(); });
  observer.observe(list);
  return { box: list, show, hover, choose, move, refresh, dispose: () => observer.disconnect() };
}

/** The score of a head.
 *  @type {(score: Score, head: Cell) => number} */
function scoreOf(score, [layer, head]) {
  const { shape: [, heads], data } = decodedOnce(score.values);
  return data[layer * heads + head];
}

/** @type {(score: Score) => boolean} */
function isSigned(score) {
  return scaleOf(score).kind === "diverging";
}

/** The interval of a head's score in words; empty if there is none.
 *  @type {(score: Score, head: Cell) => string} */
function intervalOf(score, head) {
  if (!score.low || !score.high) return "";
  const [low, high] = [score.low, score.high].map((values) => scoreOf({ ...score, values }, head));
  return intervalText(low, high, isSigned(score));
}
