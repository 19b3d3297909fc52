// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { Log, drawCheckpoints, drawEvents } from "../../static/js/lib/log.js";

/** As much of an element as a table of rows needs. */
class Node {
  constructor() {
    /** @type {Record<string, string>} */
    this.dataset = {};
    /** @type {Node[]} */
    this.children = [];
    this.textContent = "";
  }
  /** @returns {Node | null} */
  get firstElementChild() {
    return this.children[0] ?? null;
  }
  /** @returns {Node | null} */
  get lastElementChild() {
    return this.children.at(-1) ?? null;
  }
  setAttribute() {}
  addEventListener() {}
  querySelector() {
    return null;
  }
  /** @param {any[]} given */
  append(...given) {
    for (const each of given) {
      if (typeof each === "string") this.textContent += each;
      else this.children.push(each);
    }
  }
  /** @param {Node} node */
  prepend(node) {
    this.children.unshift(node);
  }
  /**
   * @param {Node} node
   * @param {Node | null} place
   */
  insertBefore(node, place) {
    this.children.splice(place ? this.children.indexOf(place) : this.children.length, 0, node);
  }
}

Object.assign(globalThis, { document: { querySelectorAll: () => [], createElement: () => new Node() } });

test("of many checkpoints the table has the newest hundred, the newest on top", () => {
  const body = new Node();
  const saved = Array.from({ length: 130 }, (_, at) => ({
    id: `c${at + 1}`,
    seq: at + 1,
    step: at + 1,
    attempt: 1,
    path: `1/checkpoint-${at + 1}`,
    bytes: 1,
    created_at: "2026-01-01T00:00:00Z",
  }));
  drawCheckpoints(/** @type {any} */ (body), saved);
  const steps = body.children.map((row) => row.firstElementChild?.textContent);
  assert.deepEqual([steps.length, steps[0], steps.at(-1)], [100, "130", "31"]);
});

/** @param {number} seq */
const line = (seq) => ({
  seq,
  kind: "log",
  at: `2026-01-01T00:00:0${seq}Z`,
  payload: { message: `line ${seq}` },
  words: null,
});

test("the log writes each line once, after those that the server wrote", () => {
  const box = new Node();
  box.dataset.seq = "2";
  const log = new Log(/** @type {any} */ (box), /** @type {any} */ ({ checked: false, addEventListener() {} }));
  const texts = () => box.children.map((row) => row.textContent);
  log.update([line(2), line(3)]);
  assert.deepEqual(texts(), ["2026-01-01 00:00:03  line 3"]);
  log.update([line(2), line(3), line(4), { ...line(5), kind: "warning" }]);
  assert.deepEqual(texts(), ["2026-01-01 00:00:03  line 3", "2026-01-01 00:00:04  line 4"]);
  log.update([{ ...line(6), payload: { level: "error", message: "a\u202eb" } }]);
  assert.equal(texts().at(-1), "2026-01-01 00:00:06  error a[U+202E]b");
});

test("the log follows its end until a reader scrolls up, and again when they ask for it", () => {
  /** @type {Record<string, () => void>} */
  const heard = {};
  const listening = (/** @type {string} */ who) => ({
    addEventListener: (/** @type {string} */ what, /** @type {() => void} */ work) => (heard[`${who} ${what}`] = work),
  });
  const box = Object.assign(new Node(), listening("box"), { scrollHeight: 500, clientHeight: 100, scrollTop: 0 });
  const follow = { checked: true, ...listening("follow") };
  const log = new Log(/** @type {any} */ (box), /** @type {any} */ (follow));
  log.update([line(1)]);
  assert.equal(box.scrollTop, 500);
  box.scrollTop = 371; // 29 from the end: a line more or less is no wish
  heard["box scroll"]();
  assert.equal(follow.checked, true);
  box.scrollTop = 370;
  heard["box scroll"]();
  assert.equal(follow.checked, false);
  log.update([line(2)]);
  assert.equal(box.scrollTop, 370);
  follow.checked = true;
  heard["follow change"]();
  assert.equal(box.scrollTop, 500);
});

test("new events come on top of the table, each once", () => {
  const body = new Node();
  body.dataset.seq = "1";
  const warning = (/** @type {number} */ seq) => ({
    ...line(seq),
    kind: "warning",
    attempt: seq,
    words: `event ${seq}\u202e`,
  });
  const texts = () => body.children.map((row) => row.lastElementChild?.textContent);
  drawEvents(/** @type {any} */ (body), [warning(1), warning(2), line(3), warning(4)]);
  assert.deepEqual(texts(), ["event 4[U+202E]", "event 2[U+202E]"]);
  drawEvents(/** @type {any} */ (body), [warning(4), warning(5)]);
  assert.deepEqual(texts(), ["event 5[U+202E]", "event 4[U+202E]", "event 2[U+202E]"]);
});
