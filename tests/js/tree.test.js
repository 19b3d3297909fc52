// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { failureWords } from "../../static/js/lib/failure.js";
import { tree } from "../../static/js/lib/tree.js";
import { page, send } from "./page.js";

// prettier-ignore
page("", {
  "error.timeout": "No answer in time", "error.timeout.hint": "Try again", "boundary.judge": "Judge",
  flight_more: "{n} more", "play.items": "{n} items"
});

/** @type {(value: any) => any} a tree as its tests ask it */
const drawn = (value) => tree(value);

test("a value is text, with its hidden characters shown, and cut after 400 characters", () => {
  assert.deepEqual([drawn("a\u202eb").textContent, drawn("a").className], ["a[U+202E]b", "tree-leaf"]);
  assert.deepEqual([drawn(null).textContent, drawn(null).className], ["null", "muted"]);
  assert.equal(drawn(1.5).textContent, "1.5");
  assert.equal(drawn("x".repeat(400)).textContent, "x".repeat(400));
  assert.equal(drawn("x".repeat(401)).textContent, `${"x".repeat(400)}…`);
  assert.deepEqual([drawn([]).textContent, drawn({}).textContent], ["[]", "{}"]);
});

test("a list of up to 40 plain values is one row, everything else a list of names", () => {
  const numbers = (/** @type {number} */ count) => Array.from({ length: count }, (_, at) => at);
  const row = drawn([1, "two", null]);
  assert.deepEqual([row.className, row.children.map((/** @type {any} */ tag) => tag.textContent)], ["tree-row", ["1", "two", "null"]]); // prettier-ignore
  assert.equal(drawn(numbers(40)).className, "tree-row");
  assert.equal(drawn(numbers(41)).className, "tree");
  assert.equal(drawn({ a: 1 }).className, "tree");
  assert.equal(drawn([1, [2]]).className, "tree");
});

test("of many entries the first 200 are there, and how many more there are", () => {
  const many = (/** @type {number} */ count) =>
    drawn(Object.fromEntries(Array.from({ length: count }, (_, at) => [`n${at}`, at])));
  assert.deepEqual([many(200).children.length, many(200).lastElementChild.textContent], [400, "199"]);
  assert.deepEqual([many(203).children.length, many(203).lastElementChild.textContent], [402, "3 more"]);
});

test("what is long or deep is folded, and filled once it is opened", () => {
  const wide = (/** @type {number} */ count) =>
    Object.fromEntries(Array.from({ length: count }, (_, at) => [`k${at}`, { at }]));
  assert.equal(drawn({ a: wide(12) }).querySelector("details"), null);
  const fold = drawn({ a: wide(13) }).querySelector("details");
  assert.deepEqual([fold.textContent, fold.children.length], ["13 items", 1]);
  send(fold, "toggle");
  send(fold, "toggle");
  assert.equal(fold.children.length, 2);
  assert.equal(fold.lastElementChild.children.length, 26);
  const deep = drawn({ a: { b: { c: { d: 1 } } } });
  assert.deepEqual([deep.querySelectorAll("dl").length, deep.querySelector("details").textContent], [2, "1 items"]);
  assert.deepEqual(drawn({ a: { b: 1 }, c: 2 }).children.filter((/** @type {any} */ node) => node.localName === "dd").map((/** @type {any} */ node) => node.className), ["tree-deep", ""]); // prettier-ignore
});

test("an error that we know is in our words, with what was reported where it says more", () => {
  const known = { code: "timeout", boundary: "judge", message: "after 30 s", hint: "Try again" };
  const title = "No answer in time";
  assert.deepEqual(failureWords(known), { code: "timeout", boundary: "Judge", title, hint: "Try again", detail: "after 30 s" }); // prettier-ignore
  assert.equal(failureWords({ ...known, message: title, hint: "wait" }).detail, "wait");
  assert.equal(failureWords({ ...known, message: "one", hint: "two" }).detail, "one two");
  assert.equal(failureWords({ code: "timeout" }).detail, "");
});

test("an error that we do not know is in the words that were reported", () => {
  const words = failureWords({ code: "odd", boundary: "moon", message: "a\u202e", hint: "b" });
  assert.deepEqual(words, { code: "odd", boundary: "", title: "a[U+202E]", hint: "b", detail: "" });
});
