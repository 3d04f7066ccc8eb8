// The widget in a report: a div of class "views" with data-views="NAME" shows the JSON payload of
// the script element with the id "views-NAME".

import { mountViews } from "./mount.js";

for (const box of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("div.views"))) {
  const script = document.getElementById(`views-${box.dataset.views}`);
  const payload = JSON.parse(script?.textContent || "");
  mountViews(box, payload, { report: () => {} });
}
