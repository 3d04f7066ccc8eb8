// The widget on the pages of a site of heads. Texts have their tokens in a script that all pages share;
// a click on a head of the index opens its page.

/** @import { Picked, View } from "./types.d.ts" */
import { mountViews } from "./mount.js";

/** The view with the tokens of its texts.
 *  @type {(view: View) => View} */
function withTokens(view) {
  if (view.kind !== "texts" || view.shared === undefined) return view;
  const { tokens, keys } = (globalThis.interpTexts || {})[view.shared];
  return {
    ...view, texts: view.texts.map((text) => ({
      ...text, tokens: tokens[text.number], ...(keys ? { keys: keys[text.number] } : {}),
    })),
  };
}

/** @type {(event: Picked) => void} */
function openPage({ pick, name }) {
  if (pick === "point") window.location.href = `heads/${encodeURIComponent(String(name))}.html`;
}

for (const box of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("div.views"))) {
  const payload = JSON.parse(document.getElementById(`views-${box.dataset.views}`)?.textContent || "");
  mountViews(box, { ...payload, views: payload.views.map(withTokens) }, { report: openPage });
}
