// A zip archive of texts, without compression.

/** @typedef {{ name: string, text: string }} File */

/** The date of all files, which archives must have: 1 January 1980. */
const DATE = 0x21;
/** Names are in UTF-8. */
const FLAGS = 0x0800;
const VERSION = 20;

/** The archive of some files, whose names must differ.
 *  @type {(files: File[]) => Uint8Array<ArrayBuffer>} */
export function zipped(files) {
  const encoder = new TextEncoder();
  /** @type {number[][]} */
  const directory = [];
  /** @type {Uint8Array[]} */
  const parts = [];
  let offset = 0;
  for (const file of files) {
    const [name, data] = [encoder.encode(file.name), encoder.encode(file.text)];
    const sizes = [...u32(crc32(data)), ...u32(data.length), ...u32(data.length)];
    const common = [...u16(VERSION), ...u16(FLAGS), ...u16(0), ...u16(0), ...u16(DATE), ...sizes, ...u16(name.length)];
    const local = [...u32(0x04034b50), ...common, ...u16(0), ...name];
    directory.push([
      ...u32(0x02014b50), ...u16(VERSION), ...common, ...u16(0), ...u16(0), ...u16(0), ...u16(0), ...u32(0),
      ...u32(offset), ...name,
    ]);
    parts.push(Uint8Array.from(local), data);
    offset += local.length + data.length;
  }
  const listed = directory.flat();
  const count = u16(files.length);
  parts.push(Uint8Array.from([
    ...listed, ...u32(0x06054b50), ...u16(0), ...u16(0), ...count, ...count, ...u32(listed.length),
    ...u32(offset), ...u16(0),
  ]));
  const archive = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    archive.set(part, at);
    at += part.length;
  }
  return archive;
}

/** Two bytes, the lower one first.
 *  @type {(value: number) => number[]} */
function u16(value) {
  return [value & 255, (value >>> 8) & 255];
}

/** Four bytes, the lowest one first.
 *  @type {(value: number) => number[]} */
function u32(value) {
  return [...u16(value), ...u16(value >>> 16)];
}

/** The checksum of an archive's files (CRC-32, ISO 3309).
 *  @type {(data: Uint8Array) => number} */
function crc32(data) {
  let crc = 0xffffffff;
  for (const byte of data) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}
