// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { drawCheckpoints } from "../../static/js/lib/log.js";

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
