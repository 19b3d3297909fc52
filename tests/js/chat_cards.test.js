// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { cardNode, grow, headNode, showWait, tailNodes } from "../../static/js/pages/chat_cards.js";
import { ToolForm } from "../../static/js/pages/playground_form.js";
import { page, send } from "./page.js";

const TEXTS = { "chat.answering": "writing", "chat.length": "cut after {n}", "chat.turns": "after {n} turns", "chat.nothing": "nothing", "chat.wait.starting": "starting", "chat.wait.no_worker": "no worker", "chat.wait.loading": "loading", "chat.wait.kept": "kept", "chat.wait.no_room": "no room", "error.timeout": "No answer in time", "play.default": "default {value}", "play.true": "yes", "play.false": "no" }; // prettier-ignore
page("", TEXTS);
/** @type {(node: any) => any} an element as its tests ask it */
const asked = (node) => node;
/** @type {(nodes: any) => string[]} */
const texts = (nodes) => nodes.map((/** @type {any} */ node) => node.textContent);
const answer = (more = {}) => ({ state: "answering", messages: [], partial: "", parameters: { max_tokens: 64 }, ...more }); // prettier-ignore

test("the head says who answers, and that it is not done", () => {
  assert.deepEqual(texts(asked(headNode("m\u202e", answer())).children), ["m[U+202E]", "writing"]);
  assert.deepEqual(texts(asked(headNode("m", answer({ state: "done" }))).children), ["m"]);
  assert.equal(asked(headNode("m", answer({ state: "cut" }))).children.length, 2);
});

test("below an answer is why it ended", () => {
  const notes = (/** @type {any} */ more) => texts(tailNodes(answer(more))).slice(1);
  assert.deepEqual(notes({}), []);
  assert.deepEqual(notes({ ending: { why: "length" } }), ["cut after 64"]);
  const messages = ["user", "assistant", "tool", "assistant"].map((role) => ({ role, content: "x" }));
  assert.deepEqual(notes({ messages, ending: { why: "turns", differs: true } }), ["after 2 turns", "chat.differs"]);
  assert.deepEqual(notes({ messages: [{ role: "assistant", content: "x", finish: "content_filter" }] }), ["finish.content_filter"]); // prettier-ignore
  assert.deepEqual(notes({ state: "done" }), ["nothing"]);
  assert.deepEqual(notes({ state: "done", messages }), []);
  assert.equal(tailNodes(answer())[0].hidden, true);
});

test("an answer that was cut says the kind of error alone, as a warning", () => {
  const error = { code: "timeout", message: "after 30 s" };
  const notice = (/** @type {string} */ state) => asked(tailNodes(answer({ state, error }))[1]);
  assert.deepEqual([notice("failed").dataset.kind, notice("failed").textContent.includes("after 30 s")], ["error", true]); // prettier-ignore
  assert.deepEqual([notice("cut").dataset.kind, notice("cut").textContent.includes("after 30 s")], ["warning", false]);
});

test("a wait says why, for how long, and where it can be ended", () => {
  const [box] = [asked(document.createElement("div"))];
  box.append(...tailNodes(answer()));
  const pages = { workers: "/workers/", runs: "/runs/" };
  const wait = (/** @type {any} */ given, state = "answering") => {
    showWait(box, answer({ state }), given, pages);
    const line = box.firstElementChild;
    return line.hidden ? null : [...texts(line.children), line.querySelector("a").getAttribute("href")];
  };
  assert.equal(wait(undefined), null);
  assert.deepEqual(wait({ why: "no_worker", seconds: 1 }), ["no worker kept", "chat.wait.workers", "/workers/"]);
  assert.deepEqual(wait({ why: "odd", seconds: 1, no_room: true }), ["starting no room kept", "", null]);
  assert.deepEqual(wait({ why: "loading", seconds: 1, run: "r", run_id: "7" }), ["loading", "chat.wait.open_run", "/runs/7/"]); // prettier-ignore
  assert.equal(wait({ why: "loading", seconds: 1 }, "done"), null);
});

test("a text grows in its own node", () => {
  const [box] = [asked(document.createElement("div"))];
  box.append(...tailNodes(answer()));
  grow(box, answer());
  assert.equal(box.children.length, 1);
  grow(box, answer({ partial: "He" }));
  const [first] = box.children;
  assert.deepEqual([first.className, first.textContent], ["chat-said chat-growing", "He"]);
  grow(box, answer({ partial: "Hello" }));
  assert.deepEqual([box.children[0] === first, first.textContent, box.children.length], [true, "Hello", 2]);
});

test("a card shows what it is, and a call its arguments and its result", () => {
  const card = (/** @type {any} */ given) => asked(cardNode(given));
  assert.equal(card({ kind: "text", text: "a\u202e" }).textContent, "aU+202E");
  assert.equal(card({ kind: "text", text: "a", growing: true }).className, "chat-said chat-growing");
  assert.equal(card({ kind: "refusal", text: "no" }).textContent, "refusalno");
  assert.equal(card({ kind: "environment", text: "door" }).textContent, "chat.environmentdoor");
  const call = { kind: "call", name: "look", arguments: '{"a":1}', result: "one\ntwo" };
  assert.deepEqual(texts(card(call).children), ["look → one", "chat.arguments", '{\n  "a": 1\n}', "chat.result", "one\ntwo"]); // prettier-ignore
  const open = card({ ...call, arguments: "", result: null });
  assert.deepEqual(texts(open.children), ["look", "chat.arguments", "{}", "chat.result", "chat.no_answer"]);
  assert.equal(card({ ...call, result: "x".repeat(90) }).firstElementChild.textContent, `look → ${"x".repeat(80)}`);
});

const SCHEMA = {
  name: "act",
  description: "Acts.",
  parameters: {
    type: "object",
    required: ["at", "n"],
    properties: {
      at: { enum: ["door", 2] },
      n: { type: "integer", description: "how many", default: 3 },
      fast: { type: "boolean" },
      note: { type: "string" },
      more: { type: "object" },
    },
  },
};

test("a tool's form has a control for each parameter, of its kind", () => {
  const form = new ToolForm(SCHEMA);
  const node = asked(form.node);
  assert.equal(node.firstElementChild.textContent, "Acts.");
  const fields = node.querySelectorAll(".field");
  assert.deepEqual(fields.map((/** @type {any} */ field) => field.querySelector("[data-argument]").localName), ["select", "input", "select", "textarea", "textarea"]); // prettier-ignore
  assert.deepEqual(fields.map((/** @type {any} */ field) => field.querySelector(".optional").textContent), ["enum", "integer", "boolean · play.optional", "string · play.optional", "object · play.optional"]); // prettier-ignore
  assert.deepEqual(texts(fields[0].querySelectorAll("option")), ["play.unset", "door", "2"]);
  assert.deepEqual(texts(fields[2].querySelectorAll("option")), ["play.unset", "yes", "no"]);
  assert.equal(fields[1].querySelector(".field-help").textContent, "how many default 3");
  const [choice, amount] = [0, 1].map((at) => fields[at].querySelector("[data-argument]"));
  assert.deepEqual([amount.getAttribute("inputmode"), amount.getAttribute("aria-required")], ["numeric", "true"]);
  assert.equal(fields[3].querySelector("textarea").hasAttribute("aria-required"), false);
  assert.deepEqual([choice.getAttribute("aria-describedby"), amount.getAttribute("aria-describedby")], [`${choice.id}-error`, `${amount.id}-help ${amount.id}-error`]); // prettier-ignore
  assert.deepEqual(["rows", "class"].map((name) => fields.slice(3).map((/** @type {any} */ field) => field.querySelector("textarea").getAttribute(name))), [["1", "2"], ["input play-line", "input mono play-json"]]); // prettier-ignore
  const none = asked(new ToolForm({ name: "wait", parameters: {} }).node);
  assert.deepEqual(texts(none.children), ["play.no_parameters"]);
});

test("arguments are read as their kinds, and what is wrong is marked at its field", () => {
  const form = new ToolForm(SCHEMA);
  const controls = form.rows.map((row) => row.control);
  const wrong = () => form.rows.map((row) => row.node.hasAttribute("data-invalid"));
  assert.equal(form.read(), null);
  assert.deepEqual(wrong(), [true, true, false, false, false]);
  assert.equal(document.activeElement, controls[0]);
  assert.deepEqual([form.rows[0].error.hidden, controls[0].getAttribute("aria-invalid")], [false, "true"]);
  controls[0].value = "1";
  send(controls[0], "input");
  assert.deepEqual([wrong()[0], form.rows[0].error.hidden, controls[0].hasAttribute("aria-invalid")], [false, true, false]); // prettier-ignore
  for (const [at, value] of ["1", "4", "true", "hi", '{"a": 1}'].entries()) controls[at].value = value;
  assert.deepEqual(form.read(), { at: 2, n: 4, fast: true, note: "hi", more: { a: 1 } });
  assert.deepEqual(wrong(), [false, false, false, false, false]);
  form.clear();
  assert.deepEqual(controls.map((control) => control.value), ["", "", "", "", ""]); // prettier-ignore
  form.focus();
  assert.equal(document.activeElement, controls[0]);
});
