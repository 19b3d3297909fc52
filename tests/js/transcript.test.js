// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { endWords, outcomeWords } from "../../static/js/lib/outcome.js";
import { apart, failure, folded, ordinals, partsTable, said, Transcript } from "../../static/js/lib/transcript.js";
import { page } from "./page.js";

const TEXTS = {
  "role.user": "User",
  "role.tool": "Tool",
  "role.assistant": "Model",
  turn: "turn {n}",
  tokens: "{n} tokens",
  seconds: "{n} s",
  "finish.length": "cut off",
  show_all: "all {n} lines",
};
page("", TEXTS);

/** @type {(node: any) => string[]} the text of each child */
const texts = (node) => node.children.map((/** @type {any} */ child) => child.textContent);
/** @type {(node: any) => any} an element as its tests ask it */
const asked = (node) => node;
const box = () => asked(document.createElement("div"));

test("hidden characters are marks between the words", () => {
  const node = asked(said("a\u202eb"));
  assert.deepEqual([node.className, node.textContent, texts(node)], ["said", "aU+202Eb", ["U+202E"]]);
});

test("a text of 16 short lines, or of 1560 characters, is whole; one more of either folds", () => {
  const lines = (/** @type {number} */ count) => Array.from({ length: count }, (_, at) => `line ${at + 1}`).join("\n");
  assert.equal(folded(lines(16)).className, "said");
  assert.equal(folded("x".repeat(1560)).className, "said");
  assert.equal(folded("x".repeat(1561)).firstElementChild?.textContent, `${"x".repeat(1200)} …`);
  const node = asked(folded(lines(17), "said call"));
  assert.deepEqual([node.className, node.firstElementChild.className], ["folded", "said call"]);
  assert.equal(node.firstElementChild.textContent, `${lines(14)} …`);
  const button = node.querySelector("button");
  assert.deepEqual([button.textContent, button.getAttribute("aria-expanded")], ["all 17 lines", "false"]);
  button.click();
  assert.equal(node.firstElementChild.textContent, lines(17));
  assert.deepEqual([button.textContent, button.getAttribute("aria-expanded")], ["show_less", "true"]);
  button.click();
  assert.deepEqual([node.firstElementChild.textContent, button.textContent], [`${lines(14)} …`, "all 17 lines"]);
});

test("what is no part of an answer has its name above it, and nothing is drawn of no text", () => {
  assert.deepEqual(texts(apart("refusal", "I will not")), ["refusal", "I will not"]);
  for (const none of ["", null, 3]) assert.equal(apart("refusal", none), null);
});

/** @type {(turn: Record<string, any>) => any[]} the articles of one turn of a running rollout */
function articles(turn) {
  const node = box();
  new Transcript(node, {}).show({ id: "a", seq: 1, status: "running" }, [{ number: 0, seq: 1, ...turn }]);
  return node.querySelectorAll("article");
}

test("a message has its role, its figures, its calls, and why it was cut off", () => {
  const message = { role: "assistant", content: "hello", finish: "length", reasoning: "hm" };
  const tool_calls = [{ name: "look", arguments: '{"a":1}' }, { name: "wait", arguments: "{}" }, { arguments: null }];
  const facts = { tokens: 7, seconds: 2, note: "noted" };
  const [node] = articles({ ...facts, messages: [{ ...message, tool_calls }] });
  assert.equal(node.dataset.role, "assistant");
  assert.deepEqual(texts(node.firstElementChild), ["Model", "turn 1 · 7 tokens · 2 s · noted"]);
  const parts = ["reasoninghm", "hello", 'call look{\n  "a": 1\n}', "call waitno_arguments", "call ?no_arguments"];
  assert.deepEqual(texts(node).slice(1), [...parts, "cut off"]);
});

test("only the first message of a turn has its figures, and only a model's turn a number", () => {
  const messages = [
    { role: "tool", name: "look", content: { found: 1 } },
    { role: "critic\u202e", content: "" },
  ];
  const [tool, other] = articles({ tokens: 7, wrote: "half a call", messages });
  assert.deepEqual(texts(tool), ["Tool · look7 tokens", '{\n  "found": 1\n}', "half a call"]);
  assert.equal(tool.lastElementChild.className, "said said-unread");
  assert.deepEqual([other.dataset.role, ...texts(other)], ["other", "critic[U+202E]", "empty_message"]);
  assert.deepEqual(texts(articles({ messages: [{ role: "user", content: "x", name: "n" }] })[0]), ["User", "x"]);
});

test("a message is empty only without words, calls, and refusal", () => {
  const empty = (/** @type {any} */ message, wrote = "") =>
    articles({ wrote, messages: [{ role: "assistant", content: "", ...message }] })[0].textContent.includes("empty_message"); // prettier-ignore
  assert.equal(empty({}), true);
  assert.equal(empty({ content: null, finish: "unknown" }), true);
  assert.equal(empty({ refusal: "no" }), false);
  assert.equal(empty({ tool_calls: [{ name: "x" }] }), false);
  assert.equal(empty({}, "half"), false);
});

test("the model's turns are numbered from 1", () => {
  const [one, two, three, none] = ["assistant", "tool", "assistant"].map((role) => ({ messages: [{ role }] })).concat({ messages: [] }); // prettier-ignore
  const numbered = ordinals([one, two, three, none, {}]);
  assert.deepEqual([numbered.get(one), numbered.get(two), numbered.get(three), numbered.size], [1, undefined, 2, 2]);
});

test("the parts of a reward come in the order of the spec, with weights, products, and the sum", () => {
  const parts = { late: 0.5, other: 1, first: -2, gone: null };
  const titles = { first: "First", gone: "Gone", late: "Late" };
  const weights = { first: 0.5, gone: 1, late: 2 };
  const table = asked(partsTable({ parts, reward: 1, advantage: -0.5 }, weights, titles));
  const rows = table.firstElementChild.children;
  assert.deepEqual(rows.map(texts), [
    ["First", "−2.00", "× 0.500", "−1.00"],
    ["Gone", "missing", "× 1.00", ""],
    ["Late", "0.500", "× 2.00", "1.00"],
    ["other", "1.00", "", ""],
    ["reward", "", "", "1.00"],
    ["advantage", "", "", "−0.500"],
  ]);
  assert.deepEqual(rows.map((/** @type {any} */ row) => row.dataset.curve), ["0", "1", "2", undefined, undefined, undefined]); // prettier-ignore
  assert.deepEqual([rows[1].children[1].title, rows[0].children[1].hasAttribute("title")], ["missing_part", false]);
  assert.equal(asked(partsTable({ parts, reward: 1 }, weights, titles)).firstElementChild.children.length, 5);
  assert.equal(partsTable({ parts: {} }, {}), null);
  assert.equal(partsTable({ parts: null }, {}), null);
  const nine = Object.fromEntries(Array.from("abcdefghi", (name) => [name, name]));
  const ninth = asked(partsTable({ parts: { i: 1 } }, {}, nine)).querySelector("tr");
  assert.equal(ninth.dataset.curve, "0"); // there are eight colours
});

test("a failure says what to do, and one that is left out of the step is a warning", () => {
  const words = { title: "No answer", hint: "Try again", detail: "time\u202e", code: "timeout", boundary: "sampler" };
  const node = asked(failure(words, "failed"));
  assert.deepEqual([node.dataset.kind, ...texts(node)], ["error", "No answer", "timeout · sampler", "Try again", "time[U+202E]"]); // prettier-ignore
  const short = asked(failure({ ...words, hint: "", detail: "", boundary: "" }, "excluded"));
  assert.deepEqual([short.dataset.kind, ...texts(short)], ["warning", "excluded_because", "timeout"]);
});

test("the outcome says too that a rollout was cut off, or why it came to nothing", () => {
  assert.equal(outcomeWords({ outcome: "solved", status: "done" }), "outcome.solved");
  assert.equal(outcomeWords({ outcome: "solved", status: "truncated" }), "outcome.solved · truncated");
  assert.equal(endWords({ outcome: "none", failure: { title: "Broken\u202e" } }), "Broken[U+202E]");
  assert.equal(endWords({ outcome: "solved" }), "outcome.solved");
});

test("a transcript keeps the turns that it has, and its end changes with the rollout", () => {
  const node = box();
  const transcript = new Transcript(node, { a: 1 });
  const turn = (/** @type {number} */ seq) => ({ number: seq, seq, messages: [{ role: "user", content: `t${seq}` }] });
  transcript.show({ id: "a", seq: 1, status: "running" }, [turn(1)]);
  const [turns, tail] = node.children;
  const kept = turns.firstElementChild;
  assert.equal(tail.textContent, "waiting_turn");
  transcript.show({ id: "a", seq: 1, status: "done", parts: { a: 1 }, reward: 1 }, [turn(1), turn(2)]);
  assert.equal(turns.firstElementChild, kept);
  assert.equal(tail.textContent, "waiting_turn"); // the same state of the rollout
  const failed = { title: "Broken", hint: "", detail: "", code: "x", boundary: "" };
  transcript.show({ id: "a", seq: 2, status: "done", parts: { a: 1 }, reward: 1, failure: failed }, [turn(1), turn(2)]);
  assert.deepEqual(
    tail.children.map((/** @type {any} */ part) => part.localName),
    ["div", "table"],
  );
  node.scrollTop = 50;
  transcript.show({ id: "b", seq: 2, status: "running" }, []);
  assert.deepEqual([turns.children.length, tail.textContent, node.scrollTop], [0, "waiting_turn", 0]);
  transcript.say("Nothing yet");
  assert.equal(node.textContent, "Nothing yet");
  transcript.show({ id: "b", seq: 2, status: "running" }, [turn(1)]);
  assert.equal(node.textContent, "Usert1waiting_turn");
});

test("a running transcript follows its end, unless a reader has scrolled up or it is new", () => {
  const node = box();
  Object.assign(node, { scrollHeight: 500, clientHeight: 100 });
  const transcript = new Transcript(node, {});
  const turns = [1, 2, 3, 4].map((seq) => ({ number: seq, seq, messages: [] }));
  const shown = (/** @type {number} */ count, status = "running") => {
    transcript.show({ id: "a", seq: count, status }, turns.slice(0, count));
    return node.scrollTop;
  };
  assert.equal(shown(1), 0); // its beginning
  node.scrollTop = 361; // 39 from the end
  assert.equal(shown(2), 500);
  node.scrollTop = 361;
  assert.equal(shown(2), 361); // nothing came
  assert.equal(shown(3, "done"), 361);
  node.scrollTop = 360;
  assert.equal(shown(4), 360);
});
