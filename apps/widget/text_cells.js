// The cells of a text where a head attends: the keys of each query, the queries of each key, and their sums.

/** @import { SentText, TextCells, Weighted } from "./types.d.ts" */
import { decodedOnce } from "./data.js";

const BYTE = 255;
/** @type {WeakMap<SentText, TextCells>} */
const decodedTexts = new WeakMap();

/** The cells of a text, decoded the first time.
 *  @type {(text: SentText) => TextCells} */
export function textCells(text) {
  const before = decodedTexts.get(text);
  if (before) return before;
  const [count, key, weight] = [text.count, text.key, text.weight].map((sent) => decodedOnce(sent).data);
  const unit = weight instanceof Uint8Array ? BYTE : 1;
  /** @type {Weighted[][]} */
  const keys = text.tokens.map(() => []);
  /** @type {Weighted[][]} */
  const queries = (text.keys || text.tokens).map(() => []);
  let cell = 0;
  count.forEach((cells, query) => {
    for (let n = 0; n < cells; n += 1, cell += 1) {
      keys[query].push([key[cell], weight[cell] / unit]);
      queries[key[cell]].push([query, weight[cell] / unit]);
    }
  });
  for (const cells of [...keys, ...queries]) cells.sort(([, one], [, other]) => other - one);
  const made = {
    keys, queries, received: queries.map(total),
    given: keys.map((cells) => total(cells.filter(([position]) => position > 0))),
  };
  decodedTexts.set(text, made);
  return made;
}

/** @type {(cells: Weighted[]) => number} */
function total(cells) {
  return cells.reduce((sum, [, weight]) => sum + weight, 0);
}

/** The weight at a position; undefined where none is stored.
 *  @type {(cells: Weighted[], position: number) => number | undefined} */
export function weightAt(cells, position) {
  return cells.find(([at]) => at === position)?.[1];
}
