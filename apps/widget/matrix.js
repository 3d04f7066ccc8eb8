// A matrix: a heat map with labelled rows and columns.

/** @import { Cell, Matrix, MatrixPlot, Measure, Plot, Size, Writing } from "./types.d.ts" */
import { colourOf, textOn } from "./colours.js";
import { ESTIMATE, cellFormat, clamp, decodedOnce, extent, headName, isEstimate, withUnit } from "./data.js";
import {
  LEGEND, SMALL, TITLE_ROOM, badge, elided, hatch, imageOf, legend, legendWidth, outline, tickStep, widest,
  write,
} from "./draw.js";

const MAX_LABEL = 110;
/** The same below a plot that must fit a box, and the height of labels that are not rotated. */
const [LIMITED_LABEL, LEVEL] = [66, 16];
const MAX_NUMBERS = 400;
const NUMBER_ROOM = 32;
/** Height of a cell from which it has room for a number. */
const NUMBER_HEIGHT = 13;
/** Height of the cells together, unless the plot must fit a box. */
const HEIGHT = 540;
/** Width of a cell from which labels below it are shortened rather than rotated. */
const LEVEL_FROM = 84;
const UPRIGHT = -Math.PI / 2;

/** The plot of a view "matrix"; settings: places (decimals in descriptions), and a function that gives the
 *  size of a cell within the size of all.
 *  @type {(view: Matrix, settings?: { places?: number, cells?: (whole: Size) => Size }) => MatrixPlot} */
export function matrixPlot(view, settings = {}) {
  const { shape: [rows, columns], data } = decodedOnce(view.values);
  if (view.rows.length !== rows || view.columns.length !== columns) {
    throw new Error(`${view.title}: labels for other rows or columns.`);
  }
  const { scale } = view;
  const texts = view.texts || null;
  const printed = !texts && view.numbers && (settings.cells || rows * columns <= MAX_NUMBERS);
  const shown = printed ? cellFormat(Math.max(...extent(data).map(Math.abs))) : String;
  /** @type {(cell: Cell) => number} */
  const at = ([row, column]) => data[row * columns + column];

  /** @typedef {ReturnType<typeof layout>} Geometry */
  /**
   * @param {number} width
   * @param {Measure} measure
   * @param {number} [most] the height that the plot should fit
   */
  function layout(width, measure, most = Infinity) {
    const [row, column] = [labelRoom(view.rows, measure, width), view.columns];
    const left = row + 8 + (view.row_axis ? TITLE_ROOM : 0);
    const room = Math.max(60, width - left - 2);
    const across = widest(column, measure);
    const longest = Math.min(most === Infinity ? MAX_LABEL : LIMITED_LABEL, across);
    const [top, foot] = [LEGEND, view.column_axis ? TITLE_ROOM : 4];
    const { width: cell, height } = cellSize(room, most - top - foot, longest + 6, across, measure);
    const level = across <= cell - 4 || cell >= LEVEL_FROM || column.every((label) => /^H?-?\d*$/.test(label));
    const below = level ? LEVEL : longest + 6;
    return {
      left, top, cell, rowHeight: height, level, below, measure, longest, labelWidth: row,
      printed: printed && (!settings.cells || (cell >= NUMBER_ROOM && height >= NUMBER_HEIGHT)),
      rowStep: tickStep(14, height),
      columnStep: tickStep(level && cell < LEVEL_FROM ? Math.max(across + 8, cell) : 13, cell),
      width: Math.ceil(Math.max(left + cell * columns + 2, left + legendWidth(scale, view.unit, measure))),
      height: Math.ceil(top + height * rows + below + foot),
    };
  }

  /** The size of a cell, given the room for all of them: its width, and its height with the labels below.
   *  @type {(room: number, space: number, labels: number, across: number, measure: Measure) => Size} */
  function cellSize(room, space, labels, across, measure) {
    if (settings.cells) {
      const { width, height } = settings.cells({ width: room, height: Math.min(HEIGHT, space - LEVEL) });
      return { width: floored(width), height: floored(height) };
    }
    if (view.pick === "pair") {
      const side = floored(Math.max(2, Math.min(room / columns, 34, (space - labels) / rows)));
      return { width: side, height: side };
    }
    const least = texts ? clamp(widest(texts.flat(), measure) + 8, 28, 84) : printed ? NUMBER_ROOM : 2;
    const most = Math.max(texts ? 110 : printed ? 72 : 44, view.pick ? 0 : Math.min(across + 8, 130));
    const width = floored(clamp(room / columns, least, most));
    if (texts) return { width, height: 24 };
    if (!printed) return { width, height: clamp(Math.min(width, 560 / rows), 2, 28) };
    return { width, height: clamp(Math.min(Math.round(width * 0.6), Math.floor(HEIGHT / rows)), 17, 36) };
  }

  /** @type {Plot<Geometry>["draw"]} */
  function draw(ctx, geometry, theme) {
    const { left, top, cell, rowHeight: high } = geometry;
    const [width, height] = [cell * columns, high * rows];
    if (data.some(Number.isNaN)) hatch(ctx, theme.line, left, top, width, height);
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(imageOf(data, columns, scale, theme.dark), left, top, width, height);
    estimates(ctx, geometry, theme);
    gaps(ctx, geometry, theme);
    if (texts || geometry.printed) cellTexts(ctx, geometry, theme);
    ticks(ctx, geometry, theme);
    ctx.strokeStyle = theme.line;
    ctx.lineWidth = 1;
    ctx.strokeRect(left - 0.5, top - 0.5, width + 1, height + 1);
    for (const place of view.marked || []) outline(ctx, theme, box(geometry, place), theme.accent);
    legend(ctx, theme, scale, view.unit, left, top - 18);
  }

  /** Hatches the cells whose values are estimates.
   *  @type {Plot<Geometry>["draw"]} */
  function estimates(ctx, geometry, theme) {
    if (!view.estimated) return;
    ctx.globalAlpha = 0.2;
    decodedOnce(view.estimated).data.forEach((is, at) => {
      if (is) hatch(ctx, theme.ink, ...box(geometry, [Math.floor(at / columns), at % columns]));
    });
    ctx.globalAlpha = 1;
  }

  /** @type {Plot<Geometry>["draw"]} */
  function gaps(ctx, { left, top, cell, rowHeight: high }, theme) {
    ctx.fillStyle = theme.paper;
    if (cell >= 12) for (let c = 1; c < columns; c += 1) ctx.fillRect(
      left + c * cell - 0.5, top, 1, high * rows,
    );
    if (high >= 12) for (let r = 1; r < rows; r += 1) ctx.fillRect(
      left, top + r * high - 0.5, cell * columns, 1,
    );
  }

  /** @type {Plot<Geometry>["draw"]} */
  function cellTexts(ctx, geometry, theme) {
    const { cell, measure } = geometry;
    for (let r = 0; r < rows; r += 1) {
      for (let c = 0; c < columns; c += 1) {
        const value = at([r, c]);
        const text = texts ? elided(texts[r][c] || "", cell - 6, measure) : shown(value);
        if (!text) continue;
        const [x, y, width, height] = box(geometry, [r, c]);
        const colour = Number.isNaN(value) ? theme.ink : textOn(colourOf(scale, value, theme.dark));
        write(ctx, text, x + width / 2, y + height / 2 + 0.5, {
          colour, size: cell < 36 ? SMALL - 1 : SMALL, align: "center",
        });
      }
    }
  }

  /** @type {Plot<Geometry>["draw"]} */
  function ticks(ctx, geometry, theme) {
    const { left, top, cell, rowHeight: high, level, below, longest, measure, labelWidth } = geometry;
    const bottom = top + high * rows;
    for (let r = 0; r < rows; r += geometry.rowStep) {
      const text = elided(view.rows[r], labelWidth, measure);
      write(ctx, text, left - 6, top + (r + 0.5) * high, { colour: theme.soft, align: "right" });
    }
    for (let c = 0; c < columns; c += geometry.columnStep) {
      const [x, colour] = [left + (c + 0.5) * cell, theme.soft];
      if (level) write(
        ctx, elided(view.columns[c], Math.max(cell - 4, geometry.columnStep * cell), measure), x, bottom + 11,
        { colour, align: "center" },
      );
      else write(
        ctx, elided(view.columns[c], longest, measure), x, bottom + 6,
        { colour, align: "right", angle: UPRIGHT },
      );
    }
    /** @type {Writing} */
    const title = { colour: theme.soft, size: SMALL, align: "center" };
    if (view.row_axis) write(ctx, view.row_axis, 8, top + (high * rows) / 2, { ...title, angle: UPRIGHT });
    if (view.column_axis) write(
      ctx, view.column_axis, left + (cell * columns) / 2, bottom + below + 10, title,
    );
  }

  /** @type {Plot<Geometry>["mark"]} */
  function mark(ctx, geometry, theme, cell) {
    const { left, top, rowHeight: high } = geometry;
    const [x, y, width, height] = box(geometry, cell);
    ctx.fillStyle = theme.ink;
    ctx.globalAlpha = 0.07;
    ctx.fillRect(left, y, geometry.cell * columns, height);
    ctx.fillRect(x, top, width, high * rows);
    ctx.globalAlpha = 1;
    badge(ctx, theme, view.rows[cell[0]], left - 3, y + height / 2, { align: "right", most: geometry.width });
    badge(
      ctx, theme, view.columns[cell[1]], x + width / 2, top + high * rows + 11,
      { align: "center", most: geometry.width },
    );
    outline(ctx, theme, [x, y, width, height]);
  }

  /** @type {Plot<Geometry>["pick"]} */
  function pick({ left, top, cell, rowHeight: high }, x, y) {
    /** @type {Cell} */
    const place = [Math.floor((y - top) / high), Math.floor((x - left) / cell)];
    return isInside(place, rows, columns) ? place : null;
  }

  /** @type {Plot<Geometry>["box"]} */
  function box({ left, top, cell, rowHeight: high }, [row, column]) {
    return [left + column * cell, top + row * high, cell, high];
  }

  /** @type {Plot["describe"]} */
  function describe(cell) {
    const [row, column] = cell;
    const name = matrixCellName(view, cell);
    const text = texts && texts[row][column];
    const signed = scale.kind === "diverging";
    const beside = (view.beside || []).map(({ title, values }) => (
      `${title} ${withUnit(decodedOnce(values).data[row * columns + column], view.unit, signed)}`
    ));
    const estimate = isEstimate(view.estimated, row * columns + column) ? [ESTIMATE] : [];
    const lines = [...estimate, ...((view.hover && view.hover[row][column]) || []), ...beside];
    const value = settings.places ? Number(at(cell).toFixed(settings.places)) : at(cell);
    return { name, value, unit: view.unit, text: text || "", signed, lines };
  }

  return {
    view, rows, columns, layout, draw, mark, pick, box, describe,
    move: (cell, down, right) => moved(cell, down, right, rows, columns),
  };
}

/** The width of the labels at the left of a plot.
 *  @type {(labels: string[], measure: Measure, width: number) => number} */
export function labelRoom(labels, measure, width) {
  return Math.min(widest(labels, measure), 2 * MAX_LABEL, Math.max(48, width * 0.32));
}

/** The name of a cell of a matrix.
 *  @type {(view: Matrix, cell: Cell) => string} */
function matrixCellName(view, [row, column]) {
  if (view.pick === "head") return headName(row, column);
  if (view.pick === "pair") return `query ${row} '${view.rows[row]}', key ${column} '${view.columns[column]}'`;
  const parts = [[view.row_axis, view.rows[row]], [view.column_axis, view.columns[column]]];
  return parts.map((part) => part.filter(Boolean).join(" ")).filter(Boolean).join(", ");
}

/** A size in whole pixels, except for a few.
 *  @type {(size: number) => number} */
function floored(size) {
  return size >= 4 ? Math.floor(size) : size;
}

/** Whether a cell is inside a grid of rows and columns.
 *  @type {(cell: Cell, rows: number, columns: number) => boolean} */
export function isInside([row, column], rows, columns) {
  return row >= 0 && row < rows && column >= 0 && column < columns;
}

/** The cell a number of rows and columns away from another, limited to the edge.
 *  @type {(cell: Cell | null, down: number, right: number, rows: number, columns: number) => Cell} */
export function moved(cell, down, right, rows, columns) {
  return cell ? [clamp(cell[0] + down, 0, rows - 1), clamp(cell[1] + right, 0, columns - 1)] : [0, 0];
}
