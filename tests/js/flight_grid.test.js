// @ts-check
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { askOrder, FlightGrid } from "../../static/js/lib/flight_grid.js";
import { page, send } from "./page.js";

const LINE = `<li><a></a><span></span><span></span></li>`;
const MARKUP = `<div id="box" data-shape="0:2"><a class="flight-cell" data-cell="0.0"></a><a class="flight-cell" data-cell="0.1"></a></div>
<div id="extra"></div><b id="step"></b><b id="count"></b><ul id="slow">${LINE}${LINE}</ul><p id="about"></p>
<dialog id="order-end"><form data-address="/p/joust/rollouts/"></form><b data-name></b></dialog>
<ul><li id="line" data-rollout="r1"><a>0.1 · task</a><button id="end" data-order="end"></button><button id="odd" data-order="fail"></button></li></ul>`;

/** @type {any} */
let shown;
/** @type {any} */
let grid;
/** @type {(id: string) => any} */
const at = (id) => shown.getElementById(id);
beforeEach(() => {
  shown = page(MARKUP);
  Object.assign(globalThis, { HTMLFormElement: globalThis.Element });
  const of = { perStep: 2, groupSize: 2, environment: "tools", marks: { solved: "✓" }, sizes: { small: 3 } };
  const parts = Object.fromEntries(["box", "extra", "step", "count", "slow", "about"].map((id) => [id, at(id)]));
  grid = new FlightGrid(/** @type {any} */ (parts), { ...of, slowAfter: 60 });
});

const START = Date.parse("2026-01-01T00:00:00Z");
/** @param {number} group @param {number} index @param {Record<string, any>} [over] */
const row = (group, index, over = {}) => ({
  id: `r${group}${index}`, group, index, seq: 1, step: 3, status: "running", turns: 0, reward: null, task: "2 + 3",
  started_at: "2026-01-01T00:00:00Z", ...over,
}); // prettier-ignore
/** @param {any[]} rollouts @param {Record<string, any>} [over] */
const now = (rollouts, over = {}) => ({
  step: 3, rollouts, turns: new Map(), whole: true, phase: "rollouts", ordered: new Map(), at: START + 60_000, ...over,
}); // prettier-ignore
const cells = (/** @type {string} */ id) => at(id).children.flatMap((/** @type {any} */ group) => group.children);

test("dots of the server stay while their groups do, and those of a refill have a box of their own", () => {
  const [first] = at("box").children;
  grid.draw(now([row(0, 0), row(1, 0)]));
  assert.equal(at("box").children[0], first);
  assert.equal(cells("extra").length, 2);
  assert.equal(cells("extra")[0].dataset.cell, "1.0");
  assert.equal(at("extra").dataset.size, "large");
  assert.deepEqual([at("count").textContent, at("step").textContent], ["0 / 4", "step_number"]);
});

test("a dot has the state, the outcome, and the reward of its rollout, and none before it begins", () => {
  grid.draw(now([row(0, 0, { status: "completed", outcome: "solved", reward: 1, turns: 1 })]));
  const [done, waits] = at("box").children;
  assert.deepEqual(
    ["data-status", "data-outcome", "data-rollout", "href", "role"].map((name) => done.getAttribute(name)),
    ["completed", "solved", "r00", "?tab=rollouts&step=3&rollout=r00", null],
  );
  assert.equal(done.textContent, "✓");
  assert.ok(done.hasAttribute("data-reward") && done.title === done.getAttribute("aria-label"));
  assert.deepEqual(
    ["data-status", "data-outcome", "href", "role", "data-reward"].map((name) => waits.getAttribute(name)),
    ["waiting", null, null, "img", null],
  );
  assert.equal(at("count").textContent, "1 / 2");
  grid.draw(now([row(0, 0, { seq: 2, outcome: "in_flight" })]));
  assert.deepEqual([done.getAttribute("data-outcome"), done.getAttribute("data-reward")], [null, null]);
});

test("what the server wrote of a rollout stays while the page has not received its turns", () => {
  const [dot] = at("box").children;
  dot.dataset.rollout = "r00";
  dot.textContent = "7";
  const [line] = at("slow").children;
  line.dataset.rollout = "r00";
  line.children[2].textContent = "turn 7";
  grid.draw(now([row(0, 0)], { whole: false }));
  assert.deepEqual([dot.textContent, line.children[2].textContent], ["7", "turn 7"]);
  grid.draw(now([row(0, 0)], { whole: false, ordered: new Map([["r00", "bob"]]) }));
  assert.deepEqual([dot.textContent, line.children[2].textContent], ["7", "flight.ordered"]);
  grid.draw(now([row(0, 0)]));
  assert.equal(dot.textContent, "1");
});

test("the slowest have their age, and are slow only after the limit", () => {
  grid.draw(now([row(0, 0), row(0, 1, { started_at: "2026-01-01T00:00:30Z" })]));
  const [first, second] = at("slow").children;
  assert.deepEqual([first.dataset.rollout, second.dataset.rollout], ["r00", "r01"]);
  assert.equal(first.children[1].hasAttribute("data-slow"), false);
  assert.equal(first.children[0].textContent, "0.0 · 2 + 3");
  assert.ok(first.children[2].textContent.startsWith("tools · turn"));
  grid.draw(now([row(0, 0)], { at: START + 61_000, ordered: new Map([["r00", "bob"]]) }));
  assert.equal(first.children[1].hasAttribute("data-slow"), true);
  assert.deepEqual([first.hasAttribute("data-ordered"), first.children[2].textContent], [true, "flight.ordered"]);
  assert.deepEqual([second.hasAttribute("data-rollout"), second.children[2].textContent], [false, ""]);
  grid.draw(now([row(0, 0, { status: "completed" })]));
  assert.equal(first.children[2].textContent, "flight.none");
  grid.draw(now([]));
  assert.equal(first.children[2].textContent, "flight.nothing");
});

test("the dot that is looked at is said below the grid", () => {
  grid.draw(now([row(0, 0)]));
  const [dot] = at("box").children;
  send(dot, "pointerover");
  assert.ok(dot.title && at("about").textContent === dot.title);
  send(at("box"), "pointerleave");
  assert.equal(at("about").textContent, "");
});

test("before a rollout is ended the dialog names it, and its form leads there", () => {
  askOrder(at("odd"));
  assert.equal(at("order-end").open, false);
  askOrder(at("end"));
  assert.equal(at("order-end").open, true);
  assert.equal(at("order-end").querySelector("form").action, "/p/joust/rollouts/r1/end/");
  assert.equal(at("order-end").querySelector("[data-name]").textContent, "0.1 · task");
});
