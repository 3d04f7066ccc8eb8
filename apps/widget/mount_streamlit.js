"use strict";
// The widget as a component of Streamlit (API v2): called at every rerun with the data of that run.

const mounts = new WeakMap();

export default function (component) {
  const { parentElement, data, setTriggerValue } = component;
  const host = { report: (event) => setTriggerValue("picked", event) };
  const mounted = mounts.get(parentElement);
  if (mounted) {
    mounted.host.report = host.report;
    mounted.views.update(data);
  } else {
    mounts.set(parentElement, { host, views: mountViews(parentElement, data, host) });
  }
  return () => {
    const own = mounts.get(parentElement);
    if (!own) return;
    mounts.delete(parentElement);
    own.views.dispose();
  };
}
