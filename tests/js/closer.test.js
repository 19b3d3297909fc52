// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { lacksPoints, partAround, shownCurve } from "../../static/js/lib/closer.js";
import { drawnLine, lineTraces, seenPoints, seenValues } from "../../static/js/lib/plot.js";
import { Folding, isStill } from "../../static/js/lib/folding.js";
import { smooth, valueAt, valueRange } from "../../static/js/lib/series.js";
import { applyFrame, emptyState } from "../../static/js/lib/state.js";

const curve = (/** @type {number[]} */ steps, thinned = true) => ({
  steps,
  values: steps.map((step) => step / 10),
  attempts: steps.map(() => 1),
  ...(thinned
    ? { means: { steps: [...steps], values: steps.map((step) => step / 10), counts: steps.map(() => 10) } }
    : {}),
});

test("a zoom asks for three times what it shows, and not for steps before the first", () => {
  assert.deepEqual(partAround([100.4, 200.4]), [0, 301]);
  assert.deepEqual(partAround([1000, 1100]), [900, 1200]);
});

test("a closer look is asked for where points were left out, and once", () => {
  const whole = curve([1, 500, 1000]);
  assert.equal(lacksPoints(whole, undefined, null), false);
  assert.equal(lacksPoints(curve([1, 2, 3], false), undefined, [1, 2]), false);
  assert.equal(lacksPoints(undefined, undefined, [1, 2]), false);
  assert.equal(lacksPoints(whole, undefined, [400, 500]), true);
  const part = { ...curve([300, 450, 600], false), first: 300, last: 600 };
  assert.equal(lacksPoints(whole, part, [400, 500]), false);
  assert.equal(lacksPoints(whole, part, [500, 700]), true, "it ends before what is shown");
  const rough = { ...curve([300, 450, 600]), first: 300, last: 600 };
  assert.equal(lacksPoints(whole, rough, [400, 500]), false);
  assert.equal(lacksPoints(whole, rough, [400, 420]), true, "it was thinned itself, and is now looked at closely");
  const tail = { ...curve([900, 1000], false), first: 900, last: 1000 };
  assert.equal(lacksPoints(whole, tail, [950, 1200]), false, "nothing lies beyond the end");
});

test("what is drawn is the part while it holds all that is shown", () => {
  const whole = curve([1, 500, 1000]);
  const part = { ...curve([300, 450, 600], false), first: 300, last: 600 };
  assert.equal(shownCurve(whole, part, [400, 500]), part);
  assert.equal(shownCurve(whole, part, [400, 700]), whole);
  assert.equal(shownCurve(whole, part, null), whole);
  assert.equal(shownCurve(whole, undefined, [400, 500]), whole);
});

test("a part does not take the place of its curve, and both grow with what arrives", () => {
  const state = emptyState();
  const sent = { ...curve([1, 50, 100]), attempts: 1 };
  applyFrame(state, { type: "snapshot", seq: 1, names: { loss: 10 }, curves: { loss: sent } });
  applyFrame(state, {
    type: "curves",
    seq: 1,
    first: 90,
    last: 120,
    curves: { loss: { ...curve([90, 100], false), attempts: 1 } },
  });
  assert.deepEqual(state.curves.get("loss")?.steps, [1, 50, 100]);
  const point = (/** @type {number} */ step, attempt = 1) => ({ attempt, step, name: "loss", value: 3 });
  applyFrame(state, { type: "changes", seq: 2, points: [point(101), point(130)] });
  assert.deepEqual(state.curves.get("loss")?.steps, [1, 50, 100, 101, 130]);
  assert.deepEqual(state.curves.get("loss")?.means?.counts, [10, 10, 10, 1, 1]);
  assert.deepEqual(state.parts.get("loss")?.steps, [90, 100, 101]);
  applyFrame(state, { type: "changes", seq: 3, points: [point(95, 2)] });
  assert.deepEqual(state.curves.get("loss")?.steps, [1, 50, 95]);
  assert.deepEqual(state.curves.get("loss")?.means?.steps, [1, 50, 95]);
  assert.deepEqual(state.parts.get("loss")?.steps, [90, 95]);
  applyFrame(state, { type: "snapshot", seq: 4, names: {}, curves: {} });
  assert.equal(state.parts.size, 0);
});

test("a mean of many figures weighs as much as they do", () => {
  const values = [0, 0, 0, 0, 1, 1, 1, 1];
  const all = smooth(values, 0.5);
  const means = smooth([0, 1], 0.5, [4, 4]);
  assert.ok(Math.abs(Number(all[7]) - Number(means[1])) < 1e-12);
});

test("a smoothed line runs over the means, with all ends behind it", () => {
  const thin = { steps: [1, 2, 9, 10], values: [0, 8, 0, 8], attempts: [1, 1, 1, 1] };
  const long = { ...thin, means: { steps: [3, 8], values: [1, 2], counts: [5, 5] } };
  assert.equal(drawnLine(long, { smooth: 0, log: false }).ghost, null);
  const line = drawnLine(long, { smooth: 0.6, log: false });
  assert.deepEqual([line.x, line.ghost], [[3, 8], { x: thin.steps, y: thin.values }]);
  const share = (1 - 0.6 ** 5) / (1 - 0.6 ** 10); // of five figures among ten
  assert.ok(Math.abs(Number(line.y[1]) - (1 + share)) < 1e-12, "each mean weighs as five figures");
  assert.ok(Number(line.y[1]) < 2 && Number(line.y[1]) > 1 && line.reach === 4.5);
  assert.equal(lineTraces(line, "red").length, 2);
  assert.deepEqual(drawnLine(thin, { smooth: 0.6, log: false }).ghost?.y, thin.values);
  const constant = { ...thin, values: [1, 1, 1, 1] };
  assert.equal(drawnLine(constant, { smooth: 0.6, log: false }).ghost, null);
});

test("a figure is found at its step, or near it where points were left out", () => {
  assert.equal(valueAt([1, 10], [5, 6], 4), undefined);
  assert.equal(valueAt([1, 10], [5, 6], 4, 3), 5);
  assert.equal(valueAt([1, 10], [5, 6], 7, 3), 6);
  assert.equal(valueAt([1, 10], [5, 6], 20, 3), undefined);
  assert.equal(valueAt([], [], 1, 9), undefined);
});

test("a tremor is no cliff: the axis never gets smaller than a hundredth of the values, or than a ten-thousandth", () => {
  const near = (/** @type {[number, number] | null} */ found, /** @type {number} */ low, /** @type {number} */ high) =>
    assert.ok(found && Math.abs(found[0] - low) < 1e-9 && Math.abs(found[1] - high) < 1e-9, String(found));
  near(valueRange([0, 1]), -0.06, 1.06);
  near(valueRange([0.8, 0.800001]), 0.8000005 - 0.0056 * 0.800001, 0.8000005 + 0.0056 * 0.800001);
  near(valueRange([0, 1e-6]), -6e-6, 1.06e-4);
  near(valueRange([0, 1e-6], { tiny: true }), -6e-8, 1.06e-6);
  near(valueRange([1, 1000], { log: true }), -0.18, 3.18);
  near(valueRange([1, 1, 0, -1], { log: true }), -0.0056, 0.0056);
  assert.deepEqual(valueRange([0.1, 0.1]), [0, 0.2]);
  assert.equal(valueRange([null]), null);
});

test("only what is seen makes the axis", () => {
  const line = { x: [1, 2, 3, 4], y: [9, 1, 2, 9] };
  assert.deepEqual(seenValues(line, [1.5, 3.5]), [1, 2]);
  assert.deepEqual(seenValues(line, null), line.y);
  assert.deepEqual(seenValues(line, [8, 9]), []);
  assert.deepEqual(seenPoints(line, [2.5, 3.5]), { x: [2, 3, 4], y: [1, 2, 9] });
  assert.deepEqual(seenPoints(line, [0, 1.5]), { x: [1, 2], y: [9, 1] });
  assert.deepEqual(seenPoints(line, [4.2, 9]).x, [4]);
});

const spec = (/** @type {string} */ key, removable = false) => ({ key, title: key, names: [key], removable });

test("a chart is still where nothing moves and enough is known", () => {
  const curves = new Map([
    ["kl", { ...curve([1, 2, 3, 4, 5], false), values: [0, 0, 0, 0, 0] }],
    ["few", { ...curve([1, 2], false), values: [0, 0] }],
    ["none", { ...curve([1, 2, 3, 4, 5], false), values: [null, null, null, null, null] }],
    ["loss", curve([1, 2, 3, 4, 5], false)],
  ]);
  const still = (/** @type {string} */ key, ended = false) => isStill(spec(key), /** @type {any} */ (curves), ended);
  assert.deepEqual(
    ["kl", "few", "none", "loss"].map((key) => still(key)),
    [true, false, true, false],
  );
  assert.equal(still("few", true), true);
  assert.equal(isStill({ ...spec("x"), names: ["kl", "loss"] }, /** @type {any} */ (curves), true), false);
});

test("a figure that was measured once, long ago, is no chart; the first steps of all are", () => {
  const steps = (/** @type {number} */ n) => Array.from({ length: n }, (_, at) => at + 1);
  const still = (/** @type {number} */ newest, ended = false) =>
    isStill(
      spec("gap"),
      /** @type {any} */ (
        new Map([
          ["gap", curve([1], false)],
          ["loss", curve(steps(newest), false)],
        ])
      ),
      ended,
    );
  assert.deepEqual([still(1), still(5), still(6), still(60, true)], [false, false, true, true]);
  assert.equal(still(1, true), false, "a run of one step shows its figures");
});

test("a chart that begins to move comes last, one that does not move stays, and an added one is never put away", () => {
  const folding = new Folding();
  const specs = [spec("a"), spec("b"), spec("c"), spec("mine", true)];
  const keys = (/** @type {string[]} */ moving) => {
    const { shown, folded } = folding.split(specs, (one) => !moving.includes(one.key));
    return [shown.map((one) => one.key), folded.map((one) => one.key)];
  };
  assert.deepEqual(keys(["c"]), [
    ["c", "mine"],
    ["a", "b"],
  ]);
  assert.deepEqual(keys(["c", "b"]), [["c", "mine", "b"], ["a"]]);
  assert.deepEqual(keys(["c", "b", "a"]), [["c", "mine", "b", "a"], []]);
  assert.deepEqual(keys([]), [["c", "mine", "b", "a"], []], "what was read is not taken away");
});
