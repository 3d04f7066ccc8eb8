"use strict";
const figure = JSON.parse(document.getElementById("figure").textContent);
Plotly.newPlot("map", figure.data, figure.layout, figure.config);

// A dot may lead to a prompt that is folded away.
function unfold() {
  const wanted = document.getElementById(location.hash.slice(1));
  const fold = wanted && wanted.closest("details");
  if (fold && !fold.open) {
    fold.open = true;
    wanted.scrollIntoView();
  }
}
addEventListener("hashchange", unfold);
unfold();
