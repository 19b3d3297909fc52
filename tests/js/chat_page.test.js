// @ts-check
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { browser, settled } from "./browser.js";
import { page, press, send } from "./page.js";

const MARKUP = `<b id="chat-status"></b><p id="chat-lost" hidden></p><div id="turns"></div><p id="chat-empty" hidden></p>
<form id="composer"><textarea id="chat-text"></textarea><button id="chat-stop" type="button" hidden></button><button id="chat-send"></button></form>
<p id="chat-problem" hidden></p><p class="chat-end"><i id="chat-ended"></i></p><input id="chat-temperature" value="0.7"><input id="chat-max-tokens" value="64">
<input id="chat-seed" value="0"><textarea id="chat-system"></textarea>
<form id="keep"><select id="keep-kind"><option value="row"></option><option value="case"></option></select><select id="keep-contestant"></select>
<input id="keep-name" value="demonstrations"><div id="keep-total" hidden><input id="keep-low"><input id="keep-high"></div><button id="keep-button"></button></form>
<p id="keep-note" hidden></p>`;
const PAGE = { may: true, api: "/api", socket: "/ws", contestants: ["m", "n"], most_chars: 20, workers: "/w/", runs: "/r/", environment: null }; // prettier-ignore

/** @type {any} */
let shown;
/** @type {any} */
let here;
let number = 0;
/** @type {(id: string) => any} */
const at = (id) => shown.getElementById(id);
const texts = (/** @type {string} */ selector) => shown.querySelectorAll(selector).map((/** @type {any} */ node) => node.textContent); // prettier-ignore
const turn = (/** @type {number} */ n, more = {}) => ({ id: `t${n}`, number: n, text: `say ${n}`, by: "", ...more });
const answer = (/** @type {string} */ id, more = {}) => ({
  ...{ id, turn: "t1", contestant: 0, number: 1, state: "done", partial: "", parameters: {} },
  ...{ messages: [{ role: "assistant", content: `text of ${id}` }], ...more },
});
/** @type {(turns: any[], answers?: any[]) => void} */
const said = (turns, answers = []) => here.said({ type: "chat", seq: 1, turns, answers, more: [] });
/** @type {(text: string) => Promise<void>} */
async function write(text) {
  at("chat-text").value = text;
  send(at("composer"), "submit");
  await settled();
}
const posted = () => here.asked.map((/** @type {any[]} */ [address]) => address);

async function start(more = {}) {
  here = browser();
  shown = page(`${MARKUP}<script id="chat-data">${JSON.stringify({ ...PAGE, ...more })}</script>`);
  await import(`../../static/js/pages/chat.js?${(number += 1)}`);
}
beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
afterEach(() => mock.timers.reset());

test("a message is sent by Enter, once, and not while letters are being chosen", async () => {
  await start();
  said([]);
  here.answers["/messages"] = { id: "t1" };
  assert.deepEqual([at("chat-empty").hidden, at("chat-send").disabled], [false, true]);
  at("chat-text").value = "hello";
  send(at("chat-text"), "input");
  assert.equal(at("chat-send").disabled, false);
  for (const facts of [{ shiftKey: true }, { isComposing: true }])
    assert.equal(press(at("chat-text"), "Enter", facts), true);
  assert.deepEqual([press(at("chat-text"), "a"), posted()], [true, []]);
  assert.equal(press(at("chat-text"), "Enter"), false);
  assert.equal(press(at("chat-text"), "Enter"), false);
  await settled();
  const parameters = { temperature: 0.7, max_tokens: 64, seed: 0, system: "" };
  assert.deepEqual(here.asked, [["/api/messages", { text: "hello", parameters, edited: null }]]);
  assert.deepEqual([at("chat-text").value, at("chat-send").disabled], ["", true]);
  await write("x".repeat(21));
  assert.deepEqual([posted().length, at("chat-problem").hidden, at("chat-text").value.length], [1, false, 21]);
  await write("x".repeat(20));
  assert.deepEqual([posted().length, at("chat-problem").hidden], [2, true]);
  await write(" ");
  assert.equal(posted().length, 2);
});

test("only an environment can begin without a message", async () => {
  await start({ environment: "maze" });
  said([]);
  here.answers["/messages"] = { id: "t1" };
  assert.equal(at("chat-send").disabled, false);
  await write("");
  assert.equal(posted().length, 1);
  said([turn(1)]);
  await write("");
  assert.deepEqual([posted().length, at("chat-send").disabled, at("chat-empty").hidden], [1, true, true]);
});

test("a message whose answer was lost is found in the chat; what was written meanwhile stays", async () => {
  await start();
  said([]);
  for (const [meanwhile, left] of [
    ["hello", ""],
    ["more", "more"],
  ]) {
    here.answers["/messages"] = () => assert.fail("offline");
    await write("hello");
    assert.deepEqual([at("chat-text").value, at("chat-problem").textContent], ["hello", "offline"]);
    at("chat-text").value = meanwhile;
    said([turn(meanwhile.length, { text: "hello" })]);
    assert.deepEqual([at("chat-text").value, at("chat-problem").hidden], [left, true]);
    at("chat-text").value = "hello"; // once more, not sent yet
    said([turn(meanwhile.length, { text: "hello" })]);
    assert.equal(at("chat-text").value, "hello");
  }
});

test("what is being answered can be stopped, and its end is said", async () => {
  await start();
  said([turn(1)], [answer("a", { state: "answering" })]);
  assert.deepEqual([at("chat-stop").hidden, at("chat-send").hidden], [false, true]);
  here.answers["/stop"] = {};
  globalThis.window.dispatchEvent(Object.assign(new Event("keydown"), { key: "Escape" }));
  at("chat-stop").click();
  await settled();
  assert.deepEqual([posted(), at("chat-ended").textContent], [["/api/stop"], ""]);
  said([turn(1)], [answer("a", { state: "stopped" })]);
  assert.deepEqual([at("chat-stop").hidden, at("chat-ended").textContent], [true, "chat.said.other"]);
  said([turn(1)], [answer("a", { state: "answering" })]);
  said([turn(1)], [answer("a")]);
  assert.equal(at("chat-ended").textContent, "chat.said.done");
  said([turn(1)], [answer("a"), answer("b", { number: 2, state: "failed" })]); // it had ended before
  assert.equal(at("chat-ended").textContent, "chat.said.done");
  globalThis.window.dispatchEvent(Object.assign(new Event("keydown"), { key: "Escape" }));
  assert.equal(posted().length, 1);
});

test("of several answers the newest is shown, another when it is asked for, and the newest again after one more", async () => {
  await start();
  const three = [1, 2, 3].map((n) => answer(`a${n}`, { number: n }));
  const newest = () => texts(".chat-answer:not([hidden]) .chat-said")[0];
  const arrows = () => shown.querySelectorAll(".button-icon").map((/** @type {any} */ node) => node.disabled);
  said([turn(1)], three.slice(0, 2));
  assert.deepEqual([newest(), arrows()], ["text of a2", [false, true]]);
  shown.querySelector(".button-icon").click();
  assert.deepEqual([newest(), arrows()], ["text of a1", [true, false]]);
  said([turn(1)], three.slice(0, 2));
  assert.equal(newest(), "text of a1");
  here.answers["/again"] = {};
  const again = shown.querySelectorAll(".chat-foot button").at(-1);
  again.click();
  again.click();
  await settled();
  assert.deepEqual(here.asked.map((/** @type {any[]} */ [, body]) => body.answer), ["a1"]); // prettier-ignore
  said([turn(1)], three);
  assert.deepEqual([newest(), arrows()], ["text of a3", [false, true]]);
  said([turn(1), turn(2)], three);
  assert.deepEqual(texts(".chat-foot button"), ["", ""], "only the last turn is answered again");
});

test("a turn is edited in its place, and its earlier versions are kept below it", async () => {
  await start();
  said([turn(1)], [answer("a")]);
  const edit = () => shown.querySelectorAll(".chat-person button").at(-1);
  edit().click();
  const area = () => shown.querySelector(".chat-person textarea");
  assert.deepEqual([area().value, shown.activeElement === area()], ["say 1", true]);
  area().value = "say it";
  send(area(), "input");
  said([turn(1, { by: "ann" })], [answer("a")]);
  assert.equal(area().value, "say it");
  let heard = 0;
  shown.addEventListener("keydown", () => (heard += 1)); // where it would stop an answer
  press(area(), "Escape");
  assert.deepEqual([area(), heard], [null, 0]);
  edit().click();
  assert.equal(area().value, "say 1");
  here.answers["/messages"] = [422, { detail: [{ message: "No." }, { message: "Not so." }] }];
  send(area().closest("form"), "submit");
  await settled();
  assert.deepEqual([at("chat-problem").textContent, area().value], ["No. Not so.", "say 1"]);
  here.answers["/messages"] = { id: "t2" };
  send(area().closest("form"), "submit");
  await settled();
  assert.deepEqual([here.asked.at(-1)[1].edited, area()], ["t1", null]);
  said([turn(1, { replaced: true }), { ...turn(1), id: "t9", text: "say it" }], [answer("a"), answer("b", { number: 2 })]); // prettier-ignore
  assert.deepEqual(texts(".chat-version > .chat-said"), ["say 1"]);
  assert.deepEqual(texts(".chat-version .chat-said"), ["say 1", "text of b"]);
});

test("the page follows what is being written, and what was sent, but not what is there", async () => {
  await start();
  let scrolled = 0;
  shown.querySelector(".chat-end").scrollIntoView = () => (scrolled += 1);
  const ending = { seconds: 2, tokens: 3 };
  said([turn(1)], [answer("a", { ending })]);
  assert.deepEqual([scrolled, texts(".chat-foot .muted")], [0, ["chat.tokens · seconds"]]);
  here.answers["/messages"] = { id: "t2" };
  await write("hello");
  const sent = scrolled;
  assert.ok(sent > 0);
  said([turn(1)], [answer("a", { ending })]);
  assert.equal(scrolled, sent);
  said([turn(1)], [answer("a", { ending, state: "answering" })]);
  assert.deepEqual([scrolled, texts(".chat-foot .muted")], [sent + 1, ["chat.tokens"]]);
});

test("a reader is offered nothing to do", async () => {
  await start({ may: false });
  said([turn(1)], [1, 2].map((n) => answer(`a${n}`, { number: n }))); // prettier-ignore
  assert.deepEqual([texts(".chat-person button"), texts(".chat-foot button")], [[], ["", ""]]);
});

test("a conversation is kept with its range, whose ends may be equal", async () => {
  await start();
  said([turn(1)], []);
  assert.equal(at("keep-button").disabled, true);
  said([turn(1)], [answer("a")]);
  assert.equal(at("keep-button").disabled, false);
  at("keep-kind").value = "case";
  send(at("keep-kind"), "change");
  assert.deepEqual([at("keep-total").hidden, at("keep-name").value], [false, ""]);
  at("keep-name").value = " polite ";
  here.answers["/save"] = { kind: "case", label: "polite", url: "/kept" };
  const keep = async (/** @type {string} */ low, /** @type {string} */ high) => {
    [at("keep-low").value, at("keep-high").value] = [low, high];
    const before = here.asked.length;
    send(at("keep"), "submit");
    await settled();
    return [at("keep-note").dataset.kind, here.asked[before]?.[1].total];
  };
  assert.deepEqual(await keep("1", "0.9"), ["error", undefined]);
  assert.deepEqual(await keep("", "1"), ["error", undefined]);
  assert.deepEqual(await keep("1", "1"), ["success", [1, 1]]);
  assert.deepEqual(here.asked.at(-1)[1], { kind: "case", name: "polite", contestant: 0, total: [1, 1] });
  assert.equal(at("keep-note").firstElementChild.href, "/kept");
  here.answers["/save"] = [422, { message: "No such name." }];
  assert.deepEqual([await keep("0", "1"), at("keep-note").textContent], [["error", [0, 1]], "No such name."]);
  assert.equal(at("chat-problem").hidden, true);
  at("keep-kind").value = "row";
  send(at("keep-kind"), "change");
  assert.deepEqual([at("keep-total").hidden, at("keep-name").value], [true, "demonstrations"]);
  assert.deepEqual(await keep("1", "0"), ["error", null]);
});
