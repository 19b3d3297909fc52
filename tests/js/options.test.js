// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { setControl } from "../../static/js/lib/options.js";

test("a tick means true and false, text for all else", () => {
  const tick = { type: "checkbox", value: "on", checked: false };
  setControl(tick, true);
  assert.deepEqual(tick, { type: "checkbox", value: "on", checked: true });
  setControl(tick, false);
  assert.equal(tick.checked, false);
  const number = { type: "number", value: "32" };
  setControl(number, 4);
  assert.deepEqual(number, { type: "number", value: "4" });
  const select = { type: "select-one", value: "none" };
  setControl(select, "nf4");
  assert.equal(select.value, "nf4");
});
