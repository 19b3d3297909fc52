// @ts-check
/** The slider over the steps: what its handles mean for the form, and the other way around. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { boundsOf, handlesOf } from "../../static/js/lib/step_range.js";

const all = { low: 1, high: 60 };
const none = { from: "", to: "", below: "" };

test("a handle at its end bounds nothing, and handles that crossed have changed their parts", () => {
  assert.deepEqual(boundsOf({ low: 1, high: 60 }, all), { from: "", to: "" });
  assert.deepEqual(boundsOf({ low: 10, high: 60 }, all), { from: "10", to: "" });
  assert.deepEqual(boundsOf({ low: 1, high: 20 }, all), { from: "", to: "20" });
  assert.deepEqual(boundsOf({ low: 42, high: 12 }, all), { from: "12", to: "42" });
  assert.deepEqual(boundsOf({ low: 7, high: 7 }, all), { from: "7", to: "7" });
});

test("the handles are where the typed bounds are, inside the run's steps", () => {
  assert.deepEqual(handlesOf(none, all), { low: 1, high: 60 });
  assert.deepEqual(handlesOf({ ...none, from: "10", to: "20" }, all), { low: 10, high: 20 });
  assert.deepEqual(handlesOf({ ...none, below: "20" }, all), { low: 1, high: 19 });
  assert.deepEqual(handlesOf({ ...none, to: "30", below: "20" }, all), { low: 1, high: 19 });
  assert.deepEqual(handlesOf({ ...none, from: "-5", to: "900" }, all), { low: 1, high: 60 });
  assert.deepEqual(handlesOf({ ...none, from: "2.5", to: "7.5" }, all), { low: 3, high: 7 });
  assert.deepEqual(handlesOf({ ...none, from: "x", to: "y" }, all), { low: 1, high: 60 });
});
