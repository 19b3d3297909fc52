// @ts-check
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { answerClicks, Taken, takeUntil } from "../../static/js/lib/taken.js";
import { page, send } from "./page.js";

const MARKUP = `<main><details class="menu"><summary>More</summary><button id="stop" aria-label="Stop the run">x</button></details>
<form method="post" id="form"><button id="save">Save</button><button id="other" type="button">Other</button></form>
<form id="search"><button id="look">Look</button></form>
<p data-download><a id="file" href="/f">File</a></p><a id="mail" href="mailto:a@example.org">Mail</a>
<ul><li id="row" data-unread><button id="read" data-at-once="read">Read</button><button id="hide" data-at-once="away">Hide</button></li></ul>
<form id="vote" data-at-once="chosen"><button id="a" value="a" aria-pressed="false">A</button><button id="b" value="b" aria-pressed="true">B</button></form>
<button id="pin" data-at-once="pressed" aria-pressed="false">Pin</button></main><div id="toasts"></div>`;
const TEXTS = { waiting: "{n} s", waiting_for: "{what}: {n} s", no_answer: "none in {n} s", offline: "offline" };

/** @type {any} */
let shown;
/** @type {string[]} */
let said;
/** @type {any} */
let window;
/** @type {Taken[]} */
let open;
beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout"] });
  shown = page(MARKUP, TEXTS);
  window = new EventTarget();
  said = [];
  open = [];
  Object.assign(globalThis, { window, location: { reload: () => said.push("reload") } });
  Object.defineProperty(globalThis, "navigator", { value: { onLine: true }, configurable: true });
  answerClicks((sentence) => said.push(sentence));
});
afterEach(() => {
  open.forEach((one) => one.end(true));
  send(window, "pageshow", { persisted: true });
  mock.timers.reset();
});
/** @type {(id: string) => any} */
const at = (id) => shown.getElementById(id);
const take = (/** @type {string} */ id, more = {}) => {
  const taken = new Taken(at(id), more);
  open.push(taken);
  return taken;
};
const marked = () => shown.querySelectorAll("[data-taken]").map((/** @type {any} */ node) => node.id || node.localName);
const post = (/** @type {string} */ form, facts = {}) =>
  send(window, "submit", { target: at(form), submitter: null, ...facts });

test("what was pressed is marked with its menu and with what the answer replaces, until the answer", () => {
  const taken = take("stop", { part: at("row") });
  assert.deepEqual(marked(), ["summary", "stop", "row"]);
  assert.deepEqual([at("row").dataset.taken, at("stop").dataset.taken], ["part", ""]);
  assert.equal(shown.querySelectorAll('[aria-busy="true"]').length, 3);
  assert.equal(at("stop").hasAttribute("aria-disabled"), false);
  assert.equal("taken" in shown.documentElement.dataset, true);
  const second = take("pin");
  taken.end(true);
  assert.deepEqual([marked(), "taken" in shown.documentElement.dataset], [["pin"], true]);
  second.end(true);
  assert.equal("taken" in shown.documentElement.dataset, false);
  assert.equal(shown.querySelectorAll("[aria-busy]").length, 0);
});

test("a wait is put into words after a second, and ends by itself after half a minute", () => {
  take("stop", { late: () => said.push("late") });
  mock.timers.tick(999);
  assert.equal(at("toasts").textContent, "");
  mock.timers.tick(1);
  assert.equal(at("toasts").textContent, "Stop the run: 1 s");
  mock.timers.tick(4000);
  assert.equal(at("toasts").textContent, "Stop the run: 5 s");
  mock.timers.tick(24_999);
  assert.deepEqual([at("toasts").textContent, marked().length], ["Stop the run: 20 s", 2]);
  mock.timers.tick(1);
  assert.deepEqual([at("toasts").textContent, marked(), said], ["", [], ["late"]]);
  new Taken(null);
  mock.timers.tick(1000);
  assert.equal(at("toasts").textContent, "1 s");
});

test("a form is sent once; without a connection it is not sent, and its fields stay", () => {
  assert.equal(post("search"), true);
  assert.deepEqual(marked(), []);
  assert.equal(post("form"), true);
  assert.deepEqual([marked(), at("save").getAttribute("aria-disabled")], [["save"], "true"]);
  assert.equal(post("form"), false);
  send(window, "pageshow", { persisted: true });
  assert.deepEqual([marked(), at("save").hasAttribute("aria-disabled")], [[], false]);
  post("form", { submitter: at("other") });
  assert.deepEqual(marked(), ["other"]);
  send(window, "pageshow", { persisted: false });
  assert.deepEqual(marked(), ["other"]); // another page than the one that was left
  send(window, "pageshow", { persisted: true });
  Object.defineProperty(globalThis, "navigator", { value: { onLine: false }, configurable: true });
  assert.equal(post("form"), false);
  assert.deepEqual([marked(), said], [[], ["offline"]]);
});

test("a form without an answer says so; of a file no event says that it came", () => {
  post("form");
  mock.timers.tick(30_000);
  assert.deepEqual(said, ["none in 30 s"]);
  at("file").click();
  send(window, "beforeunload");
  mock.timers.tick(0);
  assert.deepEqual(marked(), ["file"]);
  mock.timers.tick(4000);
  assert.deepEqual([marked(), said.length], [[], 1]);
});

test("leaving a page marks the link that was pressed, unless a form is on its way or the browser asks first", () => {
  at("stop").click();
  send(window, "beforeunload");
  mock.timers.tick(0);
  assert.deepEqual(marked(), ["summary", "stop"]);
  send(window, "pageshow", { persisted: true });
  at("mail").click();
  send(window, "beforeunload");
  mock.timers.tick(0);
  assert.deepEqual(marked(), []); // the page stays
  const event = new Event("beforeunload", { cancelable: true });
  window.dispatchEvent(event);
  event.preventDefault();
  mock.timers.tick(0);
  assert.deepEqual(marked(), []);
  post("form");
  send(window, "beforeunload");
  mock.timers.tick(0);
  assert.deepEqual(marked(), ["save"]);
});

test("a result that is certain is painted at once, and taken back where it is none", () => {
  const read = take("read");
  assert.equal("unread" in at("row").dataset, false);
  read.end(false);
  assert.equal("unread" in at("row").dataset, true);
  take("hide").end(true);
  assert.equal(at("row").hidden, true);
  const pin = take("pin");
  assert.equal(at("pin").getAttribute("aria-pressed"), "true");
  pin.end(true);
  take("pin").end(false);
  assert.equal(at("pin").getAttribute("aria-pressed"), "true");
  const pressed = () => ["a", "b"].map((id) => at(id).getAttribute("aria-pressed"));
  const vote = take("a");
  assert.deepEqual(pressed(), ["true", "false"]);
  vote.end(false);
  vote.end(false);
  assert.deepEqual(pressed(), ["false", "true"]);
});

test("a page from memory on which something was painted is fetched again", () => {
  take("stop");
  send(window, "pageshow", { persisted: true });
  assert.deepEqual(said, []);
  take("pin");
  send(window, "pageshow", { persisted: true });
  assert.deepEqual([said, at("pin").getAttribute("aria-pressed")], [["reload"], "false"]);
});

/** @type {(id: string, facts?: any) => any} a request of htmx that begins */
function request(id, { verb = "post", kind = "click", target = at(id), cause = at(id) } = {}) {
  const detail = { elt: at(id), target: at("row"), xhr: {}, requestConfig: { verb, triggeringEvent: { type: kind, target: cause } } }; // prettier-ignore
  send(target, "htmx:beforeRequest", { detail });
  return detail;
}

test("a request that a person made is marked until its answer; one that changes something goes once", () => {
  const asked = request("pin");
  assert.deepEqual([marked(), at("pin").getAttribute("aria-disabled")], [["row", "pin"], "true"]);
  assert.equal(send(at("pin"), "htmx:confirm", { detail: { verb: "post", elt: at("pin") } }), false);
  assert.equal(send(at("pin"), "htmx:confirm", { detail: { verb: "get", elt: at("pin") } }), true);
  assert.equal(send(at("read"), "htmx:confirm", { detail: { verb: "post", elt: at("read") } }), true);
  send(at("pin"), "htmx:afterRequest", { detail: { ...asked, successful: true } });
  assert.deepEqual([marked(), at("pin").getAttribute("aria-pressed")], [[], "true"]);
  const failed = request("pin");
  send(at("pin"), "htmx:afterRequest", { detail: { ...failed, successful: false } });
  assert.equal(at("pin").getAttribute("aria-pressed"), "true");
  request("look", { verb: "get", kind: "input" });
  assert.equal(at("look").hasAttribute("aria-disabled"), false); // typing asks again
  request("read", { kind: "load" });
  request("hide", { cause: at("save") });
  assert.deepEqual(marked().includes("read") || marked().includes("hide"), false); // no person pressed it
});

test("a script's own request marks the button that was just pressed", async () => {
  at("file").click();
  takeUntil(Promise.resolve());
  assert.deepEqual(marked(), []); // a link is no button
  at("pin").click();
  takeUntil(Promise.resolve());
  assert.deepEqual(marked(), ["pin"]);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(marked(), []);
  takeUntil(Promise.reject(new Error("no")));
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([marked(), at("pin").getAttribute("aria-pressed")], [[], "true"]);
});
