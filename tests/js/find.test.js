// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { fits } from "../../static/js/lib/find.js";

const text = "post /runs/{run_id}/clone make a run with the config of this one runs";

test("every word must be somewhere, in any order and case", () => {
  assert.equal(fits(text, "CLONE post"), true);
  assert.equal(fits(text, "clone delete"), false);
  assert.equal(fits(text, "runs/{run_id}"), true);
});

test("nothing typed fits everything", () => {
  assert.equal(fits(text, ""), true);
  assert.equal(fits(text, "  "), true);
});
