// Saved pictures: what a plot draws on a canvas, as SVG; archives. With a folder as its argument, this
// script writes an archive there instead.

import assert from "node:assert/strict";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";

import { barsPlot } from "../../../apps/widget/bars.js";
import { LIGHT } from "../../../apps/widget/colours.js";
import { curvesPlot } from "../../../apps/widget/curves.js";
import { hatch, write } from "../../../apps/widget/draw.js";
import { matrixPlot } from "../../../apps/widget/matrix.js";
import { networkPlot } from "../../../apps/widget/network.js";
import { escaped, svgOf } from "../../../apps/widget/svg.js";
import { zipped } from "../../../apps/widget/zip.js";

const HOSTILE = "</script><img src=x onerror=alert(1)> & \"q\" שלום\u200b\u202e\u0000\ud800";
const measure = (text) => 7 * text.length;

/** A canvas without a browser: pixels that can be set and read. */
function canvas() {
  const made = { width: 1, height: 1, pixels: new Uint8ClampedArray(4), toDataURL: () => "data:image/png;base64,AA==" };
  made.getContext = () => ({
    createImageData: (width, height) => ({ data: new Uint8ClampedArray(4 * width * height) }),
    putImageData: ({ data }) => { made.pixels = data; },
    getImageData: () => ({ data: made.pixels }),
    measureText: (text) => ({ width: measure(text) }),
  });
  return made;
}
globalThis.document = { createElement: canvas };

const svg = (paint, size = { width: 100, height: 60 }) => svgOf({ ...size, paint });
const count = (text, part) => text.split(part).length - 1;

function drawn(plot) {
  const geometry = plot.layout(600, measure);
  return svgOf({ ...geometry, paint: (ctx, theme) => plot.draw(ctx, geometry, theme) });
}

if (process.argv[2]) {
  const text = svgOf({
    width: 100, height: 20, paint: (ctx) => write(ctx, HOSTILE, 0, 10, { colour: "#000000" }),
  }, { title: HOSTILE, description: HOSTILE });
  writeFileSync(`${process.argv[2]}/figures.zip`, zipped([
    { name: "1-hostile.svg", text }, { name: "2-leer-ü.svg", text: "" },
  ]));
} else {
  test("every function and setting of a canvas that plots use is there", () => {
    const folder = new URL("../../../apps/widget/", import.meta.url);
    const used = new Set();
    for (const name of readdirSync(folder)) {
      if (!name.endsWith(".js") || ["svg.js", "surface.js"].includes(name)) continue;
      for (const [, field] of readFileSync(new URL(name, folder), "utf8").matchAll(/\bctx\.(\w+)/g)) used.add(field);
    }
    for (const field of ["createImageData", "putImageData"]) used.delete(field); // of images
    assert.ok(used.size > 20);
    svg((ctx) => { for (const field of used) assert.ok(field in ctx, field); });
  });

  test("a value of a heat map is a rectangle of its colour, and a missing one is none", () => {
    const view = {
      kind: "matrix", rows: ["a", "b"], columns: ["x", "y", "z"], row_axis: "row", column_axis: "column",
      values: [[-1, 0, 1], [1, 1, null]], scale: { kind: "diverging", low: -1, high: 1 }, unit: "nats",
    };
    const text = drawn(matrixPlot(view));
    const [, image] = /<g transform="translate\([^>]*crispEdges">(.*?)<\/g>/.exec(text);
    const paths = [...image.matchAll(/fill="(#\w+)" d="([^"]*)"/g)].map(([, fill, d]) => [fill, d]);
    assert.equal(paths.length, 3);
    const last = paths.find(([, d]) => d.startsWith("M2 0"));
    assert.equal(last[1], "M2 0h1v1h-1ZM0 1h2v1h-2Z");
    for (const label of ["row", "column", "a", "z", "nats"]) assert.ok(text.includes(`>${label}<`) || text.includes(label), label);
    assert.ok(text.includes("clip-path="), "the missing value is hatched");
    assert.ok(!drawn(matrixPlot({ ...view, values: [[-1, 0, 1], [1, 1, 0]] })).includes("clip-path="));
  });

  test("large images are embedded", () => {
    const values = Array.from({ length: 200 }, (_, r) => Array.from({ length: 200 }, (_, c) => (r * 7 + c) % 11));
    const labels = Array(200).fill("");
    const text = drawn(matrixPlot({
      kind: "matrix", rows: labels, columns: labels, row_axis: "", column_axis: "", values,
      scale: { kind: "sequential", low: 0, high: 10 },
    }));
    assert.ok(text.includes("<image ") && text.includes("pixelated"));
  });

  test("bars, curves and graphs are drawn with their titles and units", () => {
    const bars = drawn(barsPlot({
      kind: "bars", labels: ["one", "two"], values: [1, -2], unit: "logits", marks: [{ title: "to it", values: [1, 1] }],
      scale: { kind: "diverging", low: -2, high: 2 },
    }));
    for (const part of [">one<", ">logits<", ">to it<"]) assert.ok(bars.includes(part), part);
    const curves = drawn(curvesPlot({
      kind: "curves", axis: "layer", panels: [{ title: "rank", unit: "n", curves: [{ name: "c", x: [0, 1, 2], y: [1, null, 3] }] }],
      marked: [1],
    }));
    assert.ok(curves.includes("rank (n)") && curves.includes(">layer<") && curves.includes('stroke-dasharray="2 3"'));
    const graph = drawn(networkPlot({
      kind: "network", unit: "u", nodes: [{ name: "A", x: 0, y: 0 }, { name: "B", x: 0, y: 1 }], edges: [[0, 1, 2]],
    }));
    assert.ok(/d="M[^"]*C/.test(graph) && graph.includes(">A<") && graph.includes('stroke-opacity="0.75"'));
  });

  test("transforms, opacity and clipping end with restore", () => {
    const text = svg((ctx) => {
      ctx.save();
      ctx.translate(10, 20);
      ctx.rotate(Math.PI / 2);
      ctx.fillRect(1, 2, 3, 4);
      ctx.restore();
      ctx.fillRect(5, 6, -3, 4);
      hatch(ctx, "rgb(1 2 3 / 0.5)", 0, 0, 10, 10);
      ctx.fillRect(0, 0, 1, 1);
    });
    const rectangles = [...text.matchAll(/<rect x[^>]*>/g)].map(String);
    assert.ok(rectangles[0].includes('transform="matrix(0 1 -1 0 10 20)"'));
    assert.ok(rectangles[1].includes('x="2" y="6" width="3"') && !rectangles[1].includes("transform"));
    assert.equal(count(text, "clip-path="), 1);
    assert.ok(text.includes('stroke="#010203" stroke-opacity="0.5"'));
  });

  test("the colours are those of a light page, and texts are escaped", () => {
    assert.ok(svg(() => {}).includes(`fill="${LIGHT.paper}"`));
    assert.equal(escaped(HOSTILE), "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt; &amp; &quot;q&quot; שלום\u200b\u202e\ufffd\ufffd");
  });
}
