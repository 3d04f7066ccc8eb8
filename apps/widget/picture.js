// Saved pictures: a drawing with title, note and metadata, as PNG and as SVG, in the colours of a light page.

/** @import { Mount, Picture, View } from "./types.d.ts" */
import { LIGHT } from "./colours.js";
import { slug } from "./data.js";
import { SMALL, contextOf, font, wrapped, write } from "./draw.js";
import { sized } from "./surface.js";
import { svgOf } from "./svg.js";

const PNG_RATIO = 2;
const MARGIN = 16;
/** Largest number of characters of the prompt below a picture. */
const MOST_PROMPT = 300;

/** @typedef {{ name: string, text: string }} File */

/** The name of a saved file without its extension; part names the part of the view that it shows.
 *  @type {(mount: Mount, view: View, part?: string) => string} */
export function fileStem(mount, view, part) {
  return [
    view.file || view.id, part, mount.meta().model,
  ].map((text) => slug(text || "")).filter(Boolean).join("-") || "figure";
}

/** A drawing with its title above, and its note and what is known of the run below.
 *  @type {(mount: Mount, view: View, drawn: Picture) => Picture & { title: string, facts: string }} */
function captioned(mount, view, { width, height, paint: drawTo, part, note = view.note }) {
  const { model, prompt, n, version } = mount.meta();
  const text = prompt && prompt.length > MOST_PROMPT ? `${prompt.slice(0, MOST_PROMPT)}…` : prompt;
  const facts = [
    model, text, n === undefined || n === null ? "" : `n = ${n}`, version,
  ].filter(Boolean).join("  ·  ");
  const [wide, measurer] = [Math.max(width + 2 * MARGIN, 360), contextOf(document.createElement("canvas"))];
  /** @type {(text: string) => string[]} */
  const lines = (text) => wrapped(text, wide - 2 * MARGIN, (own) => measurer.measureText(own).width);
  measurer.font = font(14, 600);
  const whole = [view.title, part].filter(Boolean).join(": ");
  const title = lines(whole);
  measurer.font = font(SMALL);
  const below = [view.run || "", note || "", facts].filter(Boolean).flatMap(lines);
  const top = 20 + 19 * title.length;
  const size = { width: wide, height: top + height + 18 + 15 * below.length };
  /** @type {Picture["paint"]} */
  const paint = (ctx, theme) => {
    title.forEach((text, at) => write(ctx, text, MARGIN, 20 + 19 * at, {
      colour: theme.ink, size: 14, weight: 600,
    }));
    below.forEach((text, at) => write(
      ctx, text, MARGIN, top + height + 12 + 15 * at, { colour: theme.soft, size: SMALL },
    ));
    ctx.save();
    ctx.translate(MARGIN, top);
    drawTo(ctx, theme);
    ctx.restore();
  };
  return { ...size, paint, title: whole, facts };
}

/** A picture on a canvas, for a PNG file.
 *  @type {(mount: Mount, view: View, drawn: Picture) => HTMLCanvasElement} */
export function pngOf(mount, view, drawn) {
  const whole = captioned(mount, view, drawn);
  const canvas = document.createElement("canvas");
  const ctx = sized(canvas, whole, PNG_RATIO);
  ctx.fillStyle = LIGHT.paper;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  whole.paint(ctx, LIGHT);
  return canvas;
}

/** Pictures of a view as SVG files with different names.
 *  @type {(mount: Mount, view: View, pictures: Picture[]) => File[]} */
export function svgFiles(mount, view, pictures) {
  return pictures.map((drawn) => {
    const whole = captioned(mount, view, drawn);
    const texts = { title: whole.title, description: [view.run, drawn.note ?? view.note, whole.facts].filter(Boolean).join(" ") };
    return { name: `${fileStem(mount, view, drawn.part)}.svg`, text: svgOf(whole, texts) };
  });
}
