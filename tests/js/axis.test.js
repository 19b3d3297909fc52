// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { bandTraces, gapMarks, stepMarks } from "../../static/js/lib/around.js";
import { moved, placeOn, stepAt } from "../../static/js/lib/axis.js";
import { drawnLine, frameOf } from "../../static/js/lib/plot.js";
import { decimate } from "../../static/js/lib/series.js";

const hours = { steps: [10, 20, 40], at: [1, 3, 4] };

test("an axis begins at zero, is straight between what is known, and continues as on average", () => {
  assert.deepEqual(
    [0, 5, 10, 15, 30, 40, 80].map((step) => placeOn(hours, step)),
    [0, 0.5, 1, 2, 3.5, 4, 8],
  );
  assert.deepEqual(
    [0, 0.5, 1, 2, 3.5, 4, 8].map((place) => stepAt(hours, place)),
    [0, 5, 10, 15, 30, 40, 80],
  );
  assert.equal(placeOn(undefined, 7), 7);
  assert.equal(placeOn({ steps: [], at: [] }, 7), 7);
  assert.equal(
    stepAt({ steps: [1, 2, 3], at: [5, 5, 9] }, 5),
    1,
    "a step without a token is where the one before it is",
  );
});

test("marks and bands go where their steps are, and what spans the chart stays", () => {
  const parts = [
    { x0: 10, x1: 20, y0: 0 },
    { xref: "paper", x0: 0, x1: 1 },
    { x: 40, text: "a" },
  ];
  assert.deepEqual(moved(parts, hours), [
    { x0: 1, x1: 3, y0: 0 },
    { xref: "paper", x0: 0, x1: 1 },
    { x: 4, text: "a" },
  ]);
  assert.equal(moved(parts, undefined), parts);
});

test("a curve over hours is drawn where its steps had ended", () => {
  const curve = { steps: [10, 20], values: [1, 2], attempts: [1, 1] };
  assert.deepEqual(drawnLine(curve, { smooth: 0, log: false }, hours).x, [1, 3]);
});

test("thinning does not ask in what its axis is counted", () => {
  const x = Array.from({ length: 1000 }, (_none, at) => at / 1e6);
  const thin = decimate(
    x,
    x.map((_place, at) => (at === 500 ? 9 : 0)),
    100,
  );
  assert.ok(thin.x.length > 50 && thin.x.length <= 100 && thin.y.includes(9) && thin.x.at(-1) === x[999]);
});

test("the band is one deviation around the line, where one is known", () => {
  const line = { x: [1, 2, 3], y: [0.5, null, 0.7], ghost: null, reach: 0 };
  const spread = { x: [1, 2], y: [0.1, 0.1], ghost: null, reach: 0 };
  const [low, high] = bandTraces(line, spread, "#0a6b60");
  assert.deepEqual([low.x, low.y, high.y], [[1], [0.4], [0.6]]);
  assert.deepEqual([high.fill, high.fillcolor], ["tonexty", "#0a6b6024"]);
  assert.deepEqual(bandTraces(line, { ...spread, x: [], y: [] }, "#000000"), []);
});

test("checkpoints and evaluations are along the lower edge", () => {
  const marks = stepMarks([10, 20], [40], hours, "#111111");
  assert.deepEqual(
    marks.map((mark) => [mark.marker.symbol, mark.x]),
    [
      ["diamond", [1, 3]],
      ["star", [4]],
    ],
  );
  assert.deepEqual(stepMarks([], [], undefined, "#111111"), []);
});

test("a figure that was not finite is marked where its line has a gap", () => {
  const curve = (/** @type {(number | null)[]} */ ...values) => ({
    steps: values.map((_value, at) => 10 * (at + 1)),
    values,
    attempts: values.map(() => 1),
  });
  const marks = gapMarks([curve(1, null, 3, null), curve(null, null, 0)], hours, "#bb0000");
  assert.deepEqual(
    marks.map((mark) => [mark.marker.symbol, mark.marker.color, mark.x]),
    [["x-thin-open", "#bb0000", [3, 4, 1]]],
  );
  assert.deepEqual(gapMarks([curve(0, 1), curve()], undefined, "#bb0000"), []);
});

test("steps are whole numbers, other axes are short ones", () => {
  const frame = (/** @type {string} */ axis) =>
    frameOf({ range: [1, 4], values: null, log: false, axis, colour: () => "" }).xaxis;
  assert.deepEqual([frame("step").tickformat, frame("step").dtick], [",d", 1]);
  assert.deepEqual([frame("time").tickformat, frame("time").dtick], ["~g", undefined]);
  assert.equal(frame("tokens").tickformat, "~s");
  assert.equal(frame("step").type, "linear"); // set, or Plotly looks through all points for dates
});
