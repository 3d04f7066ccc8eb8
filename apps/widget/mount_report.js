"use strict";
// The widget in a page: a div of class "views" with data-views="NAME" shows the payload in the
// JSON of the script element whose id is "views-NAME".

for (const box of document.querySelectorAll("div.views")) {
  const payload = JSON.parse(document.getElementById(`views-${box.dataset.views}`).textContent);
  mountViews(box, payload, { report: () => {} });
}
