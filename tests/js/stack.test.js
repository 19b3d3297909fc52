// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { aligned, stackTraces } from "../../static/js/lib/stack.js";

test("lines over one x: straight between what is known, nothing before and after it", () => {
  const lines = [
    { x: [1, 3], y: [1, 3] },
    { x: [2, 3, 4], y: [5, null, 7] },
  ];
  assert.deepEqual(aligned(lines), {
    x: [1, 2, 3, 4],
    y: [
      [1, 2, 3, 0],
      [0, 5, 6, 7],
    ],
  });
});

test("what is added is above zero, what is taken away below, and both sum up to the reward", () => {
  const good = { x: [1, 2], y: [0.5, 0.6] };
  const bad = { x: [1, 2], y: [-0.1, 0.1] };
  const { traces, edges } = stackTraces([good, bad], ["#111111", "#222222"], ["good", "bad"]);
  assert.deepEqual(
    traces.map((trace) => [trace.stackgroup, trace.y, trace.line.color]),
    [
      ["above", [0.5, 0.6], "#111111"],
      ["above", [0, 0.1], "#222222"],
      ["below", [-0.1, 0], "#222222"],
    ],
  );
  assert.deepEqual(
    edges.high.map((value) => Number(value.toFixed(9))),
    [0.5, 0.7],
  );
  assert.deepEqual(edges.low, [-0.1, 0]);
  const sum = edges.high.map((value, at) => Number((value + edges.low[at]).toFixed(9)));
  assert.deepEqual(sum, [0.4, 0.7]);
});
