// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { addCurves, addPoint } from "../../static/js/lib/points.js";
import { applyFrame, emptyState } from "../../static/js/lib/state.js";

const point = (/** @type {number} */ step, /** @type {number | null} */ value, attempt = 1) => ({
  attempt,
  step,
  name: "reward",
  value,
});

test("what a later attempt trains again leaves every curve, and what it has not reached is of no other attempt", () => {
  const state = emptyState();
  const loss = (/** @type {number} */ step, attempt = 1) => ({
    ...point(step, step, attempt),
    name: "loss",
  });
  const all = [1, 2, 3, 4, 5];
  applyFrame(state, {
    type: "changes",
    seq: 1,
    points: [...all.map((n) => point(n, n)), ...all.map((n) => loss(n))],
  });
  applyFrame(state, { type: "changes", seq: 2, points: [point(3, 30, 2)] });
  assert.deepEqual(state.curves.get("reward"), {
    steps: [1, 2, 3],
    values: [1, 2, 30],
    attempts: [1, 1, 2],
  });
  assert.deepEqual(state.curves.get("loss")?.steps, [1, 2]);
  assert.equal(state.names.get("loss"), 2);
  applyFrame(state, {
    type: "changes",
    seq: 3,
    points: [point(5, 5), loss(2), loss(3, 2)],
  });
  assert.deepEqual(state.curves.get("reward")?.steps, [1, 2, 3]);
  assert.deepEqual(state.curves.get("loss"), {
    steps: [1, 2, 3],
    values: [1, 2, 3],
    attempts: [1, 1, 2],
  });
});

test("a snapshot's attempts count as begun", () => {
  const state = emptyState();
  const curves = {
    reward: { steps: [1, 2, 3], values: [1, 2, 3], attempts: [1, 2, 2] },
  };
  applyFrame(state, { type: "snapshot", seq: 1, curves });
  applyFrame(state, { type: "changes", seq: 2, points: [point(4, 4, 1)] });
  assert.deepEqual(state.curves.get("reward")?.steps, [1, 2, 3]);
});

test("points keep their order however they arrive, and missing ones stay null", () => {
  const state = emptyState();
  applyFrame(state, {
    type: "changes",
    seq: 1,
    points: [point(3, 3), point(1, 1), point(2, null)],
  });
  assert.deepEqual(state.curves.get("reward"), {
    steps: [1, 2, 3],
    values: [1, null, 3],
    attempts: [1, 1, 1],
  });
});

test("a figure of an earlier step that comes late is not the newest one", () => {
  const state = emptyState();
  applyFrame(state, { type: "changes", seq: 1, points: [point(5, 0.5), point(3, 0.3)] });
  assert.deepEqual(state.curves.get("reward")?.values, [0.3, 0.5]);
  assert.equal(state.names.get("reward"), 0.5);
  applyFrame(state, { type: "changes", seq: 2, points: [point(5, 0.7)] });
  assert.equal(state.names.get("reward"), 0.7);
});

test("parts of a curve hold what came live between their ends, and both ends are inside", () => {
  const state = emptyState();
  const curve = (/** @type {number[]} */ steps) => ({ steps, values: [...steps], attempts: 1 });
  applyFrame(state, { type: "snapshot", seq: 1, curves: { reward: curve([1, 4]) } });
  addCurves(state, { curves: { reward: curve([2]) }, first: 2, last: 3 });
  for (const step of [1, 2, 3, 4]) addPoint(state, point(step, 10 * step));
  assert.deepEqual(state.parts.get("reward"), { steps: [2, 3], values: [20, 30], attempts: [1, 1], first: 2, last: 3 });
  assert.deepEqual(state.curves.get("reward")?.values, [10, 20, 30, 40]);
});

test("the means of a thinned curve grow at its end, and lose what a later attempt trains again", () => {
  const state = emptyState();
  const means = { steps: [1, 2], values: [1, 2], counts: [4, 4] };
  addCurves(state, { curves: { reward: { steps: [1, 2, 4], values: [1, 2, 4], attempts: 1, means } } });
  addPoint(state, point(3, 3)); // not at the end
  addPoint(state, point(5, null));
  assert.deepEqual(means, { steps: [1, 2], values: [1, 2], counts: [4, 4] });
  addPoint(state, point(6, 6));
  assert.deepEqual(means, { steps: [1, 2, 6], values: [1, 2, 6], counts: [4, 4, 1] });
  addPoint(state, point(2, 20, 2));
  assert.deepEqual(means, { steps: [1, 2], values: [1, 20], counts: [4, 1] });
  assert.deepEqual([state.names.get("reward"), state.curves.get("reward")?.steps], [20, [1, 2]]);
});

test("a point changes a curve once, and only where no later attempt made its step", () => {
  const state = emptyState();
  assert.equal(addCurves(state, { curves: {} }), false);
  assert.equal(addCurves(state, { curves: { reward: { steps: [1, 3], values: [1, 3], attempts: [1, 2] } } }), true);
  assert.equal(state.names.get("reward"), 3);
  assert.equal(addPoint(state, point(1, 1)), false);
  assert.equal(addPoint(state, point(1, 1.5)), true);
  assert.equal(addPoint(state, point(3, 9)), false); // of an earlier attempt
  assert.equal(addPoint(state, point(2, 9)), true); // which had not come to the second one's first step
  assert.deepEqual(state.curves.get("reward")?.values, [1.5, 9, 3]);
  assert.equal(addCurves(state, { curves: { kl: { steps: [], values: [], attempts: [] } } }), true);
  assert.equal(state.names.get("kl"), null);
  state.names.set("late", 1);
  assert.equal(addPoint(state, { ...point(1, 2), name: "late" }), true);
  assert.deepEqual([state.names.get("late"), state.curves.has("late")], [2, false]); // it is fetched as a whole
});
