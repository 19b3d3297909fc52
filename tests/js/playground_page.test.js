// @ts-check
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { browser, settled } from "./browser.js";
import { page, press, send } from "./page.js";

const ids = (/** @type {string} */ tag, /** @type {string} */ names) => names.split(" ").map((id) => `<${tag} id="${id}"></${tag}>`).join(""); // prettier-ignore
const RANGE = '<input value=""><input value="">';
const MARKUP = `${ids("p", "play-status play-lost play-lost-text play-notice transcript save-row-note save-case-note conversation out-reward out-done out-turns out-seed out-latency out-parts out-parts-table out-info task-preview task-problem")}
<button id="play-end"></button><div id="act" hidden><div id="act-tabs"></div><input id="act-filter"><p id="act-none"></p><p id="act-text-help"></p>
<div id="act-clickables"><div id="act-clickable-list"></div></div><form id="act-form"><div id="act-fields"></div><b id="act-message-label"></b>
<textarea id="act-message"></textarea><ul id="act-queued"></ul><button id="act-queue" type="button"></button><button id="act-send"></button><p id="act-problem"></p></form></div>
<p id="save-nothing"></p><form id="save-row"><input id="save-dataset" value=" good "><button id="save-row-button"></button></form>
<form id="save-case"><input id="save-case-name" value="polite"><div id="range-total">${RANGE}</div><div id="ranges"></div><button id="save-case-button"></button><button id="range-add" type="button"></button></form>
<template id="range-template"><div class="range"><select><option value="success"></option></select>${RANGE}<button type="button"></button></div></template>
<form id="task-form"><input type="radio" name="kind" value="row"><input type="radio" name="kind" value="task"><input type="radio" name="kind" value="empty" checked>
<div data-task="row"></div><div data-task="task"></div><select id="task-dataset"><option value="tasks@1"></option></select><input id="task-row" value="1">
<button id="task-row-back" type="button"></button><button id="task-row-next" type="button"></button><textarea id="task-json"></textarea><input id="task-seed" value="0"><button id="task-start"></button></form>`; // prettier-ignore

/** @type {any} */
let shown;
/** @type {any} */
let here;
let number = 0;
/** @type {(id: string) => any} */
const at = (id) => shown.getElementById(id);
const sent = () => here.socket.sent.filter((/** @type {any} */ frame) => frame.type !== "ping");
const tool = (/** @type {string} */ name, parameters = {}) => ({ name, parameters });
const LOOK = tool("look", { type: "object", required: ["at"], properties: { at: { type: "string" } } });
const state = (more = {}) => ({ episode: "e1", open: true, done: false, turns: 0, reward: null, parts: {}, info: {}, tools: [LOOK], ...more }); // prettier-ignore
const opened = (more = {}) => here.said({ type: "opened", seed: 3, seconds: 0.5, messages: [{ role: "user", content: "Go." }], state: state(more) }); // prettier-ignore
const answered = (more = {}) => here.said({ type: "answer", seconds: 0.25, said: { role: "assistant", content: "ok" }, messages: [], state: state({ turns: 1, ...more }) }); // prettier-ignore
const tabs = () => at("act-tabs").children.filter((/** @type {any} */ node) => !node.hidden).map((/** @type {any} */ node) => node.textContent); // prettier-ignore

/** @param {any} [hello] */
async function start(hello = {}) {
  here = browser();
  shown = page(`${MARKUP}<script id="play-data">{"socket": "/ws", "row": "/row"}</script>`);
  await import(`../../static/js/pages/playground.js?${(number += 1)}`);
  here.said({ type: "hello", frame_bytes: 60000, calls: 2, ...hello });
}
beforeEach(() => start());

test("the status says what is under way, and what can be done", () => {
  const now = () => [at("play-status").dataset.state, at("play-status").textContent, at("task-start").disabled, at("play-end").disabled, at("act").hidden]; // prettier-ignore
  assert.deepEqual(now(), ["ok", "play.ready", false, true, true]);
  send(at("task-form"), "submit");
  assert.deepEqual(now(), ["preparing", "play.waiting", true, true, true]);
  opened();
  assert.deepEqual(now(), ["running", "play.playing", false, false, false]);
  assert.deepEqual([at("out-reward").textContent, at("out-seed").textContent, at("save-nothing").hidden], ["play.not_yet", "3", false]); // prettier-ignore
  answered({ open: false, done: true, reward: 0, parts: { success: 1 } });
  assert.deepEqual(now(), ["succeeded", "play.over", false, true, true]);
  assert.deepEqual([at("out-reward").textContent, at("out-parts").textContent, at("save-nothing").hidden], ["0.00", "success1.00", true]); // prettier-ignore
  here.said({ type: "ended", reason: "Too long.", state: state({ open: false, turns: 1 }) });
  assert.deepEqual([...now(), at("play-notice").textContent], ["cancelled", "play.closed", false, true, true, "Too long."]); // prettier-ignore
  here.socket.onclose({ code: 4404 });
  assert.deepEqual(now(), ["bad", "play.lost", true, true, true]);
  assert.deepEqual([at("play-lost").hidden, at("play-lost-text").textContent], [false, "play.close.other"]);
});

test("a line that answers no pings is given up after three", () => {
  const [tick] = here.ticks;
  const lost = () => !at("play-lost").hasAttribute("hidden") && at("play-lost-text").textContent !== "";
  for (const _ping of [1, 2, 3]) tick();
  here.said({ type: "pong" });
  for (const _ping of [1, 2, 3]) tick();
  assert.deepEqual([here.socket.sent.length, lost()], [6, false]);
  tick();
  assert.deepEqual([here.socket.sent.length, lost(), here.socket.readyState], [6, true, 3]);
});

test("a command may be as long as the server takes, and no longer", async () => {
  opened();
  const bare = JSON.stringify({ type: "step", message: "", tool_calls: [] }).length;
  at("act-tabs").children[1].click();
  for (const [length, went] of [
    [60001, 0],
    [60000, 1],
  ]) {
    at("act-message").value = "x".repeat(length - bare);
    send(at("act-form"), "submit");
    assert.deepEqual([sent().length, at("act-problem").hidden], [went, went === 1]);
  }
});

test("a seed is a whole number that a machine holds", () => {
  const problem = (/** @type {string} */ seed) => {
    at("task-seed").value = seed;
    send(at("task-form"), "submit");
    const said = at("task-problem").textContent;
    if (!said) opened();
    return said;
  };
  assert.deepEqual(["-1", "0", "1.5", "2147483647", "2147483648", "x", ""].map(problem), ["play.seed_bad", "", "play.seed_bad", "", "play.seed_bad", "play.seed_bad", ""]); // prettier-ignore
  assert.deepEqual(sent().map((/** @type {any} */ frame) => frame.seed), [0, 2147483647, 0]); // prettier-ignore
});

test("a task is a row, a pasted object, or none", async () => {
  const choose = (/** @type {string} */ kind) => {
    for (const radio of shown.querySelectorAll("[name=kind]")) radio.checked = radio.value === kind;
    send(at("task-form"), "change");
  };
  const play = () => {
    send(at("task-form"), "submit");
    return at("task-problem").textContent || sent().at(-1).source;
  };
  choose("task");
  assert.deepEqual(shown.querySelectorAll("[data-task]").map((/** @type {any} */ node) => node.hidden), [true, false]); // prettier-ignore
  for (const wrong of ["", "[]", "{"]) {
    at("task-json").value = wrong;
    assert.equal(play(), "play.task_not_json");
  }
  at("task-json").value = '{"a": 1}';
  assert.deepEqual(play(), { kind: "task", task: { a: 1 } });
  opened();
  const message = (/** @type {string} */ content) => ({ ok: true, messages: [{ role: "user", content }] });
  /** @type {((answer: any) => void)[]} */
  const waiting = [];
  here.answers["/row"] = () => new Promise((resolve) => waiting.push(resolve));
  choose("row");
  at("task-row-next").click();
  waiting[1](message("second"));
  waiting[0](message("first")); // which was asked for before
  await settled();
  assert.deepEqual([at("task-preview").textContent, here.asked.at(-1)[0]], ["role.usersecond", "/row?dataset=tasks%401&row=2"]); // prettier-ignore
  assert.deepEqual(play(), { kind: "row", dataset: "tasks@1", row: 2 });
  opened();
  here.answers["/row"] = { ok: false, message: "No such row." };
  at("task-row-back").click();
  at("task-row-back").click();
  await settled();
  assert.deepEqual([at("task-row").value, at("task-preview").textContent], ["1", "No such row."]);
  at("task-row").value = "0.5";
  assert.equal(play().row, 1);
  choose("empty");
  opened();
  assert.deepEqual(play(), { kind: "empty" });
});

test("many tools can be filtered, and arrows go around those that are shown", () => {
  const names = ["open", "close", "look", "take", "drop", "push", "pull", "talk"];
  opened({ tools: names.slice(0, 7).map((name) => tool(name)) });
  assert.deepEqual([at("act-filter").hidden, tabs().length], [true, 8]);
  answered({ tools: names.map((name) => tool(name)) });
  assert.deepEqual([at("act-filter").hidden, tabs().length], [false, 9]);
  at("act-filter").value = " O";
  send(at("act-filter"), "input");
  assert.deepEqual(tabs(), ["open", "close", "look", "drop", "play.text_tab"]);
  const chosen = () => at("act-tabs").querySelectorAll('[aria-selected="true"]').map((/** @type {any} */ node) => [node.textContent, node.getAttribute("tabindex")]); // prettier-ignore
  for (const [key, wanted] of [
    ["ArrowLeft", "play.text_tab"],
    ["ArrowRight", "open"],
    ["ArrowRight", "close"],
    ["ArrowRight", "look"],
    ["ArrowRight", "drop"],
  ]) {
    assert.equal(press(at("act-tabs"), key), false);
    assert.deepEqual(chosen(), [[wanted, "0"]]);
  }
  assert.equal(press(at("act-tabs"), "Home"), true);
  answered({ tools: names.slice(0, 7).map((name) => tool(name)) }); // other tools: the chosen one stays
  assert.deepEqual([chosen(), at("act-filter").value, tabs().length], [[["drop", "0"]], "", 8]);
  answered({ tools: [] });
  assert.deepEqual([chosen(), at("act-none").hidden, at("act-queue").hidden], [[["play.text_tab", "0"]], false, true]);
});

test("calls are queued up to as many as a turn takes, dropped, and gone once they were taken", () => {
  opened();
  const queued = () =>
    at("act-queued")
      .querySelectorAll("code")
      .map((/** @type {any} */ node) => node.textContent);
  const look = (/** @type {string} */ place) => {
    at("act-fields").querySelector("[data-argument]").value = place;
    at("act-queue").click();
  };
  look("");
  assert.deepEqual([queued(), at("act-queued").hidden, at("act-send").textContent], [[], true, "play.send_call"]);
  for (const place of ["door", "wall", "roof"]) look(place);
  assert.deepEqual([queued(), at("act-problem").textContent], [['look({"at":"door"})', 'look({"at":"wall"})'], "play.too_many_calls"]); // prettier-ignore
  at("act-queued").querySelector("button").click();
  assert.deepEqual([queued(), at("act-send").textContent], [['look({"at":"wall"})'], "play.send_queued"]);
  at("act-message").value = "so";
  assert.equal(press(at("act-message"), "Enter"), true);
  assert.equal(press(at("act-message"), "Enter", { ctrlKey: true }), false);
  assert.deepEqual(sent(), [{ type: "step", message: "so", tool_calls: [{ name: "look", arguments: { at: "wall" } }] }]); // prettier-ignore
  here.said({ type: "problem", of: "step", title: "No.", hint: "", detail: "Why", state: state() });
  assert.deepEqual([at("act-problem").textContent, queued().length, at("act-message").value], ["No. Why", 1, "so"]);
  for (const _twice of [1, 2]) press(at("act-message"), "Enter", { metaKey: true });
  send(at("save-row"), "submit"); // one command at a time
  answered();
  assert.deepEqual([queued(), at("act-message").value, at("act-problem").hidden, sent().length], [[], "", true, 2]);
});

test("what can be clicked is clicked while the episode is open", () => {
  opened({ info: { available_actions: ["buy", "buy"] }, tools: [] });
  const clicks = () => shown.querySelectorAll(".play-click");
  assert.deepEqual(clicks().map((/** @type {any} */ node) => node.textContent), ["buy", "buy"]); // prettier-ignore
  clicks()[1].click();
  assert.deepEqual(sent(), [{ type: "step", message: "click[buy]", tool_calls: [] }]);
  assert.equal(clicks()[0].disabled, true);
  answered({ open: false, info: { available_actions: ["buy"] } });
  assert.deepEqual([clicks().length, at("act-clickables").hidden], [0, true]);
});

test("a test case has ranges whose ends may be equal, and a total when one is written", () => {
  opened({ turns: 1 });
  at("range-add").click();
  at("range-add").click();
  at("ranges").children[1].querySelector("button").click();
  const fill = (/** @type {any} */ line, /** @type {string[]} */ ...values) =>
    line.querySelectorAll("input").forEach((/** @type {any} */ input, /** @type {number} */ place) => (input.value = values[place])); // prettier-ignore
  const save = () => {
    send(at("save-case"), "submit");
    return at("save-case-note").hidden ? sent().at(-1) : at("save-case-note").textContent;
  };
  assert.equal(save(), "play.range_bad");
  fill(at("ranges").children[0], "1", "0.5");
  assert.equal(save(), "play.range_bad");
  fill(at("ranges").children[0], "1", "1");
  const kept = { type: "save_case", name: "polite", expected: { success: [1, 1] }, total: null };
  assert.deepEqual(save(), kept);
  here.said({ type: "saved", kind: "case", label: "polite", url: "/kept", state: state({ turns: 1 }) });
  assert.deepEqual([at("save-case-note").firstElementChild.href, at("save-case-note").dataset.kind], ["/kept", "success"]); // prettier-ignore
  fill(at("range-total"), "", "2");
  assert.equal(save(), "play.range_bad");
  fill(at("range-total"), " 0 ", "2");
  assert.deepEqual(save(), { ...kept, total: [0, 2] });
  here.said({ type: "problem", of: "save_case", title: "No.", state: state({ turns: 1 }) });
  assert.deepEqual([at("save-case-note").textContent, at("save-case-note").dataset.kind], ["No.", "error"]);
  send(at("save-row"), "submit");
  assert.deepEqual(sent().at(-1), { type: "save_row", dataset: "good" });
  here.said({ type: "problem", of: "save_row", title: "No such set.", state: state({ turns: 1 }) });
  opened();
  assert.deepEqual([at("save-case-note").hidden, at("save-row-note").hidden, at("save-row-button").disabled], [true, true, true]); // prettier-ignore
});

test("another episode begins without what was left of the one before", () => {
  const said = () => at("transcript").querySelectorAll(".turn").length;
  opened({ info: { room: 1 } });
  at("act-fields").querySelector("[data-argument]").value = "door";
  at("act-queue").click();
  const info = at("out-info").firstElementChild;
  here.said({ type: "problem", of: "step", title: "No.", state: state({ info: { room: 1 } }) });
  assert.deepEqual([said(), at("act-problem").hidden, at("out-info").firstElementChild === info], [1, false, true]);
  answered({ info: { room: 1 } });
  assert.equal(said(), 2);
  at("act-fields").querySelector("[data-argument]").value = "door";
  at("act-queue").click();
  opened({ episode: "e2", tools: [tool("wait")], info: {} });
  assert.deepEqual([said(), at("act-problem").hidden, at("act-queued").children.length], [1, true, 0]);
  assert.deepEqual([at("out-info").textContent, at("act-send").textContent], ["play.empty_info", "play.send_call"]);
});
