// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { bandOf, bySetting, lineOf } from "../../static/js/lib/overlay.js";

const run = {
  name: "a",
  number: 0,
  setting: 0,
  axes: { time: { steps: [1, 2, 4], at: [0.5, 1.5, 2] } },
  curves: { reward: { steps: [0, 1, 2, 3, 4, 9], values: [0, 0.1, 0.2, 0.3, 0.4, 0.5] } },
};

test("a curve over time is drawn where its steps had ended", () => {
  assert.deepEqual(lineOf(run, "reward", "time").x, [0, 0.5, 1.5, 1.5, 2, 2]);
  assert.deepEqual(lineOf(run, "reward", "step").x, [0, 1, 2, 3, 4, 9]);
});

test("a run without the curve or the axis has no line", () => {
  assert.deepEqual(lineOf(run, "loss", "step"), { x: [], y: [] });
  assert.deepEqual(lineOf(run, "reward", "tokens"), { x: [], y: [] });
});

test("seeds are gathered where all of them are known", () => {
  const band = bandOf([
    { x: [0, 2, 4], y: [0, 2, 4] },
    { x: [1, 3, 5], y: [3, null, 7] },
  ]);
  assert.deepEqual(band.x, [1, 2, 4]);
  assert.deepEqual(band.mean, [2, 3, 5]);
  assert.deepEqual(band.low, [1, 2, 4]);
  assert.deepEqual(band.high, [3, 4, 6]);
});

test("a setting of which one seed says nothing has no band", () => {
  assert.deepEqual(
    bandOf([
      { x: [0, 1], y: [1, 2] },
      { x: [], y: [] },
    ]).x,
    [],
  );
  assert.deepEqual(bandOf([]).x, []);
});

test("runs of one setting are together, in the order of their first", () => {
  const runs = [2, 0, 2, 1].map((setting, number) => ({ ...run, setting, number }));
  assert.deepEqual(
    bySetting(runs).map((group) => group.map((one) => one.number)),
    [[0, 2], [1], [3]],
  );
});
