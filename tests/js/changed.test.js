// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { liveCells, setLiveText } from "../../static/js/lib/changed.js";

/**
 * @param {string} text
 * @returns {any}
 */
const node = (text) => ({
  textContent: text,
  marks: 0,
  offsetWidth: 1,
  removeAttribute() {},
  addEventListener() {},
  setAttribute() {
    this.marks += 1;
  },
});

test("a text that is another one is marked, the same one is not", () => {
  const figure = node("5");
  setLiveText(figure, "5");
  assert.equal(figure.marks, 0);
  setLiveText(figure, "6");
  assert.deepEqual([figure.textContent, figure.marks], ["6", 1]);
  setLiveText(null, "6");
});

/**
 * @param {string | null} href
 * @param {string[]} texts
 */
const row = (href, texts) => ({
  querySelector: () => (href ? { getAttribute: () => href } : null),
  querySelectorAll: () => texts.map(node),
});

test("cells are known by the link of their row and their place", () => {
  const list = /** @type {any} */ ({
    querySelectorAll: () => [row("/a/", ["1", "2"]), row(null, ["x"]), row("/b/", ["1"])],
  });
  const found = [...liveCells(list)].map(([key, cell]) => [key, cell.text]);
  assert.deepEqual(found, [
    ["/a/ 0", "1"],
    ["/a/ 1", "2"],
    ["/b/ 0", "1"],
  ]);
});
