// The view "tokens": tokens in lines, each coloured by a value.

/**
 * @import {
 *   Box, Controller, Description, Frame, Mount, Picture, Scale, StripOptions, Tints, TokenStrip,
 *   TokensView,
 * } from "./types.d.ts"
 */
import { LIGHT, colourOf, css, ofHex, textOn } from "./colours.js";
import { clamp, readable, same } from "./data.js";
import { dataTablesOf, numbers } from "./data_tables.js";
import { LEGEND, SMALL, contextOf, font, legend, legendWidth, widest, write } from "./draw.js";
import { element, focusedBeside } from "./elements.js";
import { frame, frameKey, readingOf } from "./frame.js";
import { sized } from "./surface.js";

/** A strip of tokens; options: those of a view "tokens", label, focusable, onHover, onPick, onDouble.
 *  @type {(mount: Mount, options: StripOptions) => TokenStrip} */
export function tokenStrip(mount, options) {
  const masked = new Set(options.masked || []);
  const spans = options.tokens.map((token, n) => tokenElement(token, n, options, masked));
  const root = element("div", {
    class: "w-strip", tabindex: options.focusable === false ? "-1" : "0", role: "application",
    "aria-roledescription": "tokens", "aria-label": options.label || "tokens",
  }, ...spans);
  /** @type {Tints | null} */
  let values = null;

  /** @type {(event: Event) => number | null} */
  const indexOf = (event) => {
    /** @type {HTMLElement | null} */
    const own = event.target instanceof Element ? event.target.closest(".w-token") : null;
    return own ? Number(own.dataset.position) : null;
  };
  root.addEventListener("pointerover", (event) => {
    const n = indexOf(event);
    if (n === null) return;
    mount.tip(describe(n), event.clientX, event.clientY);
    if (options.onHover) options.onHover(n);
  });
  root.addEventListener("pointerleave", () => {
    mount.tip(null);
    if (options.onHover) options.onHover(null);
  });
  root.addEventListener("click", (event) => {
    const n = indexOf(event);
    const second = options.onDouble && event.detail > 1;  // part of a double click, reported on its own
    if (n !== null && options.onPick && !second) options.onPick(n, event);
  });
  root.addEventListener("dblclick", (event) => {
    const n = indexOf(event);
    if (n !== null && options.onDouble) options.onDouble(n, event);
  });

  /** Colours the tokens by {values, scale, unit}; null removes the colours.
   *  @type {TokenStrip["tint"]} */
  function tint(next) {
    values = next;
    const dark = mount.theme().dark;
    spans.forEach((span, n) => span.classList.toggle("w-none", Number.isNaN(next?.values[n])));
    paint(spans.map((_, n) => {
      const value = next?.values[n];
      return !next || value === undefined || Number.isNaN(value) ? null : colourOf(tinted(next.scale), value, dark);
    }));
  }

  /** @type {TokenStrip["paint"]} */
  function paint(colours) {
    spans.forEach((span, n) => {
      const colour = colours[n];
      span.style.backgroundColor = colour ? css(colour) : "";
      span.style.color = colour ? textOn(colour) : "";
    });
  }

  /** @type {TokenStrip["describe"]} */
  function describe(n) {
    if (options.describe) return options.describe(n);
    /** @type {Description & { lines: string[] }} */
    const own = { name: `position ${n} '${options.tokens[n]}'`, lines: [] };
    if (options.ids) own.text = `id ${options.ids[n]}`;
    if (options.roles) own.lines.push(`role: ${options.roles[n]}`);
    if (masked.has(n)) own.lines.push("masked");
    if (options.aligned) own.lines.push(`${options.below || "corrupted"} '${options.aligned[n]}'`);
    if (!values) return own;
    return { ...own, value: values.values[n], unit: values.unit, signed: values.scale.kind === "diverging" };
  }

  /** @type {TokenStrip["choose"]} */
  function choose(n) {
    spans.forEach((span, own) => span.classList.toggle("w-chosen", own === n));
    const focused = root.contains(focusedBeside(root));
    if (focused && n !== null && spans[n]) spans[n].scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  return { root, tint, paint, choose, describe, spans, count: spans.length };
}

/** The scale for backgrounds of text, on which values from zero up are light tints.
 *  @type {(scale: Scale) => Scale} */
export function tinted(scale) {
  return scale.kind === "sequential" ? { ...scale, kind: "tint" } : scale;
}

/** @type {(token: string, n: number, options: StripOptions, masked: Set<number>) => HTMLElement} */
function tokenElement(token, n, options, masked) {
  const classes = ["w-token"];
  if (masked.has(n)) classes.push("w-masked");
  if (options.differs && options.differs.has(n)) classes.push("w-differs");
  const other = options.aligned ? element("bdi", { class: "w-other" }, options.aligned[n]) : null;
  const role = options.roles ? options.roles[n] : null;
  const made = element(
    "span", { class: classes.join(" "), "data-position": n, "data-role": role }, element("bdi", {}, token), other,
  );
  if (options.bos && n === 0) made.prepend(element("span", { class: "w-bos" }, "BOS"));
  return made;
}

/** What the lines below the tokens of a chat mean; null without roles.
 *  @type {(roles: string[] | undefined) => HTMLElement | null} */
export function roleLegend(roles) {
  if (!roles) return null;
  const keys = [...new Set(roles)].map((role) => element("span", { class: "w-token", "data-role": role }, role));
  return element("p", { class: "w-roles" }, "whose each token is: ", ...keys);
}

/** The legend of a scale as an element.
 *  @type {(
 *    mount: Mount, scale: Scale, unit?: string,
 *  ) => { element: HTMLElement, refresh(): void, set(next: Scale): void }} */
export function legendElement(mount, scale, unit) {
  const canvas = element("canvas", {
    class: "w-legend", role: "img",
    "aria-label": `from ${readable(scale.low)} to ${readable(scale.high)} ${unit || ""}`,
  });
  const drawIt = () => {
    const measurer = contextOf(canvas);
    measurer.font = font(SMALL);
    const width = legendWidth(scale, unit, (text) => measurer.measureText(text).width) + 4;
    legend(sized(canvas, { width, height: 22 }, mount.ratio()), mount.theme(), tinted(scale), unit, 2, 10);
  };
  drawIt();
  return {
    element: canvas, refresh: drawIt, set: (next) => { if (!same(next, scale)) { scale = next; drawIt(); } },
  };
}

/** The controller of a view "tokens".
 *  @type {(mount: Mount, view: TokensView) => Controller} */
export function tokensView(mount, view) {
  const values = view.values ? {
    values: numbers(view.values), scale: view.scale || { kind: "sequential", low: 0, high: 1 },
    unit: view.unit,
  } : null;
  /** @type {(n: number) => boolean | undefined} */
  const differing = (n) => view.aligned && view.tokens[n] !== view.aligned[n];
  const differs = new Set([...view.tokens.keys()].filter(differing));
  const own = frame(mount, view, {
    dataTables: () => dataTablesOf(view), describe: () => (at === null ? null : strip.describe(at)),
    picture: () => stripPicture(view, values),
  });
  const { double } = view;
  /** @type {number | null} */
  let at = null;
  const strip = tokenStrip(mount, {
    ...view, label: view.title, differs, onPick: pick,
    onDouble: double ? (n) => send(n, double) : null,
  });
  own.body.append(strip.root);
  const roles = roleLegend(view.roles);
  if (roles) own.body.append(roles);
  const key = values ? legendElement(mount, values.scale, view.unit) : null;
  if (key) own.body.append(key.element);
  strip.root.addEventListener(
    "keydown", (event) => stripKeys(event, mount, own, at, strip.count, choose, pick, view.tokens),
  );
  refresh();
  mount.defer(() => { fromSelection(); own.ready(); });

  function refresh() {
    strip.tint(values);
    if (key) key.refresh();
  }

  /** @type {(n: number | null, aloud?: boolean) => void} */
  function choose(n, aloud = true) {
    at = n;
    strip.choose(n);
    own.selected(n === null ? null : [n], n === null ? null : strip.describe(n));
    if (aloud && n !== null) mount.announce(readingOf(strip.describe(n)));
  }

  /** @type {(n: number) => void} */
  function pick(n) {
    choose(n);
    if (!view.pick) return;
    mount.select({ position: n }, { quiet: true });
    send(n, view.pick);
  }

  /** @type {(n: number, pick: string) => void} */
  function send(n, pick) {
    mount.report({ view: view.id, pick, row: n, name: view.tokens[n] });
  }

  function fromSelection() {
    const { position } = mount.selection();
    const wanted = view.pick === "position" ? position : at ?? view.at?.[0] ?? null;
    if (wanted !== null && wanted !== at && wanted < strip.count) choose(wanted, false);
  }

  return {
    root: own.root, focus: () => strip.root.focus(), refresh, fromSelection, dispose: () => {},
    scrolled: strip.root,
  };
}

/** Handles the keys of a strip of tokens.
 *  @type {(
 *    event: KeyboardEvent, mount: Mount, own: Frame, at: number | null, count: number,
 *    choose: (n: number | null) => void, pick: (n: number) => void, tokens: string[],
 *  ) => void} */
function stripKeys(event, mount, own, at, count, choose, pick, tokens) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const last = count - 1;
  const to = { ArrowLeft: (at ?? 1) - 1, ArrowRight: (at ?? -1) + 1, Home: 0, End: last }[event.key];
  if (to !== undefined) choose(clamp(to, 0, last));
  else if (event.key === "Enter" && at !== null) pick(at);
  else if (event.key === "Escape") choose(null);
  else if (event.key === "/") mount.search(own.body, tokens, choose);
  else if (!frameKey(mount, own, event.key)) return;
  event.preventDefault();
  event.stopPropagation();
}

/** A strip for a saved picture, with the corrupted prompt below the tokens.
 *  @type {(view: TokensView, values: Tints | null) => Picture} */
export function stripPicture(view, values) {
  const [width, cell] = [760, 22];
  const rows = view.aligned ? [view.tokens, view.aligned] : [view.tokens];
  const line = cell * rows.length + 6;
  const measurer = contextOf(document.createElement("canvas"));
  measurer.font = font(13);
  /** @type {Box[]} */
  const places = [];
  let [x, row] = [0, 0];
  view.tokens.forEach((_, n) => {
    const wide = widest(rows.map((own) => own[n]), (text) => measurer.measureText(text).width) + 10;
    if (x && x + wide > width) [x, row] = [0, row + 1];
    places.push([x, row * line, wide, cell * rows.length]);
    x += wide + 3;
  });
  const height = (row + 1) * line + (values ? LEGEND : 4);
  /** @type {Picture["paint"]} */
  const paintStrip = (ctx, theme) => {
    places.forEach(([left, top, wide, high], n) => {
      const colour = !values || Number.isNaN(values.values[n]) ? ofHex(LIGHT.wash) : colourOf(
        tinted(values.scale), values.values[n], theme.dark,
      );
      ctx.fillStyle = css(colour);
      ctx.fillRect(left, top, wide, high);
      rows.forEach((own, at) => write(ctx, own[n], left + 5, top + cell * (at + 0.5), {
        colour: textOn(colour), size: 13, weight: own[n] === rows[0][n] ? 400 : 700,
      }));
    });
    if (values) legend(ctx, theme, tinted(values.scale), view.unit, 0, height - 12);
  };
  return { width, height, paint: paintStrip };
}
