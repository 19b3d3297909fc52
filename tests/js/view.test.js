// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { readView, writeView } from "../../static/js/lib/view.js";

test("the view survives its address, and nonsense in it is dropped", () => {
  const view = {
    tab: "rollouts",
    step: 42,
    rollout: "0b2f6f62-0000-4000-8000-0123456789ab",
    smooth: 0.6,
    log: true,
    still: true,
    stack: false,
    x: "tokens",
    beside: [{ id: "0b2f6f62-0000-4000-8000-0123456789ab", number: 3 }],
    add: ["env/latency_p95", "a b"],
  };
  assert.deepEqual(readView(writeView(view)), view);
  const bad = readView(
    "?tab=x&step=-1&rollout=<script>&smooth=7&x=loss&with=0b2f.1&with=0b2f6f62-0000-4000-8000-0123456789ab.8",
  );
  assert.deepEqual(bad, {
    tab: "curves",
    step: null,
    rollout: null,
    smooth: 0,
    log: false,
    still: false,
    stack: true,
    x: "step",
    beside: [],
    add: [],
  });
  assert.equal(writeView(bad), "");
});

test("two runs of one colour are not distinguished, so the second is left out", () => {
  const id = (/** @type {number} */ last) => `0b2f6f62-0000-4000-8000-00000000000${last}`;
  const { beside } = readView(`?with=${id(1)}.2&with=${id(2)}.2&with=${id(1)}.3&with=${id(3)}.3`);
  assert.deepEqual(beside, [
    { id: id(1), number: 2 },
    { id: id(3), number: 3 },
  ]);
});
