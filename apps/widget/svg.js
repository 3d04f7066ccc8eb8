// A drawing context that writes SVG: the functions of a canvas that plots call, with the same results.
// Images with one pixel per value become rectangles, so that they stay sharp in print.

/** @import { Context, Picture } from "./types.d.ts" */
import { LIGHT } from "./colours.js";
import { contextOf } from "./draw.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
/** Largest number of rectangles of a drawing; further images are embedded as PNG. */
const MOST_RUNS = 30000;
/** From the middle of a letter down to its baseline, in units of the size of the font. */
const MIDDLE = 0.35;
/** Characters that XML does not allow. */
const NOT_XML = /[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu;
/** @type {Record<string, string>} */
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
/** @type {Record<string, string>} */
const ANCHORS = { center: "middle", right: "end" };
const IDENTITY = [1, 0, 0, 1, 0, 0];
/** What save() saves. */
const STATE = /** @type {const} */ ([
  "fillStyle", "strokeStyle", "lineWidth", "lineJoin", "globalAlpha", "font", "textAlign", "textBaseline",
  "matrix", "clipped", "dash",
]);

/** @typedef {Record<string, string | number | null | undefined>} Attributes */

/** A picture as the text of an SVG file; title and description are for screen readers.
 *  @type {(picture: Picture, texts?: { title?: string, description?: string }) => string} */
export function svgOf({ width, height, paint }, { title = "", description = "" } = {}) {
  const drawn = new SvgContext();
  paint(/** @type {Context} */ (/** @type {unknown} */ (drawn)), LIGHT);
  const size = tag("rect", { width, height, fill: LIGHT.paper });
  const texts = [["title", title], ["desc", description]].filter(([, text]) => text);
  return [
    `<svg xmlns="${NAMESPACE}" width="${rounded(width)}" height="${rounded(height)}" viewBox="0 0 ${rounded(width)} ${rounded(height)}" role="img">`,
    ...texts.map(([name, text]) => `<${name}>${escaped(text)}</${name}>`),
    size, ...drawn.parts, "</svg>", "",
  ].join("\n");
}

/** The part of CanvasRenderingContext2D that plots use. */
class SvgContext {
  constructor() {
    /** @type {string[]} */
    this.parts = [];
    this.fillStyle = "#000000";
    this.strokeStyle = "#000000";
    this.lineWidth = 1;
    this.lineJoin = "miter";
    this.globalAlpha = 1;
    this.font = "400 10px sans-serif";
    this.textAlign = "left";
    this.textBaseline = "alphabetic";
    this.imageSmoothingEnabled = true;
    this.matrix = IDENTITY;
    this.clipped = "";
    /** @type {number[]} */
    this.dash = [];
    /** @type {object[]} */
    this.saved = [];
    this.path = "";
    this.runs = 0;
    this.clips = 0;
  }

  save() {
    this.saved.push(Object.fromEntries(STATE.map((name) => [name, this[name]])));
  }

  restore() {
    Object.assign(this, this.saved.pop());
  }

  /** @param {number} x @param {number} y */
  translate(x, y) {
    const [a, b, c, d, e, f] = this.matrix;
    this.matrix = [a, b, c, d, a * x + c * y + e, b * x + d * y + f];
  }

  /** @param {number} angle */
  rotate(angle) {
    const [a, b, c, d, e, f] = this.matrix;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    this.matrix = [a * cos + c * sin, b * cos + d * sin, c * cos - a * sin, d * cos - b * sin, e, f];
  }

  /** @param {number[]} dash */
  setLineDash(dash) {
    this.dash = dash;
  }

  /** @param {string} text */
  measureText(text) {
    const measurer = contextOf(document.createElement("canvas"));
    measurer.font = this.font;
    return measurer.measureText(text);
  }

  // ---- paths --------------------------------------------------------------------------------

  beginPath() {
    this.path = "";
  }

  closePath() {
    this.path += "Z";
  }

  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.path += `M${rounded(x)} ${rounded(y)}`;
  }

  /** @param {number} x @param {number} y */
  lineTo(x, y) {
    this.path += `${this.path ? "L" : "M"}${rounded(x)} ${rounded(y)}`;
  }

  /** @param {...number} points */
  bezierCurveTo(...points) {
    this.path += `C${points.map(rounded).join(" ")}`;
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  rect(x, y, width, height) {
    this.path += `M${rounded(x)} ${rounded(y)}h${rounded(width)}v${rounded(height)}h${rounded(-width)}Z`;
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {number} radius */
  roundRect(x, y, width, height, radius) {
    const r = Math.min(radius, width / 2, height / 2);
    const [across, down] = [rounded(width - 2 * r), rounded(height - 2 * r)];
    /** @type {(dx: number, dy: number) => string} */
    const corner = (dx, dy) => `a${rounded(r)} ${rounded(r)} 0 0 1 ${rounded(dx)} ${rounded(dy)}`;
    this.path += `M${rounded(x + r)} ${rounded(y)}h${across}${corner(r, r)}v${down}${corner(-r, r)}h-${across}${corner(-r, -r)}v-${down}${corner(r, -r)}Z`;
  }

  /** A whole circle; plots draw no other arcs.
   *  @param {number} x @param {number} y @param {number} radius */
  arc(x, y, radius) {
    const half = `a${rounded(radius)} ${rounded(radius)} 0 1 0`;
    this.path += `M${rounded(x - radius)} ${rounded(y)}${half} ${rounded(2 * radius)} 0${half} ${rounded(-2 * radius)} 0Z`;
  }

  clip() {
    this.clips += 1;
    this.clipped = `clip-${this.clips}`;
    this.parts.push(`<clipPath id="${this.clipped}">${tag("path", { d: this.path })}</clipPath>`);
  }

  fill() {
    this.add("path", { d: this.path, ...this.filled() });
  }

  stroke() {
    this.add("path", { d: this.path, ...this.stroked() });
  }

  // ---- shapes -------------------------------------------------------------------------------

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  fillRect(x, y, width, height) {
    this.add("rect", { ...upright(x, y, width, height), ...this.filled() });
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  strokeRect(x, y, width, height) {
    this.add("rect", { ...upright(x, y, width, height), ...this.stroked() });
  }

  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    const [, weight, size, family] = /^(\d+) ([\d.]+)px (.+)$/.exec(this.font) || [];
    const down = this.textBaseline === "middle" ? MIDDLE * Number(size) : 0;
    this.add("text", {
      x, y: y + down, "font-family": family, "font-size": size, "font-weight": weight === "400" ? null : weight,
      "text-anchor": ANCHORS[this.textAlign], "xml:space": "preserve", ...this.filled(),
    }, escaped(text));
  }

  /** @param {HTMLCanvasElement} image @param {number} x @param {number} y @param {number} width @param {number} height */
  drawImage(image, x, y, width, height) {
    const runs = this.runs < MOST_RUNS ? runsOf(image) : null;
    this.runs += runs ? runs.size : 0;
    const place = `translate(${rounded(x)} ${rounded(y)}) scale(${width / image.width} ${height / image.height})`;
    if (!runs || this.runs > MOST_RUNS) {
      this.add("image", {
        x, y, width, height, href: image.toDataURL("image/png"), preserveAspectRatio: "none",
        style: "image-rendering: pixelated",
      });
      return;
    }
    const paths = Array.from(runs.paths, ([fill, d]) => tag("path", { fill, d }));
    this.add("g", {}, tag("g", { transform: place, "shape-rendering": "crispEdges" }, paths.join("")));
  }

  // ---- attributes ---------------------------------------------------------------------------

  filled() {
    const { colour, alpha } = painted(this.fillStyle, this.globalAlpha);
    return { fill: colour, "fill-opacity": alpha };
  }

  stroked() {
    const { colour, alpha } = painted(this.strokeStyle, this.globalAlpha);
    return {
      fill: "none", stroke: colour, "stroke-opacity": alpha, "stroke-width": this.lineWidth,
      "stroke-linejoin": this.lineJoin === "miter" ? null : this.lineJoin,
      "stroke-dasharray": this.dash.length ? this.dash.join(" ") : null,
    };
  }

  /** @param {string} name @param {Attributes} attributes @param {string} [contents] */
  add(name, attributes, contents) {
    const moved = this.matrix.some((value, n) => value !== IDENTITY[n]);
    this.parts.push(tag(name, {
      ...attributes, transform: moved ? `matrix(${this.matrix.map(rounded).join(" ")})` : null,
      "clip-path": this.clipped ? `url(#${this.clipped})` : null,
    }, contents));
  }
}

/** The pixels of an image as rectangles of equal colour, one path per colour; null if there are too many.
 *  @type {(image: HTMLCanvasElement) => { size: number, paths: Map<string, string> } | null} */
function runsOf(image) {
  const { width, height } = image;
  const { data } = contextOf(image).getImageData(0, 0, width, height);
  const pixels = new Uint32Array(data.buffer, data.byteOffset, width * height);
  /** @type {Map<string, string>} */
  const paths = new Map();
  let size = 0;
  for (let y = 0; y < height; y += 1) {
    for (let x = 0, next = 0; x < width; x = next) {
      const at = y * width + x;
      for (next = x + 1; next < width && pixels[at + next - x] === pixels[at]; next += 1);
      if (data[4 * at + 3] === 0) continue;
      size += 1;
      if (size > MOST_RUNS) return null;
      const colour = `#${hexadecimal(data[4 * at])}${hexadecimal(data[4 * at + 1])}${hexadecimal(data[4 * at + 2])}`;
      paths.set(colour, `${paths.get(colour) || ""}M${x} ${y}h${next - x}v1h${x - next}Z`);
    }
  }
  return { size, paths };
}

/** @type {(byte: number) => string} */
function hexadecimal(byte) {
  return byte.toString(16).padStart(2, "0");
}

/** A colour of the page as #rrggbb, which all programs read, and its opacity.
 *  @type {(colour: string, alpha: number) => { colour: string, alpha: number | null }} */
function painted(colour, alpha) {
  const [red, green, blue, own = "1"] = colour.startsWith("rgb") ? colour.match(/[\d.]+/g) || [] : [];
  const total = Number((alpha * Number(own)).toFixed(3));
  const hex = red ? `#${[red, green, blue].map((part) => hexadecimal(Math.round(Number(part)))).join("")}` : colour;
  return { colour: hex, alpha: total === 1 ? null : total };
}

/** Attributes of a rectangle, whose width and height are positive.
 *  @type {(x: number, y: number, width: number, height: number) => Attributes} */
function upright(x, y, width, height) {
  return {
    x: Math.min(x, x + width), y: Math.min(y, y + height), width: Math.abs(width), height: Math.abs(height),
  };
}

/** @type {(name: string, attributes: Attributes, contents?: string) => string} */
function tag(name, attributes, contents) {
  const written = Object.entries(attributes).filter(([, value]) => value !== null && value !== undefined).map(
    ([key, value]) => ` ${key}="${typeof value === "number" ? rounded(value) : escaped(String(value))}"`,
  ).join("");
  return contents === undefined ? `<${name}${written}/>` : `<${name}${written}>${contents}</${name}>`;
}

/** A number with at most three decimals.
 *  @type {(value: number) => number} */
function rounded(value) {
  return Math.round(value * 1000) / 1000 || 0;
}

/** A text for XML; characters that it does not allow are replaced.
 *  @type {(text: string) => string} */
export function escaped(text) {
  return text.replace(NOT_XML, "\uFFFD").replace(/[&<>"']/g, (character) => ENTITIES[character]);
}
