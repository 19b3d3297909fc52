// @ts-check
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { drawHead, drawHeld, drawLive, drawQueue, drawTiles } from "../../static/js/lib/head.js";
import { page, parsed } from "./page.js";

// prettier-ignore
const TEXTS = {
  "phase.running": "Running",
  "phase.generating": "Generating", generating_of: "{done} of {all}", step_of: "{step} of {total}",
  stage_of: "stage {stage}", per_step: "{t} a step", seconds: "{n} s", minutes: "{n} min", left: "{t} left",
  attempt: "attempt {n}", no_progress: "still for {t}", trainer_silent: "silent for {t}", stale: "{t} old",
  held: "held, next in {next}"
};
// prettier-ignore
const IDS = [
  "run-phase", "run-steps", "run-stage", "run-pace", "run-eta", "run-attempt", "run-progress", "run-actions",
  "run-stalled", "run-stall-help", "run-reports", "run-live", "run-waiting"
];
const MARKUP = `<div id="run"><b id="run-state"></b>${IDS.map((id) => `<div id="${id}"></div>`).join("")}
<div id="run-failure"><p data-part="title"></p></div><div id="run-silent"><p></p></div><div id="run-held"><p></p></div>
<button data-action="stop"></button><button data-action="resume"></button><i data-live-only></i>
<dialog id="stop-dialog" open></dialog></div>`;
// prettier-ignore
const RUN = {
  state: "running", phase: "", step: 3, total_steps: 10, eta_seconds: 120, attempt: 1, reports: [],
  progress_age_seconds: 5, beat_age_seconds: 1, error: null
};
// prettier-ignore
const PAGE = {
  acts: { stop: ["running", "queued"], resume: ["paused"] }, terminal: ["succeeded"], imported: false,
  silent_after: 30, stall_after: 60, per_step: 8
};

/** @type {any} */
let shown;
beforeEach(() => {
  shown = page(MARKUP, TEXTS);
});
/** @type {(id: string) => any} */
const at = (id) => shown.getElementById(id);
const draw = (run = {}, rollouts = /** @type {any[]} */ ([]), more = {}) =>
  drawHead({ ...RUN, ...run }, rollouts, { ...PAGE, ...more });
const said = (/** @type {string} */ id, run = {}, rollouts = /** @type {any[]} */ ([])) => {
  draw(run, rollouts);
  return at(id).textContent;
};

test("the head has the state, and a draft that is checked says so", () => {
  assert.equal(said("run-state"), "state.running");
  assert.deepEqual([at("run").dataset.state, at("run-state").dataset.state], ["running", "running"]);
  assert.equal(said("run-state", { state: "draft", phase: "checking" }), "phase.checking");
  assert.deepEqual([at("run").dataset.state, at("run-state").dataset.state], ["draft", "checking"]);
  assert.equal(said("run-state", { state: "draft" }), "state.draft");
  assert.equal(said("run-state", { phase: "checking" }), "state.running");
});

test("steps, stage, pace, time left, and attempt are there once they are known", () => {
  assert.equal(said("run-steps"), "3 of 10");
  assert.equal(said("run-steps", { total_steps: 0 }), "");
  const ends = () => ["max", "value"].map((name) => at("run-progress").getAttribute(name));
  assert.deepEqual(ends(), ["1", "3"]);
  draw({ step: 4 });
  assert.deepEqual(ends(), ["10", "4"]);
  assert.equal(said("run-stage", { health: { stages: [{ stage: 1 }, { stage: 2 }] } }), "stage 2");
  assert.equal(said("run-stage", { health: {} }), "");
  assert.equal(said("run-pace", { step_seconds: 2 }), "2 s a step");
  assert.equal(said("run-pace"), "");
  assert.equal(said("run-eta", { eta_seconds: 0 }), "0 s left");
  assert.equal(said("run-eta", { eta_seconds: null }), "");
  assert.equal(said("run-eta", { state: "paused" }), "");
  assert.equal(said("run-attempt", { attempt: 2 }), "attempt 2");
  assert.equal(said("run-attempt", { attempt: 1 }), "");
});

test("the phase counts the rollouts that ended, of all that the step will have", () => {
  const rows = ["running", "done", "failed"].map((status) => ({ status }));
  assert.equal(said("run-phase", { phase: "generating" }, rows), "2 of 8");
  assert.equal(said("run-phase", { phase: "generating" }, Array(9).fill(rows[1])), "9 of 9");
  assert.equal(said("run-phase", { phase: "generating" }), "Generating");
  assert.equal(said("run-phase", { phase: "generating", state: "preparing" }), "Generating");
  assert.equal(said("run-phase", { phase: "generating", state: "paused" }, rows), "");
  assert.equal(said("run-phase", { phase: "unknown" }), "");
  assert.equal(said("run-phase", { phase: "running" }), ""); // the state says so
});

test("buttons that the state does not allow are hidden, and a question whether to stop is closed", () => {
  const hidden = () => shown.querySelectorAll("button").map((/** @type {any} */ button) => button.hidden);
  draw();
  assert.deepEqual([hidden(), at("stop-dialog").open], [[false, true], true]);
  draw({ state: "paused" });
  assert.deepEqual([hidden(), at("stop-dialog").open], [[true, false], false]);
});

test("what is live is hidden once the run has ended, and of an imported run", () => {
  const hidden = () => shown.querySelector("[data-live-only]").hidden;
  draw();
  assert.equal(hidden(), false);
  draw({ state: "succeeded" });
  assert.equal(hidden(), true);
  draw({}, [], { imported: true });
  assert.equal(hidden(), true);
});

test("buttons are fetched again in another state, once for each state", () => {
  /** @type {string[]} */
  const fetched = [];
  at("run-actions").addEventListener("run-state", () => fetched.push("again"));
  at("run-actions").dataset.state = "running";
  draw();
  assert.equal(fetched.length, 0);
  draw({ state: "paused" });
  draw({ state: "paused" });
  assert.equal(fetched.length, 1); // the answer is on its way
  draw({ state: "queued" });
  assert.equal(fetched.length, 2);
});

test("a trainer without progress for a minute is stalled, with help", () => {
  draw({ progress_age_seconds: 59 });
  assert.deepEqual([at("run-stalled").hidden, at("run-stall-help").hidden, at("run-stalled").textContent], [true, true, ""]); // prettier-ignore
  draw({ progress_age_seconds: 60 });
  assert.deepEqual([at("run-stalled").hidden, at("run-stall-help").hidden, at("run-stalled").textContent], [false, false, "still for 1 min"]); // prettier-ignore
  draw({ progress_age_seconds: null });
  assert.equal(at("run-stalled").hidden, true);
});

test("a trainer that says nothing for longer than half a minute is silent; without a worker it is not", () => {
  draw({ beat_age_seconds: 30 });
  assert.equal(at("run-silent").hidden, true);
  draw({ beat_age_seconds: 31 });
  assert.deepEqual([at("run-silent").hidden, at("run-silent").textContent], [false, "silent for 31 s"]);
  draw({ beat_age_seconds: null });
  assert.equal(at("run-silent").hidden, true);
});

test("a failure is a warning where the run can continue", () => {
  draw();
  assert.equal(at("run-failure").hidden, true);
  const failed = { error: { code: "x" }, failure: { title: "Broken\u202e" } };
  draw({ ...failed, state: "failed" });
  const box = at("run-failure");
  assert.deepEqual([box.hidden, box.dataset.kind, box.textContent], [false, "error", "Broken[U+202E]"]);
  draw({ ...failed, state: "paused" });
  assert.equal(box.dataset.kind, "warning");
});

test("reports come, change, and go, each by its name", () => {
  const lines = () => at("run-reports").children.map((/** @type {any} */ line) => line.textContent);
  draw({ reports: [["disk", "5 GB left"], ["mix", "two data sets"]] }); // prettier-ignore
  const first = at("run-reports").firstElementChild;
  draw({ reports: [["disk", "4 GB left"]] });
  assert.deepEqual([lines(), at("run-reports").firstElementChild === first], [["4 GB left"], true]);
  assert.equal(at("run-reports").hidden, false);
  draw();
  assert.deepEqual([lines(), at("run-reports").hidden], [[], true]);
});

test("a wait has its countdown, and none is hidden", () => {
  const now = Date.parse("2026-01-01T00:00:00Z");
  const held = { step: 1, next_try_at: "2026-01-01T00:00:20Z", until: "2026-01-01T00:01:00Z" };
  drawHeld({ held, waits_for: "the judge" }, now);
  assert.deepEqual([at("run-held").hidden, at("run-held").textContent], [false, "held, next in 20 s"]);
  drawHeld({ held: null }, now);
  assert.deepEqual([at("run-held").hidden, at("run-held").textContent], [true, ""]);
  drawHeld({ held, waits_for: "the judge" }, now);
  drawHeld(null, now);
  assert.equal(at("run-held").hidden, true);
});

test("a queued run says what it waits for; the server's own words stay until others come", () => {
  const box = at("run-waiting");
  drawQueue({ state: "queued" }, undefined);
  assert.equal(box.hidden, true);
  drawQueue({ state: "queued" }, { title: "Second", lines: [{ text: "after ", url: "/r", link: "run 1" }, { text: "no worker" }] }); // prettier-ignore
  assert.deepEqual(box.children.map((/** @type {any} */ line) => line.textContent), ["Second", "after  run 1", "no worker "]); // prettier-ignore
  assert.deepEqual([box.hidden, box.querySelectorAll("a").length, box.querySelector("a").href], [false, 1, "/r"]);
  drawQueue({ state: "queued" }, undefined);
  assert.equal(box.hidden, false);
  drawQueue({ state: "queued" }, null);
  assert.equal(box.hidden, true);
  drawQueue({ state: "running" }, { title: "Second", lines: [] });
  assert.equal(box.hidden, true);
});

test("one word says how fresh the page is", () => {
  const live = (/** @type {string} */ status, ended = false) => {
    drawLive(status, 12_900, ended);
    return [at("run-live").dataset.state, at("run-live").textContent];
  };
  assert.deepEqual(live("live"), ["live", "live"]);
  assert.deepEqual(live("live", true), ["draft", "ended"]);
  assert.deepEqual(live("stale"), ["stale", "12 s old"]);
  assert.deepEqual(live("paused"), ["stale", "paused_view"]);
  assert.deepEqual(live("login"), ["bad", "logged_out"]);
  assert.deepEqual(live("forbidden"), ["bad", "not_allowed"]);
  assert.deepEqual(live("gone"), ["bad", "gone"]);
  assert.deepEqual(live("connecting"), ["reconnecting", "reconnecting"]);
});

test("a tile has the newest figure of its metric and a line of it; a thinned curve keeps the line that came", () => {
  const tile = (/** @type {string} */ facts) => `<a class="tile" ${facts}><b class="tile-value">old</b><p class="tile-row"></p></a>`; // prettier-ignore
  shown.body.append(...parsed(`${tile('data-metric="share" data-kind="percent"')}${tile('data-metric="thin"')}${tile('data-metric="none"')}`)); // prettier-ignore
  const [share, thin, none] = document.querySelectorAll(".tile");
  const curve = (/** @type {any[]} */ values, more = {}) => ({ steps: [], values, attempts: [], ...more });
  const curves = /** @type {any} */ (
    new Map([
      ["share", curve([0.1, 0.2, null, 0.5, 0.25])],
      ["thin", curve([1, 2], { means: [] })],
    ])
  );
  drawTiles(curves);
  const value = (/** @type {any} */ node) => node.querySelector(".tile-value").textContent;
  assert.deepEqual([value(share), value(thin), value(none)], ["25%", "2.00", "old"]);
  assert.deepEqual([share.querySelectorAll("polyline").length, thin.querySelectorAll("polyline").length], [2, 0]);
  curves.get("share").values = [0.1, 0.2];
  drawTiles(curves);
  assert.equal(share.querySelectorAll("svg").length, 1);
  assert.equal(share.querySelector("polyline")?.getAttribute("points"), "0.0,20.0 96.0,2.0");
  assert.equal(share.querySelectorAll("polyline").length, 1);
});
