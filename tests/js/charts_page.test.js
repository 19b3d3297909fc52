// @ts-check
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { Curves } from "../../static/js/lib/curves.js";
import { emptyState } from "../../static/js/lib/state.js";
import { browser } from "./browser.js";
import { page, send } from "./page.js";

const VIEW = { smooth: 0, log: false, x: "step", stack: true };
const TEXTS = { "about.kl": "How far it is.", step_number: "step {n}", at_time: "{n} h", still_chart: "still: {names}", still_charts: "{n} still: {names}" }; // prettier-ignore
/** @type {any} */
let curves;
/** @type {any} */
let state;
/** @type {any[]} the page's own run, then others */
let sources;
/** @type {any[]} */
let happened;
beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout"] });
  browser();
  const shown = page('<div id="lead"></div><div id="charts"></div><details id="still"><summary></summary><div class="charts"></div></details>', TEXTS); // prettier-ignore
  Object.defineProperty(globalThis.Element.prototype, "clientWidth", { value: 256, configurable: true }); // 200 and margins
  happened = [];
  state = emptyState();
  sources = [{ number: 0, curves: state.curves, parts: state.parts, axes: null, alike: true }];
  curves = new Curves(shown.getElementById("charts"), shown.getElementById("still"), {
    ...{
      baselines: {},
      components: {},
      weights: null,
      plotly: "",
      onRemove: (/** @type {string} */ key) => happened.push(key),
      lead: shown.getElementById("lead"),
    },
    onStep: (step) => happened.push(step),
    onZoom: () => happened.push("zoom"),
  });
});
afterEach(() => mock.timers.reset());

const STEPS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
const RISING = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1];
/** @type {(name: string, steps: number[], values?: (number | null)[]) => void} */
const curve = (name, steps, values = RISING.slice(0, steps.length)) =>
  state.curves.set(name, { steps, values, attempts: steps.map(() => 1) });
const spec = (/** @type {string} */ key, /** @type {string[]} */ ...names) => ({ key, title: key, names: names.length ? names : [key], removable: false }); // prettier-ignore
/** @type {(specs: any[], view?: any) => void} */
function show(specs, view = VIEW) {
  curves.update(state, specs, view, sources);
  curves.onSeen(Array.from(curves.charts.values(), (chart) => ({ target: chart.node, isIntersecting: true })));
  mock.timers.tick(250);
}
/** @type {(key: string) => any} */
const chart = (key) => curves.charts.get(key);
const cross = (/** @type {string} */ key) => !chart(key).cross.hidden && chart(key).cross.style.transform;
const over = (/** @type {string} */ kind, /** @type {number} */ clientX, more = {}) =>
  send(chart("reward").plot.parentElement, kind, { clientX, button: 0, detail: 1, pointerType: "mouse", pointerId: 1, ...more }); // prettier-ignore

test("the crosshair is at its step in all charts, up to both ends", () => {
  for (const name of ["reward", "loss"]) curve(name, STEPS);
  show([spec("reward"), spec("loss")]);
  assert.deepEqual(curves.span, [1, 11]);
  for (const [place, wanted] of [
    [1, "translateX(46px)"],
    [11, "translateX(246px)"],
    [0.99, false],
    [11.01, false],
  ]) {
    curves.point(place);
    assert.deepEqual([cross("reward"), cross("loss")], [wanted, wanted], String(place));
  }
  over("pointermove", 46 + 79); // 3.95 steps after the first
  assert.deepEqual([cross("loss"), chart("loss").stepText.textContent, chart("loss").legend.textContent], ["translateX(126px)", "step 5", "0.400"]); // prettier-ignore
  over("pointerleave", 300);
  assert.deepEqual([cross("loss"), chart("loss").stepText.textContent, chart("loss").legend.textContent], [false, "", "1.00"]); // prettier-ignore
  over("pointermove", 66, { pointerType: "touch" });
  assert.equal(cross("loss"), false);
});

test("a click opens the step that is nearest among all lines, unless it is one of two", () => {
  curve("reward", [1, 11]);
  curve("other", [6, 11]);
  show([spec("reward", "reward", "other")]);
  over("click", 46 + 80); // at 5: 1 and 6 are known
  mock.timers.tick(319);
  assert.deepEqual(happened, []);
  mock.timers.tick(1);
  assert.deepEqual(happened, [6]);
  over("click", 46 + 180); // at 10
  over("click", 46 + 180, { detail: 2 });
  over("dblclick", 46 + 180);
  mock.timers.tick(1000);
  assert.deepEqual(happened, [6, "zoom"]);
});

test("a drag of more than six pixels zooms, from either side, and is no click", () => {
  curve("reward", STEPS);
  show([spec("reward")]);
  const zoom = chart("reward").node.querySelector(".chart-zoom");
  const drag = (/** @type {number} */ from, /** @type {number} */ to, more = {}) => {
    over("pointerdown", from, more);
    over("pointermove", to);
    const box = zoom.hidden ? null : [zoom.style.left, zoom.style.width];
    over("pointerup", to);
    const range = curves.range && [...curves.range].map((place) => Math.round(place * 100) / 100);
    curves.zoom(null);
    mock.timers.tick(250);
    return [box, range, zoom.hidden];
  };
  assert.deepEqual(drag(46, 52), [null, null, true]);
  assert.deepEqual(drag(46, 53), [["46px", "7px"], [1, 1.35], true]);
  assert.deepEqual(drag(246, 146), [["146px", "100px"], [6, 11], true]);
  assert.deepEqual(drag(146, 400), [["146px", "254px"], [6, 11], true]);
  for (const other of [{ button: 2 }, { pointerType: "touch" }]) assert.deepEqual(drag(46, 146, other), [null, null, true]); // prettier-ignore
  happened.length = 0;
  over("pointerdown", 46);
  over("pointermove", 146);
  curves.point(5);
  over("pointerleave", 300);
  assert.equal(curves.pointed, 5);
  over("pointercancel", 146);
  over("pointerup", 146);
  assert.deepEqual([happened, zoom.hidden], [[], true]);
});

test("where the pointer was is forgotten with its chart, its axis, and its zoom", () => {
  const axes = { time: { steps: STEPS, at: STEPS.map((step) => step / 2) } };
  for (const name of ["reward", "loss"]) curve(name, STEPS);
  const both = [spec("reward"), spec("loss")];
  show(both);
  for (const [forget, left] of /** @type {[() => void, number | null][]} */ ([
    [() => show(both), 5],
    [() => show([both[0]]), null],
    [() => show(both, { ...VIEW, x: "time" }), null],
    [() => curves.zoom([1, 3]), null],
  ])) {
    sources[0].axes = axes;
    show(both, curves.view);
    curves.point(5);
    forget();
    assert.equal(curves.pointed, left);
  }
  assert.deepEqual([curves.range, curves.span], [[1, 3], [0, 5.5]]); // prettier-ignore
  curves.point(2.5);
  mock.timers.tick(250);
  assert.deepEqual([chart("loss").stepText.textContent, chart("loss").plot.layout.xaxis.range], ["step 5 · 2.50 h", [1, 3]]); // prettier-ignore
  happened.length = 0;
  curves.zoom(null);
  mock.timers.tick(250);
  over("click", 46 + 110); // 3.03 hours
  mock.timers.tick(320);
  assert.deepEqual([happened.at(-1), chart("loss").plot.layout.xaxis.range], [6, [0, 5.5]]);
  show(both);
  assert.equal(curves.range, null);
});

test("charts are in their order, the one that answers apart, and those in which nothing moves are folded", () => {
  Object.assign(curves.options, { leads: ["success", "reward"], shares: ["reward"] });
  for (const name of ["kl", "reward"]) curve(name, STEPS);
  curve("flat", STEPS, STEPS.map(() => 2)); // prettier-ignore
  curve("same", STEPS, STEPS.map(() => 2)); // prettier-ignore
  curve("still", STEPS, STEPS.map(() => 3)); // prettier-ignore
  const keys = (/** @type {any} */ box) => box.children.map((/** @type {any} */ node) => node.dataset.chart);
  const places = () => [curves.options.lead, curves.box, curves.fold.querySelector(".charts")].map(keys);
  show([spec("kl"), spec("reward"), spec("flat", "flat", "same"), spec("absent")]);
  assert.deepEqual([places(), curves.fold.hidden, curves.fold.firstElementChild.textContent], [[["reward"], ["kl", "absent"], ["flat"]], false, "still: flat 2.00"]); // prettier-ignore
  assert.deepEqual([chart("reward").legend.textContent, chart("kl").legend.textContent], ["100%", "1.00"]);
  show([spec("flat"), spec("still"), spec("kl")]);
  assert.deepEqual([places(), curves.fold.firstElementChild.textContent], [[["flat"], ["kl"], ["still"]], "still: still 3.00"]); // prettier-ignore
  curve("five", STEPS);
  show([spec("five"), spec("kl", "kl", "five", "flat", "still")]);
  assert.deepEqual([places(), curves.fold.hidden], [[["five"], ["kl"], []], true]);
  assert.deepEqual([chart("kl").node.dataset.wide, chart("five").node.dataset.wide], ["", undefined]);
  show([spec("five"), spec("kl", "kl", "five", "flat")]);
  assert.equal(chart("kl").node.dataset.wide, undefined);
});

test("a legend of more than twelve lines is scrolled by keys too", () => {
  const names = Array.from({ length: 13 }, (_none, n) => `m${n}`);
  for (const name of names) curve(name, STEPS);
  for (const [count, index, many] of /** @type {any[]} */ ([
    [13, "0", ""],
    [12, null, ""],
    [2, null, ""],
    [1, null, null],
  ])) {
    show([spec("reward", ...names.slice(0, count))]);
    const { legend } = chart("reward");
    assert.deepEqual([legend.children.length, legend.getAttribute("tabindex"), legend.getAttribute("data-many")], [count, index, many]); // prettier-ignore
  }
});

test("a chart says what it is about, and only one that was added can be removed", () => {
  for (const name of ["kl", "loss"]) curve(name, STEPS);
  show([spec("kl"), { ...spec("loss"), removable: true }]);
  assert.deepEqual(["kl", "loss"].map((key) => chart(key).node.querySelector("h3").title), ["kl\nHow far it is.", "loss"]); // prettier-ignore
  const remove = (/** @type {string} */ key) => chart(key).node.querySelector('[aria-label="remove_curve"]');
  remove("loss").click();
  assert.deepEqual([remove("kl"), happened], [null, ["loss"]]);
});

test("charts are painted again in other colours, and the closest points are asked for where a person looks first", () => {
  for (const name of ["kl", "loss", "whole"]) curve(name, STEPS);
  for (const name of ["kl", "loss"]) state.curves.get(name).means = { steps: [1], values: [0], counts: [11] };
  show([spec("kl"), spec("loss"), spec("whole")]);
  const [painted, read] = [chart("kl").plot.firstElementChild, chart("loss").plot.firstElementChild];
  chart("loss").visible = false;
  send(document, "tiltyard:theme");
  mock.timers.tick(250);
  assert.deepEqual([chart("kl").plot.firstElementChild === painted, chart("loss").plot.firstElementChild === read], [false, true]); // prettier-ignore
  [chart("kl").visible, chart("loss").visible] = [false, true];
  assert.deepEqual(curves.coarse(), []);
  curves.zoom([2, 4]);
  assert.deepEqual(curves.coarse(), ["loss", "kl"]);
  state.checkpoints = [{ step: 1, state: "whole" }, { step: 2, state: "lost" }]; // prettier-ignore
  assert.deepEqual(curves.saved(), [1]);
});
