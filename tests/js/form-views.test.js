// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { equalValues, isChanged, shownOptions } from "../../static/js/lib/form-views.js";

/** @param {string} path @param {Partial<import("../../static/js/lib/form-views.js").Option>} more */
const option = (path, more) => ({ path, words: path, basic: false, value: "0", fallback: "0", ...more });
const rate = option("optim.learning_rate", { words: "Learning rate optim.learning_rate AdamW", basic: true });
const beta = option("grpo.beta", { words: "KL weight β grpo.beta", value: "0.04", fallback: "0.0" });
const delta = option("grpo.delta", { words: "Ratio limit grpo.delta" });
const all = [rate, beta, delta];

test("numbers are equal by value, texts by their letters", () => {
  assert.ok(equalValues("1e-5", "0.00001"));
  assert.ok(equalValues("0", "0.0"));
  assert.ok(equalValues(" starter", "starter "));
  assert.ok(!equalValues("", "0"));
  assert.ok(!equalValues("0", ""));
  assert.ok(!equalValues("true", "false"));
});

test("a view shows the recipe, what was changed, or all", () => {
  assert.deepEqual(shownOptions(all, "recipe", ""), [rate]);
  assert.deepEqual(shownOptions(all, "changed", " "), [beta]);
  assert.deepEqual(shownOptions(all, "all", ""), all);
  assert.ok(isChanged(beta) && !isChanged(rate));
});

test("a query finds all words, in any view, apart from case", () => {
  assert.deepEqual(shownOptions(all, "recipe", "GRPO"), [beta, delta]);
  assert.deepEqual(shownOptions(all, "changed", "rate learning"), [rate]);
  assert.deepEqual(shownOptions(all, "all", "β"), [beta]);
  assert.deepEqual(shownOptions(all, "all", "rate grpo"), []);
});
