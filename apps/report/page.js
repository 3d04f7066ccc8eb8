"use strict";
// A dot may link to a prompt inside a collapsed list.
function expand() {
  const target = document.getElementById(location.hash.slice(1));
  const list = target && target.closest("details");
  if (list && !list.open) {
    list.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", expand);
expand();
