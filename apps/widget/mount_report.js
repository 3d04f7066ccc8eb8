"use strict";
// The widget in a page: <div class="views" data-views="ID"> shows what <script type="application/json" id="ID"> has.

for (const box of document.querySelectorAll("div.views")) {
  const payload = JSON.parse(document.getElementById(box.dataset.views).textContent);
  mountViews(box, payload, { report: () => {} });
}
