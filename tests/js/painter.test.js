// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { frame, paint, pathOf } from "../../static/js/lib/painter.js";
import { nearest } from "../../static/js/lib/series.js";
import { linearTicks, logTicks, placeTexts, valueTexts } from "../../static/js/lib/ticks.js";

/** Elements as far as painting needs them. */
class Node {
  /** @param {string} tag */
  constructor(tag) {
    Object.assign(this, { tag, attributes: /** @type {Record<string, string>} */ ({}), children: [] });
  }
  /** @type {(name: string, value: string) => void} */
  setAttribute(name, value) {
    /** @type {any} */ (this).attributes[name] = value;
  }
  /** @type {(...nodes: any[]) => void} */
  append(...nodes) {
    /** @type {any} */ (this).children.push(...nodes);
  }
  /** @type {(...nodes: any[]) => void} */
  replaceChildren(...nodes) {
    /** @type {any} */ (this).children = nodes;
  }
}
Object.assign(globalThis, { document: { createElementNS: (/** @type {string} */ _space, /** @type {string} */ tag) => new Node(tag) } }); // prettier-ignore

/** @type {(node: any, wanted: (node: any) => boolean) => any[]} */
const found = (node, wanted) =>
  (node.children ?? []).flatMap((/** @type {any} */ child) => [
    ...(typeof child === "object" && wanted(child) ? [child] : []),
    ...(typeof child === "object" ? found(child, wanted) : []),
  ]);

const layout = (over = {}) => ({
  height: 126,
  xaxis: { range: [0, 10], kind: "step", whole: true },
  yaxis: { range: [0, 1], type: "linear", color: "grey", gridcolor: "line" },
  yaxis2: { range: [0, 1] },
  shapes: [],
  annotations: [],
  ...over,
});

/** @type {(traces: any[], over?: Record<string, any>) => any} */
function painted(traces, over = {}) {
  const node = /** @type {any} */ (new Node("div"));
  Object.assign(node, { clientWidth: 256, clientHeight: 126 });
  paint(node, traces, layout(over));
  return node;
}
const line = { mode: "lines", x: [0, 5, 10], y: [0, null, 1], line: { color: "red", width: 1.5, dash: "dot" } };

test("places are round numbers, never closer than asked, and none of an empty range", () => {
  assert.deepEqual(linearTicks([0, 1], 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(linearTicks([-0.3, 0.3], 3), [-0.2, 0, 0.2]);
  assert.deepEqual(linearTicks([1, 3], 7, 1), [1, 2, 3]);
  assert.deepEqual(linearTicks([0, 100_000], 7), [0, 20_000, 40_000, 60_000, 80_000, 100_000]);
  assert.deepEqual(linearTicks([2, 2], 4), []);
  assert.deepEqual(logTicks([-3, 3], 4), [1e-2, 1, 100]);
  assert.deepEqual(logTicks([0.1, 0.9], 4), [2, 5]);
  assert.deepEqual(logTicks([0, 1], 4), [1, 10]); // the edges are seen
  assert.deepEqual(logTicks([-0.5, 0.5], 4), [0.5, 1, 2]); // of a single power its neighbours too
  assert.deepEqual(linearTicks([0, 10], 5), [0, 2, 4, 6, 8, 10]);
});

test("texts have the same number of decimals, and shares are percent", () => {
  assert.deepEqual(valueTexts([-0.2, 0, 0.2]), ["−0.2", "0.0", "0.2"]);
  assert.deepEqual(valueTexts([0.25, 0.5], true), ["25%", "50%"]);
  assert.deepEqual(valueTexts([0, 1e-6]), ["0", "1.0e-6"]);
  assert.deepEqual(valueTexts([0, 200_000]), ["0", "2.0e5"]);
  assert.deepEqual(
    [valueTexts([]), valueTexts([0]), valueTexts([0.05]), valueTexts([2])],
    [[], ["0"], ["0.05"], ["2"]],
  );
  assert.deepEqual(valueTexts([10, 20]), ["10", "20"]);
  assert.deepEqual([valueTexts([0, 1e-5]), valueTexts([0, 9e4]), valueTexts([0, 1e5])], [["0.00000", "0.00001"], ["0", "90000"], ["0", "1.0e5"]]); // prettier-ignore
  assert.deepEqual(placeTexts([0, 20_000], "step"), ["0", "20,000"]);
  assert.deepEqual(placeTexts([0, 1500, 2e6], "tokens"), ["0", "1.5k", "2M"]);
  assert.deepEqual(placeTexts([0.5, 2000], "time"), ["0.5", "2000"]);
  assert.deepEqual(placeTexts([999, 1000, 1e6, 1e9], "tokens"), ["999", "1k", "1M", "1G"]);
});

test("the nearest known place is the lower of two that are equally near", () => {
  assert.equal(nearest([1, 3, 9], 2), 1);
  assert.equal(nearest([1, 3, 9], 2.1), 3);
  assert.equal(nearest([1, 3, 9], 100), 9);
  assert.equal(nearest([], 1), undefined);
});

test("values have their place between the margins, on a logarithmic axis by powers of ten", () => {
  const at = frame(layout(), 256, 126);
  assert.deepEqual([at.x(0), at.x(10), at.y.y(0), at.y.y(1)], [46, 246, 106, 6]);
  const log = frame(layout({ yaxis: { range: [-2, 0], type: "log" } }), 256, 126);
  assert.equal(log.y.y(0.1), 56);
});

test("a line has a gap where a figure is missing", () => {
  assert.equal(pathOf([0, 1, 2, 3], [1, 2, null, 4]), "M0.0,1.0L1.0,2.0M3.0,4.0");
  assert.equal(pathOf([0, 1], [NaN, null]), "");
});

test("lines are drawn in their tone and dash, and the node keeps what was drawn", () => {
  const node = painted([line]);
  const [path] = found(node, (each) => each.attributes.class === "line");
  assert.deepEqual([path.attributes.stroke, path.attributes["stroke-dasharray"]], ["red", "2 3"]);
  assert.equal(path.attributes.d, "M46.0,106.0M246.0,6.0");
  assert.equal(node.data[0], line);
  assert.deepEqual(node.layout.xaxis.range, [0, 10]);
});

test("stacked areas lie on each other", () => {
  const area = (/** @type {number[]} */ y) => ({ ...line, y, stackgroup: "above", fillcolor: "blue" });
  const areas = found(painted([area([0.2, 0.2, 0.2]), area([0.3, 0.3, 0.3])]), (each) => each.attributes.fill === "blue"); // prettier-ignore
  assert.ok(areas[1].attributes.d.startsWith("M46.0,56.0") && areas[1].attributes.d.includes("L46.0,86.0"));
});

test("an evaluation has its interval; marks outside of a zoom are not drawn", () => {
  const error = { array: [0.1, 0.1], arrayminus: [0.2, 0], color: "red", thickness: 1 };
  const star = { mode: "lines+markers", x: [5, 12], y: [0.5, 0.5], line: { width: 1 }, marker: { color: "red", size: 9, symbol: "star" }, error_y: error }; // prettier-ignore
  const intervals = found(painted([star]), (each) => each.attributes.class === "interval");
  assert.equal(intervals.length, 1);
  assert.ok(intervals[0].attributes.d.startsWith("M146,46.0V76.0"));
});

test("of marks those on the edges of a zoom are drawn, and none beyond either edge", () => {
  const marks = { mode: "markers", x: [-0.1, 0, 10, 10.1], y: [0.5, 0.5, 0.5, 0.5], marker: { color: "red", size: 4 } };
  const drawn = found(painted([marks]), (each) => each.attributes.transform?.includes(",56.0"));
  assert.deepEqual(drawn.map((each) => each.attributes.transform), ["translate(46.0,56.0)", "translate(246.0,56.0)"]); // prettier-ignore
});

test("a label of a logarithmic axis is placed by its power of ten", () => {
  const label = { text: "best", x: 5, y: -1, xanchor: "left", font: { size: 10, color: "grey" } };
  const log = { range: [-2, 0], type: "log", color: "grey", gridcolor: "line" };
  const [best] = found(painted([], { yaxis: log, annotations: [label] }), (each) => each.children[0] === "best");
  assert.deepEqual([best.attributes.x, best.attributes.y], ["149", "54"]);
  const [plain] = found(painted([], { annotations: [{ ...label, y: 0.5 }] }), (each) => each.children[0] === "best");
  assert.deepEqual([plain.attributes.x, plain.attributes.y], ["149", "54"]);
});

test("labels are text, as they were written", () => {
  const label = { text: "a &lt;b&gt; &amp;lt; 中文", x: 0, y: 1, yref: "paper", yanchor: "top", xanchor: "left", font: { size: 10, color: "grey" } }; // prettier-ignore
  const texts = found(painted([], { annotations: [label] }), (each) => each.tag === "text");
  assert.ok(texts.some((each) => each.children[0] === "a <b&gt; &lt; 中文"));
});
