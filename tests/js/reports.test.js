// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventText, heldText, reportLines } from "../../static/js/lib/reports.js";

/** @type {import("../../static/js/lib/format.js").Translate} */
const t = (key, values = {}) => `${key} ${JSON.stringify(values)}`;
const held = {
  step: 7,
  tries: 3,
  error: { code: "environment_unreachable", message: "refused" },
  next_try_at: "2026-01-01T00:00:12+00:00",
  until: "2026-01-01T00:08:00+00:00",
};

test("a wait counts down to the next try and to the pause", () => {
  const at = Date.parse("2026-01-01T00:00:00Z");
  assert.match(heldText(held, at, t), /^held .*"step":7.*"next":"seconds {\\"n\\":12}".*minutes_seconds {\\"m\\":8/);
  assert.match(heldText(held, at + 5000, t), /\\"n\\":7}/);
  assert.match(heldText(held, at + 13_000, t), /^held_now /);
  assert.equal(heldText(null, at, t), "");
});

test("reports name what was lost, what was set aside and what was skipped", () => {
  const resumed = {
    attempt: 2,
    source: "1/checkpoint-6",
    step: 6,
    lost_steps: 3,
    set_aside: ["1/checkpoint-8"],
  };
  const ended = { attempt: 1, code: "trainer_killed", message: "Killed." };
  const sampler = {
    step: 1,
    tokens: 9,
    max_gap: 1e-6,
    mean_gap: 1e-7,
    tolerance: 0.05,
  };
  const health = { sampler, resumed, ended, skipped: { count: 2, step: 9, what: "loss" } };
  const lines = reportLines({ health }, t);
  assert.deepEqual(
    lines.map(([name]) => name),
    ["ended", "resumed", "skipped"],
  );
  assert.match(lines[0][1], /^report.ended {"attempt":1,"why":"error.trainer_killed {}"}/);
  assert.match(lines[1][1], /report.resumed .*report.lost {"n":3} report.aside {"names":"1\/checkpoint-8"}/);
  assert.match(lines[2][1], /report.skipped_loss {"n":2,"step":9}/);
  assert.deepEqual(reportLines({ health: {} }, t), []);
  // The notice of a run's error says why it ended.
  assert.deepEqual(reportLines({ health: { ended }, error: { code: "storage_full" } }, t), []);
});

test("a time budget says what is used and left, or that the run ended because of it", () => {
  const [[name, text]] = reportLines({ health: { time: { hours: 1.5, of: 8 } } }, t);
  assert.equal(name, "time");
  assert.match(text, /^report.time {.*"left":"hours_minutes {\\"h\\":6,\\"m\\":30}"/);
  const [[, over]] = reportLines({ health: { time: { hours: 8.25, of: 8, over: 40 } } }, t);
  assert.match(over, /^report.time_over {.*"step":40}/);
  const [[, late]] = reportLines({ health: { time: { hours: 8.25, of: 8 } } }, t);
  assert.match(late, /"left":"seconds {\\"n\\":"?0"?}"/);
  assert.deepEqual(reportLines({ health: { time: { hours: 1, of: null } } }, t), []);
});

test("what was verified is a sentence, and plain text in older records", () => {
  const position = { template: "position in the data: step {step}", values: { step: 6 } };
  const [[, text]] = reportLines({ health: { resumed: { source: "", step: 0, verified: ["manifest", position] } } }, t);
  assert.match(
    text,
    /report.verified .*"manifestreport.comma {}told.position in the data: step {step} {\\"step\\":6}"/,
  );
});

test("events of a run that waits and continues", () => {
  const payload = { step: 7, error: held.error, tries: 1, next_try_s: 5 };
  assert.match(eventText({ kind: "held", payload }, t), /^event.held .*"tries":1,"message":"refused"/);
  assert.match(eventText({ kind: "held", payload: { step: 7, error: null } }, t), /^event.held_over {"step":7}/);
  const torn = {
    kind: "checkpoints_removed",
    payload: { why: "torn", paths: ["1/checkpoint-8"] },
  };
  assert.match(eventText(torn, t), /^event.torn {"names":"1\/checkpoint-8"}/);
});
