// Drawing functions: shortened text, ticks, hatching, the legend of a scale, values as pixels.

/** @import { Box, Context, Measure, Numbers, Scale, Theme, Writing } from "./types.d.ts" */
import { STEPS, placing, ramp } from "./colours.js";
import { clamp, readable } from "./data.js";

const FONT = 'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';
export const SMALL = 11;
const TEXT = 12;
const NICE = [1, 2, 5];
export const TITLE_ROOM = 20;
export const LEGEND = 34;

/** The context that draws on a canvas.
 *  @type {(canvas: HTMLCanvasElement) => Context} */
export function contextOf(canvas) {
  return /** @type {Context} */ (canvas.getContext("2d"));
}

/** A font in the syntax of a canvas.
 *  @type {(size?: number, weight?: number) => string} */
export function font(size = TEXT, weight = 400) {
  return `${weight} ${size}px ${FONT}`;
}

/** A text shortened to a width, with an ellipsis; measure(text) is the width of a text.
 *  @type {(text: string, room: number, measure: Measure) => string} */
export function elided(text, room, measure) {
  if (measure(text) <= room) return text;
  const characters = Array.from(text);
  let [low, high] = [0, characters.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(`${characters.slice(0, middle).join("")}…`) <= room) low = middle;
    else high = middle - 1;
  }
  return low ? `${characters.slice(0, low).join("")}…` : "";
}

/** A text broken into lines of at most a given width.
 *  @type {(text: string, room: number, measure: Measure) => string[]} */
export function wrapped(text, room, measure) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines[lines.length - 1];
    if (last && measure(`${last} ${word}`) > room) lines.push(word);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  return lines;
}

/** The interval of drawn labels (every n-th), if a label needs a width and labels are a step apart.
 *  @type {(need: number, step: number) => number} */
export function tickStep(need, step) {
  for (let power = 1; ; power *= 10) {
    for (const nice of NICE) if (nice * power * step >= need) return nice * power;
  }
}

/** About count round numbers between two ends, at least a given distance apart.
 *  @type {(low: number, high: number, count: number, least?: number) => number[]} */
export function niceTicks(low, high, count, least = 0) {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / count));
  const near = power * ([1, 2, 5, 10].find((nice) => span / (nice * power) <= count) || 10);
  const step = Math.max(near, least);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * span; n += 1) {
    ticks.push(Number((n * step).toPrecision(12)));
  }
  return ticks;
}

/** The width of the widest text.
 *  @type {(texts: string[], measure: Measure) => number} */
export function widest(texts, measure) {
  return texts.reduce((most, text) => Math.max(most, measure(text)), 0);
}

/** Draws a text; options: colour, size, weight, align, baseline, angle.
 *  @type {(ctx: Context, text: string, x: number, y: number, options: Writing) => void} */
export function write(ctx, text, x, y, options) {
  ctx.save();
  ctx.translate(x, y);
  if (options.angle) ctx.rotate(options.angle);
  ctx.font = font(options.size, options.weight);
  ctx.fillStyle = options.colour;
  ctx.textAlign = options.align || "left";
  ctx.textBaseline = options.baseline || "middle";
  ctx.fillText(text, 0, 0);
  ctx.restore();
}

/** Diagonal lines, as where there is no value.
 *  @type {(ctx: Context, colour: string, x: number, y: number, width: number, height: number) => void} */
export function hatch(ctx, colour, x, y, width, height) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, width, height);
  ctx.clip();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (let at = -height; at < width; at += 5) {
    ctx.moveTo(x + at, y + height);
    ctx.lineTo(x + at + height, y);
  }
  ctx.stroke();
  ctx.restore();
}

const BAR_LENGTH = 110;

/** The texts of a legend: both ends, at one of which a component helps, and the unit.
 *  @type {(scale: Scale, unit?: string) => string[]} */
function legendTexts(scale, unit) {
  const signed = scale.kind === "diverging";
  const end = Math.max(Math.abs(scale.low), Math.abs(scale.high));
  const [low, high] = (signed ? [-end, end] : [scale.low, scale.high]).map((value) => readable(value, signed, 3));
  const more = [scale.root ? "square root" : "", unit].filter(Boolean).join(" · ");
  if (!signed || !scale.helps) return [low, high, more];
  return scale.helps === "below" ? [`helps ${low}`, high, more] : [low, `${high} helps`, more];
}

/** The width of a legend.
 *  @type {(scale: Scale, unit: string | undefined, measure: Measure) => number} */
export function legendWidth(scale, unit, measure) {
  const [low, high, more] = legendTexts(scale, unit);
  return Math.ceil(measure(low) + BAR_LENGTH + measure(`${high}  ${more}`) + 14);
}

/** Draws a scale as a bar with its ends, zero and unit.
 *  @type {(ctx: Context, theme: Theme, scale: Scale, unit: string | undefined, x: number, y: number) => void} */
export function legend(ctx, theme, scale, unit, x, y) {
  const [low, high, more] = legendTexts(scale, unit);
  ctx.font = font(SMALL);
  const start = Math.round(x + ctx.measureText(low).width + 6);
  ctx.drawImage(rampImage(scale, theme.dark), start, y - 5, BAR_LENGTH, 10);
  write(ctx, low, x, y, { colour: theme.soft, size: SMALL });
  write(ctx, `${high}  ${more}`, start + BAR_LENGTH + 6, y, { colour: theme.soft, size: SMALL });
  if (scale.kind === "diverging") {
    ctx.fillStyle = theme.soft;
    ctx.fillRect(start + BAR_LENGTH / 2, y + 6, 1, 3);
  }
}

/** @type {Map<string, HTMLCanvasElement>} */
const rampImages = new Map();

/** An image of the colours of a scale from left to right.
 *  @type {(scale: Scale, dark: boolean) => HTMLCanvasElement} */
function rampImage({ kind, helps }, dark) {
  const name = `${kind} ${helps} ${dark}`;
  const made = rampImages.get(name);
  if (made) return made;
  const places = Float32Array.from({ length: STEPS }, (_, n) => n / (STEPS - 1));
  const scale = kind === "diverging" ? { kind, low: -1, high: 1, helps } : { kind, low: 0, high: 1 };
  const image = imageOf(kind === "diverging" ? places.map((x) => 2 * x - 1) : places, STEPS, scale, dark);
  rampImages.set(name, image);
  return image;
}

/** An image with one pixel per value; transparent for NaN.
 *  @type {(values: Numbers, columns: number, scale: Scale, dark: boolean) => HTMLCanvasElement} */
export function imageOf(values, columns, scale, dark) {
  const rows = values.length / columns;
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, columns);
  canvas.height = Math.max(1, rows);
  const ctx = contextOf(canvas);
  const image = ctx.createImageData(canvas.width, canvas.height);
  paint(image.data, values, scale, dark);
  ctx.putImageData(image, 0, 0);
  return canvas;
}

/** Sets the pixels of an image from values.
 *  @type {(pixels: Uint8ClampedArray, values: Numbers, scale: Scale, dark: boolean) => void} */
function paint(pixels, values, scale, dark) {
  const colours = ramp(scale.kind, dark);
  const place = placing(scale);
  for (let n = 0; n < values.length; n += 1) {
    const value = values[n];
    if (Number.isNaN(value)) continue;
    const step = 3 * Math.round(place(value) * (STEPS - 1));
    pixels[4 * n] = colours[step];
    pixels[4 * n + 1] = colours[step + 1];
    pixels[4 * n + 2] = colours[step + 2];
    pixels[4 * n + 3] = 255;
  }
}

/** Draws a frame around a rectangle that is visible on any colour.
 *  @type {(ctx: Context, theme: Theme, box: Box, colour?: string, weight?: number) => void} */
export function outline(ctx, theme, [x, y, width, height], colour = theme.ink, weight = 2) {
  ctx.lineJoin = "miter";
  ctx.setLineDash([]);
  ctx.strokeStyle = theme.paper;
  ctx.lineWidth = weight + 2;
  ctx.strokeRect(x, y, width, height);
  ctx.strokeStyle = colour;
  ctx.lineWidth = weight;
  ctx.strokeRect(x, y, width, height);
}

const BADGE_HEIGHT = 13;

/** The place of a badge in the top right corner of a cell; null if it does not fit into the cell.
 *  @type {(cell: Box, textWidth: number) => Box | null} */
export function badgePlace([x, y, width, height], textWidth) {
  const wide = textWidth + 5;
  if (wide > width || BADGE_HEIGHT > height) return null;
  return [x + width - wide, y, wide, BADGE_HEIGHT];
}

/** Outlines a cell of a set, with its number in it where that fits.
 *  @type {(ctx: Context, theme: Theme, cell: Box, number: string) => void} */
export function numbered(ctx, theme, cell, number) {
  const [x, y, width, height] = cell;
  ctx.strokeStyle = theme.ink;
  ctx.lineWidth = 1.5;
  ctx.strokeRect(x + 0.75, y + 0.75, width - 1.5, height - 1.5);
  ctx.font = font(9, 600);
  const place = badgePlace(cell, ctx.measureText(number).width);
  if (!place) return;
  ctx.fillStyle = theme.ink;
  ctx.fillRect(...place);
  write(ctx, number, place[0] + place[2] / 2, place[1] + place[3] / 2, {
    colour: theme.paper, size: 9, weight: 600, align: "center",
  });
}

/** Draws a label on a filled background, which covers what is below.
 *  @type {(
 *    ctx: Context, theme: Theme, text: string, x: number, y: number,
 *    options?: { size?: number, align?: Writing["align"], most?: number },
 *  ) => void} */
export function badge(ctx, theme, text, x, y, options = {}) {
  if (!text) return;
  ctx.font = font(options.size || SMALL, 600);
  const width = ctx.measureText(text).width + 8;
  const before = { left: 0, center: width / 2, right: width }[options.align || "left"];
  const left = clamp(x - before, 0, Math.max(0, (options.most || Infinity) - width));
  ctx.fillStyle = theme.ink;
  ctx.beginPath();
  ctx.roundRect(left, y - 9, width, 18, 4);
  ctx.fill();
  write(ctx, text, left + 4, y, { colour: theme.paper, size: options.size || SMALL, weight: 600 });
}
