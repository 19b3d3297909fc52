// @ts-check
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { listKeys } from "../../static/js/lib/list_keys.js";
import { mark, plainText } from "../../static/js/lib/marked.js";
import { Roving } from "../../static/js/lib/roving.js";
import { stepRange } from "../../static/js/lib/step_range.js";
import { page, parsed, press, send } from "./page.js";

const ROW = (/** @type {number} */ n) => `<tr id="row-${n}"><td><input class="pick" type="checkbox"></td><td class="cell-main"><a href="/${n}">run ${n}</a></td></tr>`; // prettier-ignore
const LIST = `<main><input type="search"><table><tbody>${ROW(1)}<tr><td>none</td></tr>${ROW(2)}</tbody></table>
<div data-grid><button id="grid"></button></div><textarea></textarea></main><dialog id="list-keys"></dialog>`;

/** @type {any} */
let shown;
beforeEach(() => {
  shown = page(LIST);
  listKeys();
});
const focused = () => shown.activeElement.textContent;
const key = (/** @type {string} */ name, node = shown.activeElement, facts = {}) => press(node, name, facts);

test("j and k go from row to row, passing over those without a link; arrows only once a row has the focus", () => {
  assert.equal(key("ArrowDown"), true);
  assert.equal(shown.activeElement, shown.body);
  assert.equal(key("j"), false);
  assert.equal(focused(), "run 1");
  key("ArrowDown");
  assert.equal(focused(), "run 2");
  key("k");
  assert.equal(focused(), "run 1");
  assert.equal(key("q"), true);
});

test("x chooses the row, / goes to the search, and ? shows the keys", () => {
  /** @type {string[]} */
  const clicked = [];
  shown.addEventListener("click", (/** @type {any} */ event) => clicked.push(event.target.closest("tr").id));
  assert.equal(key("x"), true);
  key("j");
  assert.equal(key("x"), false);
  key("x", shown.querySelector("#row-2 input"));
  assert.deepEqual(clicked, ["row-1", "row-1"]); // the row of the focus
  assert.equal(key("/"), false);
  assert.equal(shown.activeElement.type, "search");
  shown.activeElement = shown.body;
  assert.equal(key("?"), false);
  assert.equal(shown.getElementById("list-keys").open, true);
});

test("keys are the browser's with a modifier, in a field, and where a grid has its own", () => {
  for (const facts of [{ ctrlKey: true }, { metaKey: true }, { altKey: true }])
    assert.equal(key("j", shown.body, facts), true);
  assert.equal(key("j", shown.querySelector("textarea")), true);
  assert.equal(key("?", shown.querySelector("textarea")), true);
  assert.equal(key("j", shown.getElementById("grid")), true);
  assert.equal(key("?", shown.getElementById("grid")), false);
  assert.equal(key("j", shown.querySelector(".pick")), false);
  shown.getElementById("list-keys").dataset.own = "";
  shown.activeElement = shown.body;
  assert.equal(key("j"), true);
  assert.equal(key("?"), false);
  shown.getElementById("list-keys").remove();
  assert.equal(key("?"), true);
});

test("a grid is one tab stop, the chosen button or the first, which the arrows move", () => {
  const [box] = parsed("<div><b>x</b><button>1</button><button>2</button><button>3</button></div>");
  shown.body.append(box);
  const roving = new Roving(box, "button");
  const stops = () => box.querySelectorAll('[tabindex="0"]').map((/** @type {any} */ node) => node.textContent);
  roving.settle();
  assert.deepEqual(stops(), ["1"]);
  roving.settle(box.querySelectorAll("button")[1]);
  assert.deepEqual(stops(), ["2"]);
  roving.settle();
  assert.deepEqual(stops(), ["2"]);
  box.querySelectorAll("button")[1].focus();
  assert.equal(press(shown.activeElement, "ArrowRight"), false);
  assert.deepEqual([focused(), stops()], ["3", ["3"]]);
  assert.equal(press(shown.activeElement, "ArrowRight"), false); // at the edge too
  press(shown.activeElement, "Home");
  assert.equal(focused(), "1");
  assert.equal(press(shown.activeElement, "End", { ctrlKey: true }), true);
  assert.equal(press(shown.activeElement, "a"), true);
  assert.equal(press(box.querySelector("b"), "End"), false);
  send(box.querySelector("b"), "focusin");
  assert.deepEqual(stops(), ["3"]);
  roving.stop(null);
  assert.deepEqual(stops(), ["3"]);
});

test("marks go around the words that earned, and a hidden character is one place", () => {
  const [box] = parsed('<div>ab<span class="hidden-char">U+202E</span>cdef</div>');
  assert.equal(plainText(box.childNodes), "ab\u0001cdef");
  const spans = [{ start: 1, end: 4, name: "x", note: "n" }, { start: 5, end: 6, name: "y", note: "" }]; // prettier-ignore
  mark(box, spans, (names, notes) => ({ title: [...names, ...notes].join(" ") }));
  const parts = box.childNodes.map((/** @type {any} */ node) => [node.localName, node.textContent]);
  assert.deepEqual(parts, [
    [undefined, "a"],
    ["mark", "bU+202Ec"],
    [undefined, "d"],
    ["mark", "e"],
    [undefined, "f"],
  ]);
  assert.deepEqual(box.querySelectorAll("mark").map((/** @type {any} */ node) => [node.className, node.title]), [["earned", "x n"], ["earned", "y"]]); // prettier-ignore
  assert.equal(box.querySelectorAll(".hidden-char").length, 1);
});

test("a slider of two ends writes the bounds of a form, and follows what is typed", () => {
  const fields = ["from", "to", "below"].map((end) => `<input name="step_${end}" value="">`).join("");
  const [form] = parsed(`<form>${fields}<p hidden><input min="1" max="9" value="1"><input min="1" max="9" value="9"><output></output></p></form>`); // prettier-ignore
  const box = form.querySelector("p");
  const [first, second] = box.querySelectorAll("input");
  const at = (/** @type {string} */ end) => form.elements.namedItem(`step_${end}`);
  at("below").value = "6";
  stepRange(box, form);
  const said = () => [first.value, second.value, box.querySelector("output").value, box.style["--low-n"], box.style["--high-n"]]; // prettier-ignore
  assert.deepEqual([said(), box.hidden], [["1", "5", "1 – 5", "0", "0.5"], false]);
  first.value = "7";
  send(first, "input");
  assert.deepEqual([at("from").value, at("to").value, at("below").value], ["5", "7", ""]);
  assert.deepEqual(said().slice(2), ["5 – 7", "0.5", "0.75"]);
  second.value = "7";
  send(second, "input");
  assert.equal(box.querySelector("output").value, "7");
  at("from").value = "3";
  at("to").value = "";
  send(at("from"), "change");
  assert.deepEqual(said(), ["3", "9", "3 – 9", "0.25", "1"]);
});
