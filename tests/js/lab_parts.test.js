// @ts-check
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { browser } from "./browser.js";
import { page, send } from "./page.js";

const IDS = "lab-status lab-progress lab-result lab-error lab-error-title lab-error-detail lab-verdict lab-brief alarms-count lab-alarms lab-turns lab-turns-why lab-turns-known lab-turns-note lab-turns-rows transcript reader-parts reader-title"; // prettier-ignore
const TEXTS = { "lab.ms": "{n} ms", "lab.scored": "{n} in {t}", "lab.rescored": "{n} in {t}, new: {names}", "lab.evidence_label": "{n} of {title}", "lab.turns.known": "{n}/{all}", seconds: "{n} s", "role.user": "User" }; // prettier-ignore
/** @type {any} */
let shown;
/** @type {(id: string) => any} */
const at = (id) => shown.getElementById(id);
/** @type {(selector: string) => any[]} */
const every = (selector) => shown.querySelectorAll(selector);
const texts = (/** @type {string} */ selector) => every(selector).map((node) => node.textContent);
/** @type {any} */
let parts;
beforeEach(async () => {
  browser();
  shown = page(`${IDS.split(" ").map((id) => `<p id="${id}"></p>`).join("")}<a id="reader-page"></a>`, TEXTS); // prettier-ignore
  const load = (/** @type {string} */ name) => import(`../../static/js/pages/lab_${name}.js`);
  parts = { ...(await load("status")), ...(await load("alarms")), ...(await load("turns")), ...(await load("reader")) };
});

test("the status says how long it took and what is new, and the brief what changed", () => {
  const status = new parts.Status(16);
  const scored = (/** @type {number} */ took_ms, more = {}) => {
    status.scored({ took_ms, verdict: { kind: "info", sentence: "Fine." }, summary: { rollouts: 16, reward: { mean: 0.5 } }, ...more }); // prettier-ignore
    return [at("lab-status").textContent, at("lab-brief").textContent];
  };
  assert.deepEqual(scored(999.4), ["16 in 999 ms", "reward 0.50"]);
  assert.deepEqual(scored(1000, { against: { reward: { mean: 0.501 } } }), ["16 in 1 s", "reward 0.50"]);
  assert.deepEqual(scored(2, { against: { reward: { mean: 0.25 } }, rescored: ["a", "b"] }), ["16 in 2 ms, new: a, b", "reward 0.25 → 0.50"]); // prettier-ignore
  const progress = () => [at("lab-progress").hidden, at("lab-progress").getAttribute("max"), at("lab-progress").getAttribute("value")]; // prettier-ignore
  status.scoring();
  status.computing({ components: ["a"], total: 8, done: 0 });
  assert.deepEqual([progress(), at("lab-result").hasAttribute("aria-busy")], [[false, "8", "0"], true]);
  status.scoring(); // asked again: what it counts stays
  assert.equal(at("lab-status").textContent, "lab.computing");
  status.computing({ components: ["a"], total: 0, done: 0 });
  assert.deepEqual(progress(), [false, null, null]);
  status.computing({ components: ["a"], total: 8, done: 4 });
  status.failed("No.", "Why");
  assert.deepEqual(
    [progress()[0], progress()[2], at("lab-error").hidden, at("lab-status").textContent],
    [true, null, false, ""],
  );
  status.scoring();
  assert.equal(at("lab-status").textContent, "lab.scoring");
  scored(2);
  assert.deepEqual([at("lab-error").hidden, at("lab-result").hasAttribute("aria-busy")], [true, false]);
});

test("why there is no answer is said in the lab's words where it has its own", () => {
  const said = [{ status: 422, body: { detail: {} } }, { kind: "late", limitMs: 60000 }, { kind: "late", limitMs: 20000 }, { status: 422, body: { message: "No." } }]; // prettier-ignore
  assert.deepEqual(said.map(parts.sentenceOf), ["lab.fix_first", "lab.no_answer", "no_answer", "No."]);
});

test("an alarm has its figures, its component and its evidence, and is drawn again only when it changes", () => {
  /** @type {string[]} */
  const asked = [];
  const alarms = new parts.Alarms({ read: (/** @type {string} */ id) => asked.push(id), focus: (/** @type {string} */ name) => asked.push(name) }); // prettier-ignore
  const alarm = { code: "constant", severity: "stop", title: "Constant", sentence: "It never changes.", component: "a", figures: { share: 0.5, rollouts: 12000 }, rollouts: ["r1", "r2"] }; // prettier-ignore
  alarms.show({ alarms: [alarm, { ...alarm, severity: "warn", component: "b", rollouts: [], figures: {} }] });
  assert.deepEqual([texts(".badge"), every(".badge").map((node) => node.dataset.state)], [["lab.stop", "lab.warn"], ["bad", "warning"]]); // prettier-ignore
  assert.deepEqual([texts(".num"), at("alarms-count").textContent], [["0.500", "12,000"], "2"]);
  const evidence = every("[data-evidence]");
  assert.deepEqual(evidence.map((node) => [node.textContent, node.getAttribute("aria-label")]), [["1", "1 of Constant"], ["2", "2 of Constant"]]); // prettier-ignore
  for (const node of [evidence[1], ...every(".link-button")]) node.click();
  assert.deepEqual(asked, ["r2", "a", "b"]);
  alarms.show({ alarms: [alarm] });
  assert.deepEqual([every("[data-evidence]")[0] === evidence[0], every(".alarm").length], [true, 1]);
  alarms.show({ alarms: [{ ...alarm, rollouts: ["r3"] }] });
  assert.deepEqual([every("[data-evidence]").map((node) => node.dataset.evidence)], [["r3"]]); // prettier-ignore
  alarms.show({ alarms: [] });
  assert.deepEqual([texts(".alarm"), at("alarms-count").textContent], [["lab.no_alarms"], "0"]);
});

test("credit to turns has a row for each, or the reason why there is none", () => {
  const row = { turn: 1, rollouts: 16, gain: 0.25, spread: null, turned_1: 0.5, turned_0: 0 };
  const found = { pays: true, recorded: 8, rollouts: 16, rows: [row], several: true, silent: 0, hidden: 0 };
  const said = (/** @type {any} */ given) => {
    parts.showTurns(given);
    return [at("lab-turns").hidden, at("lab-turns-why").textContent, at("lab-turns-note").textContent];
  };
  assert.deepEqual(said(found), [false, "", "lab.turns.reached"]);
  assert.deepEqual([texts("#lab-turns-rows td"), at("lab-turns-known").textContent], [["1", "16", "0.250", "–", "50%", "0%"], "8/16"]); // prettier-ignore
  assert.equal(said({ ...found, silent: 1, hidden: 2 })[2], "lab.turns.reached lab.turns.silent lab.turns.hidden");
  for (const [
    given,
    why,
  ] of /** @type {any[]} */ ([[null, "aggregation"], [{ ...found, pays: false }, "pays"], [{ ...found, recorded: 0 }, "not_recorded"], [{ ...found, rows: [] }, "at_the_end"], [{ ...found, rows: [], several: false }, "one_turn"]])) // prettier-ignore
    assert.deepEqual(said(given), [true, `lab.turns.${why}`, ""]);
});

test("a rollout shows what earned each part, of the chosen component or of the one pointed at", () => {
  const view = { component: "" };
  let chosen = 0;
  const reader = new parts.Reader({ view, recorded: "/rollouts/", chosen: () => (chosen += 1) });
  const span = (/** @type {number} */ message, /** @type {number} */ start, /** @type {number} */ end, note = "") => ({ message, start, end, note }); // prettier-ignore
  const row = {
    ...{ id: "r1", step: 4, group: 0, index: 2, policy: "", reward: 1.5, advantage: null, prompt_length: 1 },
    messages: [{ role: "user", content: "Hi" }, { role: "odd", content: "It is 2.", tool_calls: [{ name: "look" }] }, { role: "tool", name: "look", content: "" }], // prettier-ignore
    parts: {
      a: { title: "A", value: 1, term: 0.5, spans: [span(1, 6, 7, "the answer")] },
      b: { title: "B", value: null, reason: "No judge." },
      c: { title: "C", value: 0, term: null, spans: [span(1, 6, 8), span(2, 0, 0, "whole")] },
      d: { title: "D", value: 0, spans: [] },
    },
  };
  reader.show(row, ["c", "a", "b", "d"]);
  assert.deepEqual([at("reader-title").textContent, at("reader-page").href], ["4.0.2 · reward 1.50", "/rollouts/r1/"]);
  assert.deepEqual([texts(".earned-part"), every(".earned-part").map((node) => node.dataset.curve)], [["A1.00→ 0.50", "Blab.not_computed", "C0.00", "D0.00"], ["1", "2", "0", "3"]]); // prettier-ignore
  assert.deepEqual([texts(".message-role"), texts(".message-head .muted")], [["User", "odd", "tool · look"], ["lab.task_prompt", "", ""]]); // prettier-ignore
  assert.deepEqual(every(".message").map((node) => [node.dataset.role, node.dataset.names]), [["user", undefined], ["other", undefined], ["tool", "c"]]); // prettier-ignore
  const marks = () => every("#transcript [data-names]").map((node) => [node.localName === "mark" && node.textContent, node.dataset.curve, node.hasAttribute("data-on")]); // prettier-ignore
  const none = [["2", "1", false], [".", "0", false], [false, "0", false]]; // prettier-ignore
  assert.deepEqual([marks(), at("reader-notes").textContent], [none, "lab.hint"]);
  const chip = (/** @type {string} */ name) => shown.querySelector(`[data-part="${name}"]`);
  send(chip("a"), "mouseenter");
  assert.deepEqual([marks(), texts("#reader-notes li")], [[["2", "1", true], [".", "0", false], [false, "0", false]], ["the answer · lab.messages 2"]]); // prettier-ignore
  send(chip("a"), "mouseleave");
  assert.deepEqual([marks(), view.component], [none, ""]);
  chip("c").click();
  assert.deepEqual(marks(), [["2", "0", true], [".", "0", true], [false, "0", true]]); // prettier-ignore
  assert.deepEqual([view.component, chosen, texts("#reader-notes li")], ["c", 1, ["lab.whole_message · lab.messages 2", "whole · lab.messages 3"]]); // prettier-ignore
  assert.deepEqual(every('[aria-pressed="true"]').map((node) => node.dataset.part), ["c"]); // prettier-ignore
  send(chip("a"), "mouseenter"); // for as long as it is pointed at
  assert.deepEqual([marks()[0], texts("#reader-notes li")], [["2", "1", true], ["the answer · lab.messages 2"]]);
  chip("b").click();
  assert.equal(at("reader-notes").textContent, "lab.not_computed: No judge.");
  chip("d").click();
  assert.equal(at("reader-notes").textContent, "lab.nothing_marked");
  chip("d").click();
  assert.deepEqual([view.component, at("reader-notes").textContent], ["", "lab.hint"]);
  at("transcript").scrollTop = 70;
  reader.show(row, ["a"]);
  assert.equal(at("transcript").scrollTop, 70);
  reader.show({ ...row, id: "r2", step: null, policy: "give-up" }, ["a"]);
  assert.deepEqual([at("transcript").scrollTop, at("reader-title").textContent], [0, "0.2 · give-up · reward 1.50"]);
  reader.say("Choose one.");
  assert.deepEqual([at("transcript").textContent, at("reader-parts").children.length], ["Choose one.", 0]);
  at("transcript").scrollTop = 70;
  reader.show({ ...row, id: "r2" }, ["a"]);
  assert.equal(at("transcript").scrollTop, 0);
});
