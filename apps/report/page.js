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

// A search field that filters the sections of an element: each word typed must begin a word of the text.
/** @type {(field: HTMLInputElement) => void} */
function filter(field) {
  const list = document.getElementById(field.dataset.filters || "");
  const sections = /** @type {HTMLElement[]} */ ([...(list?.children || [])]);
  const output = field.closest("p")?.querySelector("output");
  const words = sections.map((section) => ` ${section.innerText} ${section.dataset.words}`.toLowerCase());
  field.addEventListener("input", () => {
    const query = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    sections.forEach((section, number) => {
      section.hidden = !query.every((word) => words[number].includes(` ${word}`) || words[number].includes(`\n${word}`) || words[number].includes(`\t${word}`));
      found += section.hidden ? 0 : 1;
    });
    if (output) output.textContent = query.length ? `${found} of ${sections.length} heads` : "";
  });
}
/** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("[data-filters]")).forEach(filter);
