"use strict";
// The widget in a page: <div class="views" data-views="NAME"> shows what
// <script type="application/json" id="views-NAME"> has.

for (const box of document.querySelectorAll("div.views")) {
  const payload = JSON.parse(document.getElementById(`views-${box.dataset.views}`).textContent);
  mountViews(box, payload, { report: () => {} });
}
