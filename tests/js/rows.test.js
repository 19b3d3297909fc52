// @ts-check
import assert from "node:assert/strict";
import test from "node:test";

import { nextRow } from "../../static/js/lib/rows.js";

test("keys go through rows and stop at their ends", () => {
  assert.deepEqual([nextRow(-1, 3, 1), nextRow(-1, 3, -1)], [0, 2]);
  assert.deepEqual([nextRow(0, 3, 1), nextRow(2, 3, 1), nextRow(0, 3, -1), nextRow(2, 3, -1)], [1, 2, 0, 1]);
});
