// The pane of small patterns of a view "heads": of all heads, or of those that rank highest, and the collected set.

/** @import { Cell, HeadsState, HeadsView, Hidden, Mount, Store, Surface, SurfaceOptions } from "./types.d.ts" */
import { headName } from "./data.js";
import { imageOf } from "./draw.js";
import { button, choice, element } from "./elements.js";
import { chosenScore } from "./head_map.js";
import { describeHead } from "./head_parts.js";
import { pooled, thumbnailsPlot, weightScale, weightsOf } from "./patterns.js";
import { rankingOf } from "./ranking.js";
import { surface } from "./surface.js";

/** Number of heads that rank highest. */
const HIGHEST = 12;

/** @typedef {Surface & { redraw(): void, showFew(): void, showChips(): void }} SmallPatterns */

/** The pane; redraw is for changes of all patterns, showFew for those of the ranking.
 *  @type {(
 *    mount: Mount, view: HeadsView, store: Store, parent: HTMLElement, state: HeadsState,
 *    options: SurfaceOptions & { hidden(): Hidden },
 *  ) => SmallPatterns} */
export function smallPatterns(mount, view, store, parent, state, { onHover, onPick, hidden }) {
  const scores = view.scores || [];
  /** @type {Map<string, HTMLCanvasElement>} */
  const images = new Map();
  const chips = element("div", { class: "w-chips" });
  const few = choice("small patterns", [[false, "all"], [true, `${HIGHEST} highest`]], state.few, (on) => {
    state.few = on;
    show();
  });
  parent.append(element(
    "div", { class: "w-row" }, element("h4", {}, "Patterns"), scores.length ? few.element : null, chips,
  ));
  /** @type {Surface} */
  const drawing = surface(mount, parent, {
    label: "small patterns", windowed: true, scroll: state.scrolls.all, onHover, onPick,
  });

  function show() {
    const { order, count } = state.few && scores.length
      ? rankingOf(chosenScore(scores, state)) : { order: [], count: 0 };
    drawing.show(thumbnailsPlot(store, {
      image, heads: count ? order.slice(0, Math.min(HIGHEST, count)) : undefined, collected: () => mount.selection().heads, describe: (head) => describeHead(view, head),
    }));
  }

  /** @type {(layer: number, head: number) => HTMLCanvasElement} */
  function image(layer, head) {
    const name = `${layer} ${head}`;
    const made = images.get(name);
    if (made) return made;
    const small = pooled(store.thumbnail(layer, head));
    const scale = weightScale([], { root: state.root, difference: store.most });
    const drawn = imageOf(weightsOf(small, hidden()).data, small.keys, scale, mount.theme().dark);
    images.set(name, drawn);
    return drawn;
  }

  function redraw() {
    images.clear();
    show();
  }

  function showChips() {
    const { heads } = mount.selection();
    const made = heads.map((/** @type {Cell} */ head) => button(
      `${headName(...head)} ×`, "Remove from the set", () => mount.collect(head, view.id),
      { class: "w-button w-chip" },
    ));
    const clear = heads.length ? [button("clear", "Empty the set", () => mount.collect(null, view.id))] : [];
    chips.replaceChildren(
      ...(heads.length ? [] : [element("span", { class: "w-soft" }, "Shift-click a head to collect it")]), ...made,
      ...clear,
    );
  }

  return { ...drawing, redraw, showFew: () => { if (state.few) show(); }, showChips };
}
