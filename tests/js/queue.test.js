// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { applyFrame, emptyState } from "../../static/js/lib/state.js";

test("the place in the queue is the newest frame's, and unknown again with a snapshot", () => {
  const state = emptyState();
  const run = { id: "r", state: "queued", seq: 1 };
  assert.equal(state.queue, undefined);
  const queue = { title: "Next in line", lines: [] };
  assert.deepEqual([...applyFrame(state, { type: "queue", queue })], ["run"]);
  assert.equal(state.queue, queue);
  applyFrame(state, { type: "beat", run });
  assert.equal(state.queue, queue);
  applyFrame(state, { type: "queue", queue: null });
  assert.equal(state.queue, null);
  applyFrame(state, { type: "snapshot", seq: 1, run });
  assert.equal(state.queue, undefined);
});
