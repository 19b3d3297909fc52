// @ts-check
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { Palette, palette } from "../../static/js/lib/palette.js";
import { page, press, send } from "./page.js";

const MARKUP = `<dialog id="palette" data-url="/palette/"><input><p id="palette-status"></p>
<div id="palette-list"></div></dialog><button data-palette><kbd data-palette-key></kbd></button>`;
/** @type {(title: string, more?: any) => any} */
const item = (title, more = {}) => ({ title, url: `/${title}`, about: "", icon: "", state: "", state_word: "", said: null, ...more }); // prettier-ignore
/** @type {(title: string, ...items: any[]) => any} */
const group = (title, ...items) => ({ title, note: "", items });

/** @type {any} */
let shown;
/** @type {any} */
let opened;
beforeEach(() => {
  shown = page(MARKUP);
  opened = new Palette(shown.getElementById("palette"));
  opened.askers = []; // nothing is asked of a server
  opened.look();
});
/** @type {(name: string, part: any) => void} one of the two answers comes */
function comes(name, part) {
  opened.parts[name] = { groups: [], none: "", problem: "", waiting: false, ...part };
  opened.show();
}
const options = () => shown.querySelectorAll("[role=option]");
const titles = () => options().map((/** @type {any} */ option) => option.textContent);
const chosen = () => shown.querySelectorAll('[aria-selected="true"]').map((/** @type {any} */ option) => option.textContent); // prettier-ignore
const status = () => [opened.status.hidden, opened.status.textContent];

test("names come before texts, and the group without a title last", () => {
  comes("texts", { groups: [group("Texts", item("said"))] });
  comes("names", { groups: [group("", item("more")), group("Runs", item("one"), item("two"))] });
  assert.deepEqual(titles(), ["one", "two", "said", "more"]);
  assert.deepEqual(options().map((/** @type {any} */ option) => option.id), [0, 1, 2, 3].map((at) => `palette-option-${at}`)); // prettier-ignore
  const groups = opened.list.children;
  assert.deepEqual(groups.map((/** @type {any} */ one) => one.getAttribute("aria-labelledby")), ["palette-group-0", "palette-group-1", null]); // prettier-ignore
  assert.equal(groups[0].firstElementChild.id, "palette-group-0");
});

test("what a part showed before is away while it is asked again", () => {
  comes("names", { groups: [group("Runs", item("one"))] });
  opened.look();
  comes("texts", { groups: [group("Texts", item("said"))] });
  assert.deepEqual(titles(), ["said"]);
});

test("the first is chosen, until a reader goes to another one, which then stays chosen", () => {
  comes("names", { groups: [group("Runs", item("one"), item("two"))] });
  assert.deepEqual([chosen(), opened.field.getAttribute("aria-activedescendant")], [["one"], "palette-option-0"]);
  comes("texts", { groups: [group("Runs", item("zero"))] });
  assert.equal(press(opened.field, "ArrowDown"), false);
  assert.deepEqual([chosen(), opened.field.getAttribute("aria-activedescendant")], [["two"], "palette-option-1"]);
  comes("names", { groups: [group("Runs", item("new"), item("one"), item("two"))] });
  assert.deepEqual(chosen(), ["two"]);
  comes("names", { groups: [] });
  assert.deepEqual(chosen(), ["zero"]);
  comes("texts", {});
  assert.deepEqual([chosen(), opened.field.getAttribute("aria-activedescendant")], [[], ""]);
});

test("a choice that no reader made goes to the first of what comes later", () => {
  comes("texts", { groups: [group("Texts", item("said"))] });
  comes("names", { groups: [group("Runs", item("one"))] });
  assert.deepEqual(chosen(), ["one"]);
});

test("a choice is of a link, and its part in the middle is marked", () => {
  const more = { icon: "run", about: "of joust\u202e", state: "bad", state_word: "Failed", said: ["a ", "word", " b"] };
  comes("names", { groups: [{ ...group("Runs", item("one", more), item("two\u202e")), note: "5 more" }] });
  const [first, second] = options();
  assert.deepEqual([first.href, first.querySelector("mark").textContent], ["/one", "word"]);
  assert.equal(first.textContent, "a word bof joust[U+202E]Failed");
  assert.deepEqual([first.querySelector(".badge").dataset.state, first.querySelectorAll(".icon").length], ["bad", 1]);
  assert.deepEqual([second.textContent, second.children.length], ["two[U+202E]", 1]);
  assert.equal(shown.querySelector(".palette-note").textContent, "5 more");
});

test("nothing was found only once both parts say so; a problem is said at once", () => {
  comes("names", { none: "No such name" });
  assert.deepEqual(status(), [true, ""]);
  comes("texts", { none: "No such text" });
  assert.deepEqual(status(), [false, "No such name"]);
  comes("texts", { groups: [group("Texts", item("said"))] });
  assert.deepEqual(status(), [true, ""]);
  comes("texts", { problem: "No connection" });
  assert.deepEqual(status(), [false, "No connection"]);
  opened.look();
  comes("names", {});
  assert.deepEqual(status(), [true, ""]); // the problem was of the words before
});

test("Enter opens what is chosen, or what will be once it has come", () => {
  /** @type {string[]} */
  const went = [];
  shown.addEventListener("click", (/** @type {any} */ event) => went.push(event.target.textContent));
  press(opened.field, "Enter");
  comes("texts", { groups: [group("Texts", item("said"))] });
  assert.deepEqual(went, []); // names are the first that count
  comes("names", { groups: [group("Runs", item("one"))] });
  assert.deepEqual(went, ["one"]);
  assert.equal(press(opened.field, "Enter"), false);
  assert.deepEqual(went, ["one", "one"]);
  opened.look();
  press(opened.field, "Enter");
  comes("names", { none: "No such name" });
  assert.equal(went.length, 2); // a text may still come
  comes("texts", { groups: [group("Texts", item("said"))] });
  assert.deepEqual(went, ["one", "one", "said"]);
  opened.look();
  press(opened.field, "Enter");
  opened.look();
  comes("names", { groups: [group("Runs", item("one"))] });
  assert.equal(went.length, 3); // more was typed
});

test("keys that choose a character, or mark text, are the browser's", () => {
  comes("names", { groups: [group("Runs", item("one"), item("two"))] });
  for (const facts of [{ isComposing: true }, { altKey: true }, { shiftKey: true }])
    assert.equal(press(opened.field, "End", facts), true);
  assert.equal(press(opened.field, "ArrowLeft"), true);
  assert.equal(press(opened.field, "Enter", { isComposing: true }), true);
  assert.deepEqual(chosen(), ["one"]);
  press(opened.field, "End");
  assert.deepEqual(chosen(), ["two"]);
  comes("names", {});
  assert.equal(press(opened.field, "End"), true);
});

test("the pointer chooses what it is on, and a click on a choice closes the palette", () => {
  opened.dialog.showModal();
  comes("names", { groups: [group("Runs", item("one"), item("two"))] });
  send(options()[1].firstElementChild, "pointermove");
  assert.deepEqual(chosen(), ["two"]);
  send(opened.list.firstElementChild.firstElementChild, "pointermove");
  assert.deepEqual(chosen(), ["two"]); // a title is no choice
  opened.list.firstElementChild.firstElementChild.click();
  assert.equal(opened.dialog.open, true);
  options()[0].click();
  assert.equal(opened.dialog.open, false);
});

test("⌘K or Ctrl-K opens and closes it, with no other key held", () => {
  Object.defineProperty(globalThis, "navigator", { value: { platform: "Linux" }, configurable: true });
  Object.assign(globalThis, { fetch: () => new Promise(() => {}) });
  palette();
  const dialog = shown.getElementById("palette");
  assert.equal(shown.querySelector("kbd").textContent, "Ctrl K");
  for (const facts of [{}, { ctrlKey: true, metaKey: true }, { ctrlKey: true, altKey: true }, { ctrlKey: true, shiftKey: true }]) // prettier-ignore
    assert.equal(press(shown.body, "k", facts), true);
  assert.equal(press(shown.body, "j", { ctrlKey: true }), true);
  assert.equal(dialog.open, false);
  assert.equal(press(shown.body, "K", { ctrlKey: true }), false);
  assert.equal(dialog.open, true);
  assert.equal(press(shown.body, "k", { metaKey: true }), false);
  assert.equal(dialog.open, false);
  shown.querySelector("kbd").click();
  assert.equal(dialog.open, true);
  dialog.close();
  Object.defineProperty(globalThis, "navigator", { value: { platform: "MacIntel" }, configurable: true });
  palette();
  assert.equal(shown.querySelector("kbd").textContent, "⌘K");
});
