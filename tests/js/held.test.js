// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { heldText } from "../../static/js/lib/held.js";

/** @type {import("../../static/js/lib/format.js").Translate} */
const t = (key, values = {}) => `${key} ${JSON.stringify(values)}`;
const held = {
  step: 7,
  tries: 3,
  next_try_at: "2026-01-01T00:00:12+00:00",
  until: "2026-01-01T00:08:00+00:00",
};

test("a wait counts down to the next try and to the pause", () => {
  const at = Date.parse("2026-01-01T00:00:00Z");
  assert.match(
    heldText(held, "no answer", at, t),
    /^held .*"step":7.*"what":"no answer".*"next":"seconds {\\"n\\":12}".*minutes_seconds {\\"m\\":8/,
  );
  assert.match(heldText(held, "no answer", at + 5000, t), /\\"n\\":7}/);
  assert.match(heldText(held, "no answer", at + 13_000, t), /^held_now /);
  assert.equal(heldText(null, "", at, t), "");
});
