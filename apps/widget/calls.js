// Calls of a Streamlit component (API v2). While the component's script is being loaded, Streamlit may
// call it with older data after newer data. It cleans up such a call at once, and any other call when
// the element leaves the page.

/** Runs a task for a call, unless it is cleaned up at once; returns what Streamlit runs to clean up:
 *  another task, if the element has left the page.
 *  @type {(element: HTMLElement, task: () => void, onRemoved: () => void) => () => void} */
export function unlessCancelled(element, task, onRemoved) {
  const timer = setTimeout(task);
  return () => {
    clearTimeout(timer);
    setTimeout(() => { if (!element.isConnected) onRemoved(); });
  };
}
