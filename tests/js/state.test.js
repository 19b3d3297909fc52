// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { applyFrame, currentStep, emptyState, EVENTS_KEPT, rolloutsOf, trim } from "../../static/js/lib/state.js";

const run = (/** @type {object} */ more = {}) => ({
  id: "r",
  state: "running",
  step: 1,
  seq: 1,
  ...more,
});
const rollout = (/** @type {object} */ more = {}) => ({
  id: "a",
  attempt: 1,
  step: 1,
  group: 0,
  index: 0,
  status: "running",
  seq: 1,
  ...more,
});
const point = (/** @type {number} */ step, /** @type {number | null} */ value, attempt = 1) => ({
  attempt,
  step,
  name: "reward",
  value,
});

test("a snapshot replaces everything", () => {
  const state = emptyState();
  applyFrame(state, {
    type: "snapshot",
    seq: 5,
    run: run(),
    points: [point(1, 0.5)],
    rollouts: [rollout()],
  });
  applyFrame(state, {
    type: "snapshot",
    seq: 9,
    run: run({ seq: 9 }),
    points: [],
    rollouts: [],
  });
  assert.equal(state.seq, 9);
  assert.equal(state.curves.size, 0);
  assert.equal(state.rollouts.size, 0);
});

test("a repeated frame changes nothing", () => {
  const state = emptyState();
  const frame = {
    type: "changes",
    seq: 2,
    points: [point(1, 1)],
    rollouts: [rollout({ seq: 2 })],
    turns: [{ rollout: "a", number: 0, messages: [], seq: 2 }],
    groups: [{ attempt: 1, step: 1, group: 0, seq: 2 }],
    events: [{ seq: 2, kind: "log", payload: {} }],
  };
  assert.equal(applyFrame(state, frame).size, 5);
  assert.equal(applyFrame(state, frame).size, 0);
});

test("an older row does not undo a newer one", () => {
  const state = emptyState();
  applyFrame(state, {
    type: "changes",
    seq: 5,
    rollouts: [rollout({ seq: 5, status: "completed" })],
  });
  applyFrame(state, {
    type: "changes",
    seq: 4,
    rollouts: [rollout({ seq: 4, status: "running" })],
  });
  assert.equal(state.rollouts.get("a")?.status, "completed");
  assert.equal(state.seq, 5);
});

test("a later attempt takes the place of an earlier one at the same step", () => {
  const state = emptyState();
  applyFrame(state, {
    type: "changes",
    seq: 1,
    points: [point(1, 1), point(2, 2)],
    rollouts: [rollout(), rollout({ id: "b", index: 1 })],
  });
  applyFrame(state, {
    type: "changes",
    seq: 2,
    points: [point(2, 7, 2)],
    rollouts: [rollout({ id: "c", attempt: 2, seq: 2 })],
  });
  assert.deepEqual(state.curves.get("reward")?.values, [1, 7]);
  assert.deepEqual(
    rolloutsOf(state, 1).map((row) => row.id),
    ["c"],
  );
  applyFrame(state, {
    type: "changes",
    seq: 3,
    points: [point(2, 3, 1)],
    rollouts: [rollout({ id: "d", seq: 3 })],
  });
  assert.deepEqual(state.curves.get("reward")?.values, [1, 7]);
  assert.deepEqual(
    rolloutsOf(state, 1).map((row) => row.id),
    ["c"],
  );
});

test("the frames of a snapshot in parts keep their seq until the last one", () => {
  const state = emptyState();
  applyFrame(state, {
    type: "snapshot",
    seq: 0,
    run: run(),
    rollouts: [rollout()],
  });
  applyFrame(state, {
    type: "changes",
    seq: 0,
    rollouts: [rollout({ id: "b", index: 1 })],
  });
  assert.equal(state.seq, 0);
  applyFrame(state, { type: "changes", seq: 8, events: [] });
  assert.equal(state.seq, 8);
  assert.equal(rolloutsOf(state, 1).length, 2);
});

test("a step frame brings rows but does not move the line's seq", () => {
  const state = emptyState();
  applyFrame(state, {
    type: "snapshot",
    seq: 4,
    run: run(),
    step: 9,
    rollouts: [rollout({ step: 9 })],
  });
  assert.ok(!state.whole.has(9)); // its turns were not asked for
  applyFrame(state, {
    type: "step",
    step: 2,
    seq: 100,
    rollouts: [rollout({ id: "z", step: 2 })],
  });
  assert.equal(state.seq, 4);
  assert.ok(state.whole.has(2));
  assert.equal(currentStep(state), 9);
});

test("a step watched from its beginning is whole, an old one that changes is not", () => {
  const state = emptyState();
  applyFrame(state, {
    type: "snapshot",
    seq: 4,
    run: run(),
    step: 9,
    rollouts: [rollout({ step: 9 })],
  });
  applyFrame(state, {
    type: "changes",
    seq: 5,
    rollouts: [rollout({ id: "n", step: 10, seq: 5 }), rollout({ id: "o", step: 3, seq: 5 })],
  });
  assert.ok(state.whole.has(10));
  assert.ok(!state.whole.has(3));
});

test("turns are in order of number", () => {
  const state = emptyState();
  const turn = (/** @type {number} */ number) => ({
    rollout: "a",
    number,
    messages: [],
    seq: 1,
  });
  applyFrame(state, {
    type: "changes",
    seq: 1,
    turns: [turn(2), turn(0), turn(1)],
  });
  assert.deepEqual(
    state.turns.get("a")?.map((row) => row.number),
    [0, 1, 2],
  );
});

test("memory stays bounded: old steps and old events go", () => {
  const state = emptyState();
  for (let step = 1; step <= 20; step += 1)
    applyFrame(state, {
      type: "changes",
      seq: step,
      rollouts: [rollout({ id: `r${step}`, step, seq: step })],
    });
  trim(state);
  assert.ok(state.steps.has(15) && state.steps.has(20) && !state.steps.has(14));
  const events = Array.from({ length: EVENTS_KEPT + 50 }, (_, at) => ({
    seq: 100 + at,
    kind: "log",
    payload: {},
  }));
  applyFrame(state, { type: "changes", seq: 2000, events });
  assert.equal(state.events.length, EVENTS_KEPT);
});

test("an unknown frame or an older run is passed over", () => {
  const state = emptyState();
  assert.equal(applyFrame(state, { type: "pong" }).size, 0);
  applyFrame(state, {
    type: "beat",
    seq: 3,
    run: run({ seq: 3, state: "succeeded" }),
  });
  applyFrame(state, { type: "changes", seq: 2, run: run({ seq: 2 }) });
  assert.equal(state.run?.state, "succeeded");
});

const snapshot = (/** @type {object} */ more = {}) => ({
  type: "snapshot",
  seq: 9,
  run: run({ seq: 9 }),
  step: 1,
  more: { names: 0, rollouts: 0 },
  names: { reward: 0.5, "env/steps": 7 },
  curves: { reward: { steps: [1, 2], values: [0.1, 0.5], attempts: 1 } },
  rollouts: [rollout({ task: "a long…", short: true, seq: 3 })],
  ...more,
});

test("a first frame has the curves that are shown, and the names of all", () => {
  const state = emptyState();
  assert.ok(applyFrame(state, snapshot()).has("points"));
  assert.deepEqual(state.curves.get("reward"), {
    steps: [1, 2],
    values: [0.1, 0.5],
    attempts: [1, 1],
  });
  assert.deepEqual(Array.from(state.names), [
    ["reward", 0.5],
    ["env/steps", 7],
  ]);
  assert.equal(state.curves.has("env/steps"), false);
});

test("a curve that was left out does not begin in the middle: its points wait until it is asked for", () => {
  const state = emptyState();
  applyFrame(state, snapshot());
  applyFrame(state, {
    type: "changes",
    seq: 10,
    points: [{ attempt: 1, step: 3, name: "env/steps", value: 8 }],
  });
  assert.equal(state.curves.has("env/steps"), false);
  assert.equal(state.names.get("env/steps"), 8);
  const curves = {
    "env/steps": { steps: [1, 2, 3], values: [6, 7, 8], attempts: [1, 1, 2] },
  };
  assert.ok(applyFrame(state, { type: "curves", seq: 99, curves }).has("points"));
  assert.deepEqual(state.curves.get("env/steps")?.attempts, [1, 1, 2]);
  assert.equal(state.seq, 10); // an answer is no place to go on from
  applyFrame(state, {
    type: "changes",
    seq: 11,
    points: [{ attempt: 2, step: 4, name: "env/steps", value: 9 }],
  });
  assert.deepEqual(state.curves.get("env/steps")?.values, [6, 7, 8, 9]);
});

test("a metric that is new after the first frame is whole from its first point", () => {
  const state = emptyState();
  applyFrame(state, snapshot());
  applyFrame(state, {
    type: "changes",
    seq: 10,
    points: [{ attempt: 1, step: 3, name: "new", value: 1 }],
  });
  assert.deepEqual(state.curves.get("new")?.values, [1]);
});

test("the first frame's step is whole only when it was asked for, and its whole rows replace cut ones", () => {
  const state = emptyState();
  applyFrame(state, snapshot());
  assert.equal(state.whole.has(1), false);
  applyFrame(state, {
    type: "step",
    step: 1,
    seq: 9,
    rollouts: [rollout({ task: "a long task", seq: 3 })],
    turns: [],
  });
  assert.equal(state.whole.has(1), true);
  assert.equal(state.rollouts.get("a")?.task, "a long task");
});
