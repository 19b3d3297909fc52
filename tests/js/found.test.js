// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { reasonOf, shownAfter, withRollout } from "../../static/js/lib/found.js";

test("the address keeps its filters and has one rollout", () => {
  assert.equal(
    withRollout("?outcome=failed&outcome=partly&q=9+*+5", "a"),
    "?outcome=failed&outcome=partly&q=9+*+5&rollout=a",
  );
  assert.equal(withRollout("?rollout=a&sort=reward", "b"), "?rollout=b&sort=reward");
  assert.equal(withRollout("", "a"), "?rollout=a");
});

test("what a person chose stays when the list is drawn again, what the page chose as long as it is listed", () => {
  const listed = ["a", "b"];
  assert.equal(shownAfter({ shown: "b", chosen: false, listed, first: "a" }), "b");
  assert.equal(shownAfter({ shown: "x", chosen: false, listed, first: "a" }), "a");
  assert.equal(shownAfter({ shown: "x", chosen: true, listed, first: "a" }), "x");
  assert.equal(shownAfter({ shown: "", chosen: true, listed, first: "a" }), "a");
  assert.equal(shownAfter({ shown: "", chosen: false, listed: [], first: "" }), "");
});

test("a part that earned nothing says why, others do not", () => {
  const spans = [
    { note: "no call", message: 1 },
    { note: "no call", message: 3 },
    { note: "", message: 4 },
    { note: "too long", message: 5 },
  ];
  assert.equal(reasonOf({ value: 0, reason: "", spans }), "no call · too long");
  assert.equal(reasonOf({ value: -0.2, reason: "It asks no one.", spans }), "It asks no one.");
  assert.equal(reasonOf({ value: 0.001, reason: "", spans }), "");
  assert.equal(reasonOf({ value: null, reason: "missing", spans: [] }), "");
  assert.equal(reasonOf({ value: 0, reason: "", spans: [] }), "");
});
