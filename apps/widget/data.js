// Numbers: decoding (typed arrays in base64, or lists with null for NaN), formatting and comparison.

/** @import { Cell, Decoded, Encoded, Nested, Numbers, Sent } from "./types.d.ts" */

/** @type {Record<string, { new (buffer: ArrayBuffer): Numbers, from(values: number[]): Numbers }>} */
export const ARRAYS = {
  float64: Float64Array, float32: Float32Array, int32: Int32Array, uint32: Uint32Array,
  int16: Int16Array, uint16: Uint16Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array,
};
const MINUS = "\u2212";
export const NONE = "no value";

/** Decodes an array to {shape, data} in row-major order; nested lists are accepted, with null as NaN.
 *  @type {(sent: Encoded | Nested) => Decoded} */
export function decoded(sent) {
  if (Array.isArray(sent)) {
    const shape = [];
    /** @type {unknown} */
    let level = sent;
    for (; Array.isArray(level); level = level[0]) shape.push(level.length);
    const values = /** @type {unknown[]} */ (sent).flat(Infinity);
    const flat = values.map((value) => (value === null ? NaN : Number(value)));
    return checked(shape, Float64Array.from(flat));
  }
  const bytes = bytesOf(sent.data);
  if (sent.dtype === "float16") {
    return checked(sent.shape, Float32Array.from(new Uint16Array(bytes.buffer), half));
  }
  const Kind = ARRAYS[sent.dtype];
  if (!Kind) throw new Error(`Arrays of ${sent.dtype} are not known.`);
  return checked(sent.shape, new Kind(bytes.buffer));
}

/** @type {WeakMap<object, Decoded>} */
const arrays = new WeakMap();

/** An array, decoded the first time and cached; a decoded {shape, data} is returned as it is.
 *  @type {(sent: Sent) => Decoded} */
export function decodedOnce(sent) {
  if (isDecoded(sent)) return sent;
  const array = arrays.get(sent) || decoded(sent);
  arrays.set(sent, array);
  return array;
}

/** What is added to the description of a number that is an estimate. */
export const ESTIMATE = "estimated to first order, not measured";

/** Whether the number at a place is an estimate, by the view's marks.
 *  @type {(marks: Sent | undefined, at: number) => boolean} */
export function isEstimate(marks, at) {
  return Boolean(marks && decodedOnce(marks).data[at]);
}

/** Whether an array was decoded before.
 *  @type {(sent: Sent) => sent is Decoded} */
function isDecoded(sent) {
  return !Array.isArray(sent) && ArrayBuffer.isView(sent.data);
}

/** The bytes of a text in base64.
 *  @type {(text: string) => Uint8Array<ArrayBuffer>} */
function bytesOf(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let n = 0; n < bytes.length; n += 1) bytes[n] = characters.charCodeAt(n);
  return bytes;
}

/** {shape, data}, after checking that the number of elements agrees.
 *  @type {(shape: number[], data: Numbers) => Decoded} */
function checked(shape, data) {
  const size = shape.reduce((product, length) => product * length, 1);
  if (data.length !== size) throw new Error(`${data.length} elements for shape [${shape}].`);
  return { shape, data };
}

/** The number that 16 bits stand for (IEEE 754 half precision).
 *  @type {(bits: number) => number} */
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -24 * fraction;
}

/** The shortest decimal that gives the same float32, or for other numbers the same float64.
 *  @type {(value: number) => string} */
export function exact(value) {
  if (Math.fround(value) !== value) return String(value);
  for (let digits = 1; digits < 10; digits += 1) {
    const text = String(Number(value.toPrecision(digits)));
    if (Math.fround(Number(text)) === value) return text;
  }
  return String(value);
}

/** A number with some significant digits for display, with a true minus sign; optionally with a plus.
 *  The same function as number in analyses/results/number_text.py: an exponent below 0.0001 and from a million on.
 *  @type {(value: unknown, signed?: boolean, digits?: number) => string} */
export function readable(value, signed = false, digits = 4) {
  if (typeof value !== "number") return value === null || value === undefined ? NONE : String(value);
  if (Number.isNaN(value)) return NONE;
  const plus = signed && value > 0 ? "+" : "";
  if (!Number.isFinite(value)) return value > 0 ? `${plus}\u221e` : `${MINUS}\u221e`;
  const rounded = Number(value.toPrecision(digits));
  if (rounded === 0) return "0";
  const [factor, exponent] = value.toExponential(digits - 1).split("e").map(Number);
  const text = exponent >= -4 && exponent < 6 ? String(rounded) : `${factor}e${exponent}`;
  return plus + minus(text);
}

/** A compact number format for cells with equal decimals, given the largest absolute value.
 *  @type {(largest: number) => (value: number) => string} */
export function cellFormat(largest) {
  if (!(largest > 0)) return (value) => (Number.isNaN(value) ? "" : "0");
  const magnitude = Math.floor(Math.log10(largest));
  if (magnitude < -3 || magnitude > 4) {
    return (value) => (Number.isNaN(value) ? "" : minus(value.toExponential(0)));
  }
  const places = Math.max(0, Math.min(4, 1 - magnitude + (magnitude === 0 ? 1 : 0)));
  return (value) => {
    if (Number.isNaN(value)) return "";
    if (value === 0) return "0";
    const text = value.toFixed(places);
    return minus(Number(text) === 0 ? text.replace("-", "") : text).replace(/^(\u2212?)0\./, "$1.");
  };
}

/** A text with minus signs in place of hyphens.
 *  @type {(text: string) => string} */
function minus(text) {
  return text.replace(/-/g, MINUS);
}

/** A value with its unit.
 *  @type {(value: unknown, unit?: string, signed?: boolean) => string} */
export function withUnit(value, unit, signed = false) {
  const text = readable(value, signed);
  return unit && text !== NONE ? `${text} ${unit}` : text;
}

/** The range of the numbers of masses, which is their unit on an axis and is left out beside a number. */
const SHARE = "0 to 1";

/** A value with its unit, unless that is a range.
 *  @type {(value: number, unit: string) => string} */
export function withMeasure(value, unit) {
  return withUnit(value, unit === SHARE ? "" : unit);
}

/** An interval in words; empty if it is NaN.
 *  @type {(low: number, high: number, signed?: boolean) => string} */
export function intervalText(low, high, signed) {
  if (Number.isNaN(low) || Number.isNaN(high)) return "";
  return `95 % interval ${readable(low, signed)} to ${readable(high, signed)}`;
}

/** The heads named by the keys of an object: [[layer, head], …].
 *  @type {(named?: object | null) => Cell[]} */
export function headsOf(named) {
  return Object.keys(named || {}).flatMap((name) => {
    const found = /^(?:\w+\.)?L(\d+)H(\d+)$/.exec(name);
    return found ? [[Number(found[1]), Number(found[2])]] : [];
  });
}

/** Whether two JSON values are equal.
 *  @type {(one: unknown, other: unknown) => boolean} */
export function same(one, other) {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || !one || !other) return false;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const others = /** @type {Record<string, unknown>} */ (other);
  const entries = Object.entries(one);
  return entries.length === Object.keys(other).length
    && entries.every(([name, value]) => same(value, others[name]));
}

/** A text as a part of a file name.
 *  @type {(text: string) => string} */
export function slug(text) {
  return String(text).normalize("NFKD").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|-+$/g, "").slice(0, 60);
}

/** The smallest and the largest finite number; [0, 1] if there is none.
 *  @type {(values: Iterable<number>) => [low: number, high: number]} */
export function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low > high ? [0, 1] : [low, high];
}

/** A number limited to an interval.
 *  @type {(value: number, low: number, high: number) => number} */
export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

/** The name of a head.
 *  @type {(layer: number, head: number) => string} */
export function headName(layer, head) {
  return `L${layer}H${head}`;
}
