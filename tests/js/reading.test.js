// @ts-check
/** Keys of reading pages, and text with marks. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { actionOf } from "../../static/js/lib/keys.js";
import { plainText } from "../../static/js/lib/marked.js";

/** @param {string} key @param {object} [more] */
const press = (key, more = {}) => ({ key, ctrlKey: false, metaKey: false, altKey: false, ...more });

test("keys lead to the rollouts next to this one", () => {
  const found = ["ArrowLeft", "ArrowRight", "k", "j", "r", "g", "?"].map((key) => actionOf(press(key), false));
  assert.deepEqual(found, ["group-before", "group-after", "step-before", "step-after", "raw", "group", "keys"]);
  const ofFound = ["p", "n", "f"].map((key) => actionOf(press(key), false));
  assert.deepEqual(ofFound, ["found-before", "found-after", "found"]);
  assert.equal(actionOf(press("x"), false), "");
});

test("keys of other controls do nothing", () => {
  assert.equal(actionOf(press("j"), true), "");
  for (const name of ["ctrlKey", "metaKey", "altKey"]) assert.equal(actionOf(press("r", { [name]: true }), false), "");
});

test("a hidden character counts as one, however its mark is written", () => {
  const text = (/** @type {string} */ content) => /** @type {any} */ ({ nodeType: 3, textContent: content });
  const hidden = /** @type {any} */ ({ nodeType: 1, textContent: "U+202E" });
  assert.equal(plainText([text("ab"), hidden, text("c")]), "ab\u0001c");
});
