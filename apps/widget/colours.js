// Colours of values on a scale, and colours of the page.

/** @import { Colour, Scale, ScaleKind, Theme } from "./types.d.ts" */
import { clamp } from "./data.js";

const CIVIDIS = [
  "#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838",
];
/** Colours of curves, distinguishable with colour-blindness (Okabe and Ito 2008). */
export const LINES = {
  light: ["#0072b2", "#d55e00", "#009e73", "#b4568f", "#b87f00", "#2b8fc7"],
  dark: ["#56b4e9", "#f0813a", "#1fc59a", "#e39ac6", "#e6b422", "#8fd0f5"],
};
/** Number of steps of a scale; odd, so that zero has the middle colour. */
export const STEPS = 257;
/** Hues of the diverging scale, distinguishable with colour-blindness: purple below zero, orange above. */
const BELOW_HUE = 300;
const ABOVE_HUE = 55;
const CHROMA = 0.15;
/** @type {Theme} */
export const LIGHT = {
  paper: "#ffffff", ink: "#1f2430", soft: "#5b6372", line: "#dfe3ea", wash: "#f5f6f9",
  accent: "#b35806", link: "#0072b2", dark: false,
};
/** @type {Map<string, Uint8Array>} */
const ramps = new Map();

/** Red, green and blue (0 to 255) of a colour in OKLCH (Ottosson 2020), clipped to the sRGB gamut.
 *  @type {(lightness: number, chroma: number, hue: number) => Colour} */
function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((x) => Math.round(255 * clamp(x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055, 0, 1)));
}

/** Red, green and blue of #rrggbb.
 *  @type {(hex: string) => Colour} */
export function ofHex(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** The colour at a place from 0 to 1, interpolated between equally spaced colours.
 *  @type {(colours: Colour[], place: number) => Colour} */
function between(colours, place) {
  const at = place * (colours.length - 1);
  const first = Math.min(Math.floor(at), colours.length - 2);
  return colours[first].map((x, channel) => Math.round(x + (at - first) * (colours[first + 1][channel] - x)));
}

/** The colour of a scale at a place from 0 to 1.
 *  @type {(kind: ScaleKind, dark: boolean, place: number) => Colour} */
export function colourAt(kind, dark, place) {
  if (kind === "sequential") return between(CIVIDIS.map(ofHex), place);
  const [centre, end] = dark ? [0.27, 0.82] : [0.975, 0.47];
  if (kind === "tint") return oklch(centre + (dark ? 0.35 : -0.13) * place, 0.13 * place, 88);
  if (kind === "grey") return oklch(centre + (end - centre) * (0.12 + 0.6 * place), 0, 0);
  const size = Math.abs(2 * place - 1);
  return oklch(centre + (end - centre) * size, CHROMA * size ** 0.6, place < 0.5 ? BELOW_HUE : ABOVE_HUE);
}

/** The colours of a scale, as bytes: red, green and blue of each step.
 *  @type {(kind: ScaleKind, dark: boolean) => Uint8Array} */
export function ramp(kind, dark) {
  const name = `${kind} ${dark}`;
  const made = ramps.get(name);
  if (made) return made;
  const steps = Array.from({ length: STEPS }, (_, n) => colourAt(kind, dark, n / (STEPS - 1)));
  const colours = Uint8Array.from(steps.flat());
  ramps.set(name, colours);
  return colours;
}

/** The function from values to places from 0 to 1 on a scale; NaN stays NaN. Of numbers below zero that say
 *  that a component helps, the places are mirrored, so that what helps has one colour.
 *  @type {(scale: Scale) => (value: number) => number} */
export function placing({ kind, low, high, root, helps }) {
  if (kind === "diverging") {
    const end = Math.max(Math.abs(low), Math.abs(high)) || 1;
    const sign = helps === "below" ? -1 : 1;
    /** @type {(value: number) => number} */
    const sized = (value) => (root ? Math.sqrt(Math.min(1, value / end)) : Math.min(1, value / end));
    return (value) => 0.5 + (sign * (value < 0 ? -sized(-value) : sized(value))) / 2;
  }
  const span = high - low || 1;
  /** @type {(value: number) => number} */
  const linear = (value) => Math.min(1, Math.max(0, (value - low) / span));
  return root ? (value) => Math.sqrt(linear(value)) : linear;
}

/** The place from 0 to 1 of a value on a scale.
 *  @type {(scale: Scale, value: number) => number} */
export function placeOf(scale, value) {
  return placing(scale)(value);
}

/** Red, green and blue of a value.
 *  @type {(scale: Scale, value: number, dark: boolean) => Colour} */
export function colourOf(scale, value, dark) {
  const step = Math.round(placeOf(scale, value) * (STEPS - 1));
  return Array.from(ramp(scale.kind, dark).subarray(3 * step, 3 * step + 3));
}

/** A colour in CSS syntax.
 *  @type {(colour: Colour, alpha?: number) => string} */
export function css([red, green, blue], alpha = 1) {
  return alpha === 1 ? `rgb(${red} ${green} ${blue})` : `rgb(${red} ${green} ${blue} / ${alpha})`;
}

/** Relative luminance (WCAG 2).
 *  @type {(colour: Colour) => number} */
export function luminance(colour) {
  const [r, g, b] = colour.map((x) => (x <= 10 ? x / 3294.6 : ((x / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Contrast of two colours (WCAG 2), from 1 to 21.
 *  @type {(one: Colour, other: Colour) => number} */
export function contrast(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

/** The colour of text on a background: black or white, whichever has more contrast (at least 4.5).
 *  @type {(colour: Colour) => string} */
export function textOn(colour) {
  return contrast(colour, [0, 0, 0]) >= contrast(colour, [255, 255, 255]) ? "#000000" : "#ffffff";
}

/** The scale with its ends divided by a factor.
 *  @type {(scale: Scale, factor: number) => Scale} */
export function contrasted(scale, factor) {
  return { ...scale, low: scale.low / factor, high: scale.high / factor };
}

/** The colours of an element from its style sheet; sets the class w-dark if the page is dark.
 *  @type {(root: Element) => Theme} */
export function themeOf(root) {
  const style = getComputedStyle(root);
  const paper = (style.backgroundColor.match(/[\d.]+/g) || [255, 255, 255]).slice(0, 3).map(Number);
  const dark = luminance(paper) < 0.2;
  root.classList.toggle("w-dark", dark);
  const names = /** @type {const} */ (["paper", "ink", "soft", "line", "wash", "accent", "link"]);
  const theme = Object.fromEntries(names.map((name) => [
    name, style.getPropertyValue(`--w-${name}`).trim() || LIGHT[name],
  ]));
  return /** @type {Theme} */ ({ ...theme, dark });
}
