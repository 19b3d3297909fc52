// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { wayOf } from "../../static/js/lib/list_keys.js";

test("j and k lead down and up from anywhere, arrows only from a row", () => {
  for (const inRow of [true, false]) assert.deepEqual([wayOf("j", inRow), wayOf("k", inRow)], [1, -1]);
  assert.deepEqual([wayOf("ArrowDown", true), wayOf("ArrowUp", true)], [1, -1]);
  assert.deepEqual([wayOf("ArrowDown", false), wayOf("ArrowUp", false)], [0, 0]);
  for (const key of ["J", "x", "Enter", "ArrowLeft", "Home"]) assert.equal(wayOf(key, true), 0, key);
});
