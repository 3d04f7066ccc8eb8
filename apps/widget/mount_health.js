// An invisible Streamlit component that says so when the explorer's server has stopped, and what to do.

/** @import { Component } from "./types.d.ts" */
import { button, element } from "./elements.js";

const INTERVAL = 3000;
/** Failures after which the server has stopped; a single one may be a change of the network. */
const FAILURES = 2;
const PATIENCE = 10000;
const MESSAGE = "The explorer\u2019s server has stopped. Start \u201cinterp explore\u201d again; reload restores this view.";

/** @param {Component<object>} component */
export default function (component) {
  const root = component.parentElement.getRootNode();
  globalThis.interpHealth ||= watched(root instanceof ShadowRoot ? root.host : component.parentElement);
}

/** Asks the server at intervals whether it is there; returns the timer.
 *  @type {(parent: Element) => number} */
function watched(parent) {
  let [failures, asking] = [0, false];
  const box = element(
    "div", { class: "interp-stopped", role: "alertdialog", "aria-live": "assertive", "aria-label": "server" },
    element("p", {}, MESSAGE), button("Reload", "Load the page again", () => window.location.reload()),
  );
  const style = getComputedStyle(parent);
  box.style.cssText = "position: fixed; z-index: 2000000; left: 50%; bottom: 24px; translate: -50% 0;"
    + "width: min(480px, calc(100vw - 32px)); box-sizing: border-box; padding: 16px 20px; border-radius: 10px;"
    + "font: 15px/1.5 system-ui, sans-serif; border: 2px solid #b35806; box-shadow: 0 8px 32px rgb(0 0 0 / 0.35);";
  box.style.background = style.getPropertyValue("--st-background-color") || "#ffffff";
  box.style.color = style.getPropertyValue("--st-text-color") || "#1f2430";
  const again = /** @type {HTMLElement} */ (box.lastElementChild);
  again.style.cssText = "font: inherit; padding: 6px 14px; border-radius: 6px; border: 1px solid currentColor;"
    + "color: inherit; background: none; cursor: pointer;";

  async function ask() {
    if (document.hidden || asking) return;
    asking = true;
    failures = await isStopped() ? failures + 1 : 0;
    asking = false;
    const stopped = failures >= FAILURES;
    document.body.toggleAttribute("data-interp-stopped", stopped);
    if (stopped) document.body.append(box);
    else box.remove();
  }

  return window.setInterval(ask, INTERVAL);
}

/** Whether nothing answers at the server's port; a server that is busy is there.
 *  @type {() => Promise<boolean>} */
async function isStopped() {
  try {
    await fetch("/_stcore/health", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    return false;
  } catch (error) {
    return !(error instanceof DOMException);
  }
}
