// @ts-check
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import {
  $,
  all,
  batched,
  data,
  h,
  has,
  icon,
  keyed,
  maybe,
  one,
  s,
  setAttr,
  setText,
  t,
} from "../../static/js/lib/dom.js";
import { drawCheckpoints, drawEvents, Log } from "../../static/js/lib/log.js";
import { page } from "./page.js";

const TEXTS = { hello: "Hello {name}, {n} of {all}", "kind.warning": "Warning", final: "final", "checkpoint.lost": "lost", roll_back: "Roll back" }; // prettier-ignore
/** @type {any} */
let shown;
beforeEach(() => {
  shown = page('<input id="a" name="x"><p id="list"><i></i></p><script id="given">{"n": 1}</script>', TEXTS);
  shown.documentElement.dataset.icons = "/icons.svg";
});
/** @type {(...nodes: any[]) => any[]} */
const asked = (...nodes) => nodes;

test("a text has its places filled; what is not given stays as it is written, and so does a key without a text", () => {
  assert.equal(t("hello", { name: "Ann", n: 0 }), "Hello Ann, 0 of {all}");
  assert.equal(t("nothing"), "nothing");
  assert.deepEqual([has("hello"), has("nothing")], [true, false]);
});

test("elements of the page are found, and one of another kind is an error", () => {
  assert.equal($("a", /** @type {any} */ (HTMLInputElement)).id, "a");
  assert.equal($("missing"), null);
  assert.throws(() => $("list", /** @type {any} */ (HTMLInputElement)), /#list is a P, not a/);
  assert.equal(one(shown, "input", HTMLInputElement).id, "a");
  assert.throws(() => one(shown, "p", HTMLInputElement), TypeError);
  assert.throws(() => one(shown, "b", HTMLElement), TypeError);
  assert.deepEqual([all(shown, "input").length, all(shown, "b"), maybe("b"), maybe("a")?.id], [1, [], null, "a"]);
  assert.deepEqual([data("given"), data("missing")], [{ n: 1 }, null]);
});

test("an element has the properties and children that are there", () => {
  let clicks = 0;
  const props = { class: "x", hidden: true, title: null, lang: undefined, dir: false, "data-n": 0, onclick: () => (clicks += 1) }; // prettier-ignore
  const [node] = asked(h("p", { ...props, once: "text" }, "a", 0, null, undefined, false, h("b", {}, "c")));
  node.click();
  assert.deepEqual([...node.attributes.entries()], [["class", "x"], ["hidden", ""], ["data-n", "0"], ["once", "text"]]); // prettier-ignore
  assert.deepEqual([node.textContent, node.childNodes.length, clicks], ["a0c", 3, 1]);
  const [drawn] = asked(s("g", { x: 0, y: null, z: undefined, on: false }, "t"));
  assert.deepEqual([...drawn.attributes.entries()], [["x", "0"], ["on", "false"]]); // prettier-ignore
  const [made] = asked(icon("run"));
  assert.deepEqual([made.getAttribute("aria-hidden"), made.firstElementChild.href], ["true", "/icons.svg#run"]);
});

test("a text or an attribute is written only when it changes", () => {
  const [node] = asked(h("p", {}, "a"));
  let writes = 0;
  const [write, remove] = [node.setAttribute.bind(node), node.removeAttribute.bind(node)];
  node.setAttribute = (/** @type {string} */ name, /** @type {string} */ value) => void ((writes += 1), write(name, value)); // prettier-ignore
  node.removeAttribute = (/** @type {string} */ name) => void ((writes += 1), remove(name));
  for (const value of [1, 1, "1", 0, null, undefined, false]) setAttr(node, "data-n", /** @type {any} */ (value));
  assert.deepEqual([writes, node.hasAttribute("data-n")], [3, false]);
  const first = node.childNodes[0];
  setText(node, "a");
  assert.equal(node.childNodes[0], first);
  setText(node, "b");
  assert.equal(node.textContent, "b");
  setText(null, "b");
  setAttr(null, "x", 1);
});

test("a list keeps the nodes of items that stay, in the new order, and drops the others", () => {
  const box = $("list");
  const [old] = box.children;
  const draw = (/** @type {string} */ keys) =>
    keyed(box, [...keys], (key) => key, () => h("li"), (node, key) => setText(node, `${key}!`)); // prettier-ignore
  draw("abc");
  const [a, b, c] = box.children;
  draw("cxa");
  assert.deepEqual([box.textContent, box.children[0] === c, box.children[2] === a], ["c!x!a!", true, true]);
  assert.deepEqual([b.parentElement, old.parentElement], [null, null]);
  draw("cxa");
  assert.deepEqual(
    [...box.children].map((node) => /** @type {any} */ (node).dataset.key),
    ["c", "x", "a"],
  );
  draw("");
  assert.equal(box.children.length, 0);
});

test("work that is asked for often is done once in a frame", () => {
  /** @type {(() => void)[]} */
  const frames = [];
  Object.assign(globalThis, { requestAnimationFrame: (/** @type {() => void} */ go) => frames.push(go) });
  let done = 0;
  const ask = batched(() => (done += 1));
  ask();
  ask();
  assert.deepEqual([frames.length, done], [1, 0]);
  frames[0]();
  ask();
  assert.deepEqual([frames.length, done], [2, 1]);
});

const saved = (/** @type {number} */ step, more = {}) => ({ id: `c${step}`, step, attempt: 1, path: "p", bytes: 1, created_at: "2026-01-01T00:00:00Z", ...more }); // prettier-ignore

test("a checkpoint offers to roll back while that is possible, and says why it cannot be used", () => {
  const [body] = asked(h("tbody"));
  const rows = () => body.children.map((/** @type {any} */ row) => [row.firstElementChild.textContent, row.querySelector("a")?.href ?? ""]); // prettier-ignore
  drawCheckpoints(body, [saved(1), saved(2, { final: true }), saved(3, { state: "lost" }), saved(4, { state: "whole" })], "/b?x"); // prettier-ignore
  assert.deepEqual(rows(), [["4", "/b?x&checkpoint=c4"], ["3lost", ""], ["2final", ""], ["1", "/b?x&checkpoint=c1"]]); // prettier-ignore
  drawCheckpoints(body, [saved(1), saved(4, { state: "lost" })], "/b?x");
  assert.deepEqual(rows(), [["4lost", ""], ["1", "/b?x&checkpoint=c1"]]); // prettier-ignore
  drawCheckpoints(body, [saved(1), saved(4, { state: "lost" })]);
  assert.deepEqual(rows(), [["4lost", ""], ["1", ""]]); // prettier-ignore
  assert.equal(body.querySelector("[data-gone]").dataset.gone, "lost");
  drawCheckpoints(body, []);
  assert.equal(rows().length, 2); // what the server drew stays
});

test("an event has its kind in the reader's words, or by its name", () => {
  const [body] = asked(h("tbody"));
  const event = { at: "2026-01-01T00:00:00Z", attempt: 2, words: "w" };
  drawEvents(body, [{ ...event, seq: 1, kind: "warning" }, { ...event, seq: 2, kind: "odd" }, { ...event, seq: 3, kind: "log", words: null }]); // prettier-ignore
  assert.deepEqual(body.children.map((/** @type {any} */ row) => row.children.slice(1).map((/** @type {any} */ cell) => cell.textContent)), [["odd", "2", "w"], ["Warning", "2", "w"]]); // prettier-ignore
  assert.equal(body.dataset.seq, "2");
  assert.equal(body.querySelector("time").getAttribute("datetime"), event.at);
  const many = Array.from({ length: 1003 }, (_, at) => ({ ...event, seq: 10 + at, kind: "odd", words: String(at) }));
  drawEvents(body, many);
  assert.deepEqual([body.children.length, body.firstElementChild.lastElementChild.textContent], [1000, "1002"]);
});

test("the log marks warnings and errors, drops its oldest lines, and the words that there is none", () => {
  const [box, follow] = asked(h("div", {}, h("p", { class: "log-none" })), { checked: false, addEventListener() {} });
  const log = new Log(box, follow);
  const line = (/** @type {number} */ seq, level = "info") => ({ seq, kind: "log", at: "2026-01-01T00:00:00Z", payload: { level, message: `m${seq}` } }); // prettier-ignore
  log.update([line(1), line(2, "warning"), line(3, "error"), { ...line(4), payload: null }]);
  assert.deepEqual(box.children.map((/** @type {any} */ row) => row.dataset.level), [undefined, "warning", "error", undefined]); // prettier-ignore
  assert.equal(box.querySelector(".log-none"), null);
  log.update(Array.from({ length: 2000 }, (_, at) => line(at + 5)));
  assert.deepEqual([box.children.length, box.firstElementChild.textContent], [2000, "2026-01-01 00:00:00  info m5"]);
});
