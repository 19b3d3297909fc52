// @ts-check
import assert from "node:assert/strict";
import test from "node:test";

import { keyOf } from "../../static/js/lib/vote.js";

/** @param {string} key @param {Record<string, boolean>} [held] */
const press = (key, held = {}) => ({ key, altKey: false, ctrlKey: false, metaKey: false, shiftKey: false, ...held });

test("arrows and Backspace vote, other keys do not", () => {
  for (const key of ["ArrowLeft", "ArrowRight", "ArrowDown", "ArrowUp", "Backspace"])
    assert.equal(keyOf(press(key), false), key);
  for (const key of [" ", "Enter", "a", "PageDown", "Escape", "Left"]) assert.equal(keyOf(press(key), false), "");
});

test("a key belongs to the browser with a modifier, and to a field while one types", () => {
  for (const held of ["altKey", "ctrlKey", "metaKey", "shiftKey"])
    assert.equal(keyOf(press("ArrowLeft", { [held]: true }), false), "");
  assert.equal(keyOf(press("Backspace"), true), "");
});
