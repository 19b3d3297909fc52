// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { labelOf } from "../../static/js/lib/taken.js";

/**
 * @param {string} textContent
 * @param {string | null} [name]
 */
const button = (textContent, name = null) => ({ textContent, getAttribute: () => name });

test("what was pressed has its accessible name, else its words in one line", () => {
  assert.equal(labelOf(button("\n  Stop \n the run ")), "Stop the run");
  assert.equal(labelOf(button("⋯", "More actions")), "More actions");
  assert.equal(labelOf(button("启动 训练任务")), "启动 训练任务");
  assert.equal(labelOf(button(" ")), "");
  assert.equal(labelOf(null), "");
});

test("a name of 60 characters is whole, and one of 61 is cut", () => {
  assert.equal(labelOf(button("n".repeat(60))), "n".repeat(60));
  assert.equal(labelOf(button("n".repeat(61))), `${"n".repeat(59)}…`);
});
