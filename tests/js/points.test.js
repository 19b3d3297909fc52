// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
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
