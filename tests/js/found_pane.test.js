// @ts-check
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { browser, settled } from "./browser.js";
import { page, parsed, send } from "./page.js";

let number = 0;
/** @param {string} name @returns {Promise<any>} */
const run = (name) => import(`../../static/js/pages/${name}.js?${(number += 1)}`);
/** @type {any} */
let shown;
/** @type {any} */
let here;
/** @type {(id: string) => any} */
const at = (id) => shown.getElementById(id);
/** @type {(selector: string) => any[]} */
const every = (selector) => shown.querySelectorAll(selector);
const texts = (/** @type {string} */ selector) => every(selector).map((node) => node.textContent);
beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout"] });
  here = browser();
});
afterEach(() => mock.timers.reset());

const component = (/** @type {string} */ name, /** @type {number} */ curve, more = {}) => ({ name, title: name, curve, value: 0, counted: 0.5, reason: "", spans: [], ...more }); // prettier-ignore

const place = (/** @type {string} */ id) => `<li class="found-row" data-row="${id}"><a class="found-place" data-rollout="${id}" href="/rollouts/${id}/">${id}</a></li>`; // prettier-ignore
const FOUND = `<div class="found-side" id="inspector-found"><ul id="found-list">${["r1", "r2", "r3"].map(place).join("")}</ul></div>
<div id="found-reader"><div id="found-pane" data-rollout="r1" data-url="/pane/00000000-0000-0000-0000-000000000000/?sort=step"></div></div>`;
/** @type {string[]} what the pane was filled with */
let filled;
/** @returns {Promise<(key: string, target?: any) => boolean>} what a key does */
async function pane(search = "") {
  here = Object.assign(browser(search), { went: [] });
  shown = page(FOUND);
  filled = [];
  /** @type {any} */ (globalThis).window.htmx = { ajax: (/** @type {string} */ _verb, /** @type {string} */ url) => void filled.push(url) }; // prettier-ignore
  const { startPane, paneKey } = await run("inspector_pane");
  startPane();
  return (key, target = shown.body) => paneKey({ key, target });
}
const link = (/** @type {string} */ id) => shown.querySelector(`.found-place[data-rollout="${id}"]`);
const current = () => every('.found-place[aria-current="true"]').map((node) => node.dataset.rollout);
const stops = () => every('.found-place[tabindex="0"]').map((node) => node.dataset.rollout);
const swapped = (/** @type {string} */ id, work = () => {}) => {
  send(shown, "htmx:beforeSwap", { detail: { target: at(id) } });
  work();
  send(shown, "htmx:afterSwap", { detail: { target: at(id) } });
};
/** @param {string[]} ids the list comes again with these, of which the server chose the first */
const relist = (...ids) =>
  swapped("found-list", () => {
    at("found-list").replaceChildren(...parsed(ids.map(place).join("")));
    link(ids[0]).setAttribute("aria-current", "true");
  });

test("the chosen rollout is read next to the list, by pointer and by keys", async () => {
  const key = await pane();
  assert.deepEqual([filled, current(), stops()], [["/pane/r1/?sort=step"], ["r1"], ["r1"]]);
  assert.equal(send(link("r2"), "click", { button: 0, detail: 1 }), false);
  mock.timers.tick(0);
  assert.deepEqual([filled[1], current(), stops(), here.shown], ["/pane/r2/?sort=step", ["r2"], ["r2"], "/here/?rollout=r2"]); // prettier-ignore
  for (const facts of [{ ctrlKey: true }, { metaKey: true }, { shiftKey: true }, { button: 1 }])
    assert.equal(send(link("r3"), "click", { button: 0, detail: 1, ...facts }), true);
  assert.equal(send(link("r2"), "click", { button: 0, detail: 0 }), true); // Enter on what is shown opens its page
  assert.equal(send(link("r2"), "click", { button: 0, detail: 1 }), false);
  mock.timers.tick(0);
  assert.deepEqual([key("j"), key("x"), current(), shown.activeElement === link("r3")], [true, false, ["r3"], true]);
  mock.timers.tick(120);
  assert.deepEqual([key("j"), current(), filled[3]], [true, ["r3"], "/pane/r3/?sort=step"]);
  mock.timers.tick(120);
  assert.equal(filled.length, 4); // the last one
  key("k");
  mock.timers.tick(119);
  assert.equal(filled.length, 4);
  mock.timers.tick(1);
  assert.deepEqual([current(), filled[4]], [["r2"], "/pane/r2/?sort=step"]);
  at("found-pane").append(...parsed("<a data-winner></a>"));
  for (const wanted of ["/pane/r2/?sort=step&winner=no", "/pane/r2/?sort=step"]) {
    assert.equal(send(shown.querySelector("[data-winner]"), "click", { button: 0 }), false);
    assert.equal(filled.at(-1), wanted);
  }
  const body = shown.createElement("div");
  body.className = "pane-body";
  at("found-pane").append(body);
  assert.deepEqual([key("ArrowDown", body), key("ArrowUp", body), current()], [false, false, ["r2"]]);
  assert.deepEqual([key("ArrowUp"), current()], [true, ["r1"]]);
});

test("on a narrow screen the pane lies below its row, and comes back after it was closed", async () => {
  await pane();
  here.screen.matches = true;
  send(here.screen, "change");
  const below = () => at("found-pane").parentElement.parentElement.children.indexOf(at("found-pane").parentElement);
  assert.deepEqual([at("found-pane").parentElement.className, below()], ["found-pane-row", 1]);
  const button = (/** @type {string} */ act) => {
    const node = Object.assign(shown.createElement("button"), { dataset: {} });
    node.setAttribute("data-pane", act);
    at("found-pane").append(node);
    send(node, "click", { button: 0 });
  };
  button("next");
  assert.deepEqual([current(), below(), every(".found-pane-row").length], [["r2"], 2, 1]);
  button("close");
  assert.deepEqual([at("found-pane").hidden, current()], [true, ["r2"]]);
  send(link("r1"), "click", { button: 0, detail: 1 });
  assert.deepEqual([at("found-pane").hidden, below()], [false, 1]);
  relist("r1", "r2"); // the pane is not lost with its row
  assert.deepEqual([at("found-pane").hidden, below()], [false, 1]);
  here.screen.matches = false;
  send(here.screen, "change");
  assert.deepEqual([at("found-pane").parentElement.id, every(".found-pane-row").length], ["found-reader", 0]);
});

test("a list that comes again keeps what a person chose, and else what it has", async () => {
  const read = () => [at("found-pane").dataset.rollout, ...current(), filled.length];
  await pane();
  relist("r3", "r1");
  assert.deepEqual(read(), ["r1", "r1", 1]);
  relist("r3", "r2");
  assert.deepEqual(read(), ["r3", "r3", 2]);
  send(link("r2"), "click", { button: 0, detail: 1 });
  mock.timers.tick(0);
  relist("r3", "r1");
  assert.deepEqual([read(), stops()], [["r2", 3], ["r3"]]);
  swapped("inspector-found"); // another view begins with its own first one
  relist("r3", "r1");
  assert.deepEqual(read(), ["r3", "r3", 5]);
  await pane("?rollout=r1");
  relist("r3", "r2");
  assert.deepEqual(read(), ["r1", 1]);
});

test("a transcript that comes again is read where it was, one in flight from its end", async () => {
  await pane();
  const fill = (/** @type {string} */ of, /** @type {boolean} */ waiting, scrollTop = 0) => {
    const body = Object.assign(shown.createElement("div"), { className: "pane-body", scrollHeight: 1000, clientHeight: 300, scrollTop }); // prettier-ignore
    body.setAttribute("data-of", of);
    if (waiting) body.append(Object.assign(shown.createElement("p"), { className: "waiting" }));
    at("found-pane").replaceChildren(body);
  };
  const again = (/** @type {number} */ top, of = "r1", waiting = true) => {
    fill("r1", true, top);
    swapped("found-pane", () => fill(of, waiting));
    return shown.querySelector(".pane-body").scrollTop;
  };
  assert.deepEqual([again(500), again(660), again(661), again(661, "r2"), again(661, "r1", false)], [500, 660, 1000, 0, 661]); // prettier-ignore
});

test("why a part earned nothing is asked for once the transcript is looked at", async () => {
  await pane();
  here.answers["/r1/words"] = { parts: [component("right", 0, { reason: "It was late." }), component("polite", 1, { value: 1, reason: "x" })] }; // prettier-ignore
  const arrive = async (/** @type {string} */ more) => {
    swapped("found-pane", () => at("found-pane").replaceChildren(...parsed(`<table id="reward"><tr data-part="right" ${more}></tr></table>`))); // prettier-ignore
    mock.timers.tick(599);
    await settled();
  };
  await arrive("data-zero");
  await arrive("data-zero");
  assert.deepEqual(here.asked, []);
  for (const _again of [1, 2]) {
    mock.timers.tick(1);
    await settled();
    assert.deepEqual([here.asked.length, texts(".part-why")], [1, ["It was late."]]);
  }
  swapped("found-pane"); // the same lines
  mock.timers.tick(600);
  await settled();
  assert.deepEqual([here.asked.length, texts(".part-why").length], [2, 1]);
  await arrive("");
  mock.timers.tick(1);
  assert.equal(here.asked.length, 2);
});
