// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { pictured } from "../../static/js/lib/chart-menu.js";
import { GHOST, TOTAL, endsAt, isStacked, readLines, tracesOf } from "../../static/js/lib/lines.js";
import { lineTraces } from "../../static/js/lib/plot.js";
import { missingCurves, neededBy, specsOf } from "../../static/js/lib/specs.js";
import { emptyState } from "../../static/js/lib/state.js";

Object.assign(globalThis, { document: { querySelectorAll: () => [] } }); // a page without texts

const curve = (/** @type {number[]} */ ...values) => ({
  steps: values.map((_value, at) => at + 1),
  values,
  attempts: values.map(() => 1),
});
const parts = { key: "components", title: "Components", names: ["rewards/b/mean", "rewards/a/mean"], removable: false };
const reward = { key: "reward", title: "Reward", names: ["reward"], removable: false };

/**
 * @param {Record<string, any>} [over]
 * @param {Record<string, any>[]} [others]
 * @returns {any}
 */
function all(over = {}, others = []) {
  const state = emptyState();
  state.curves.set("reward", curve(0.4, 0.6));
  state.curves.set("reward_std", curve(0.1, 0.2));
  state.curves.set("rewards/a/mean", curve(0.5, 0.7));
  state.curves.set("rewards/b/mean", curve(-0.1, -0.1));
  const own = { number: 0, curves: state.curves, parts: state.parts, axes: null, alike: true };
  const sources = [own, ...others.map((other) => ({ ...own, ...other }))];
  return {
    state,
    sources,
    view: { smooth: 0, log: false, x: "step", stack: true },
    range: null,
    span: [1, 2],
    options: { components: { a: "A", b: "B" }, weights: { a: 0.5, b: 2 } },
    stepsOf: (/** @type {any} */ range) => range,
    axis: () => undefined,
    saved: () => [2],
    isLead: () => false,
    ...over,
  };
}
const drawn = (/** @type {any[]} */ lines) => lines.map((line) => [line.label || line.name, line.at, line.dash]);

test("components have the colours of their places in the spec, and a stack has the reward on top", () => {
  assert.deepEqual(drawn(readLines(parts, all())), [
    ["B", 1, "solid"],
    ["A", 0, "solid"],
    ["sum_reward", TOTAL, "solid"],
  ]);
  const { traces, values } = tracesOf(parts, all(), readLines(parts, all()), (name) => name);
  assert.deepEqual(
    traces.map((trace) => [trace.stackgroup, trace.line?.color, trace.name]),
    [
      ["below", "--curve-1", "B"],
      ["above", "--curve-0", "A"],
      [undefined, "--ink", "sum_reward"],
      [undefined, undefined, undefined],
    ],
  );
  assert.deepEqual([Math.min(...values.map(Number)), Math.max(...values.map(Number))], [-0.2, 0.6]);
  const below = traces.find((trace) => trace.name === "B");
  assert.deepEqual(below.y, [-0.2, -0.2]); // its values are -0.1, and it weighs 2
});

test("gaps of the chart's own metrics are marked", () => {
  const one = all();
  one.state.curves.set("reward", { steps: [1, 2, 3], values: [0.4, null, 0.6], attempts: [1, 1, 1] });
  const marked = (/** @type {any} */ spec) =>
    tracesOf(spec, one, readLines(spec, one), (name) => name).traces.filter((trace) => trace.marker?.color === "--bad");
  assert.deepEqual(
    marked(reward).map((trace) => trace.x),
    [[2]],
  );
  assert.deepEqual(marked(parts), []);
});

test("a figure alone between gaps is a dot, as a line has no length there", () => {
  const shown = (/** @type {(number | null)[]} */ ...y) =>
    lineTraces({ x: y.map((_value, at) => at), y, ghost: null, reach: 0 }, "red").map((trace) => [trace.mode, trace.x]);
  assert.deepEqual(shown(1, null, 3, 4, null, 5, null), [
    ["markers", [0, 5]],
    ["lines", [0, 1, 2, 3, 4, 5, 6]],
  ]);
  assert.deepEqual(
    shown(1, 2, 3, 4).map(([mode]) => mode),
    ["lines"],
  );
  assert.deepEqual(
    shown(1, null).map(([mode]) => mode),
    ["markers"],
  );
});

test("lines that cannot be added up are drawn as lines", () => {
  const log = all({ view: { smooth: 0, log: true, x: "step", stack: true } });
  const lines = all({ view: { smooth: 0, log: false, x: "step", stack: false } });
  assert.deepEqual(
    [all(), log, lines, all({}, [{ number: 1 }])].map((one) => isStacked(parts, one)),
    [true, false, false, false],
  );
  const weighed = (/** @type {any} */ weights) => all({ options: { components: { a: "A", b: "B" }, weights } });
  assert.deepEqual(
    [weighed(null), weighed({ a: 1 })].map((one) => isStacked(parts, one)),
    [false, false], // what they add is not known
  );
  assert.equal(isStacked(reward, all()), false);
  assert.equal(isStacked({ ...parts, names: ["rewards/a/mean"] }, all()), false);
});

test("next to other runs the colour is the run's, but a component keeps its own and runs differ in dashes", () => {
  const two = all({}, [{ number: 3 }]);
  assert.deepEqual(drawn(readLines(reward, two)), [
    ["reward", 0, "solid"],
    ["reward", 3, "solid"],
  ]);
  assert.deepEqual(drawn(readLines(parts, two)), [
    ["B", 1, "solid"],
    ["A", 0, "solid"],
    ["B", 1, "dashdot"],
    ["A", 0, "dashdot"],
  ]);
});

test("rewards that were made in another way are not drawn with these", () => {
  const two = all({}, [{ number: 1, alike: false }]);
  assert.equal(readLines(reward, two).length, 1);
  assert.equal(readLines(parts, two).length, 2);
  const kl = { ...reward, key: "kl", names: ["kl"] };
  two.state.curves.set("kl", curve(1, 2));
  assert.equal(readLines(kl, two).length, 2);
});

test("the band is one run's, on a scale where it is as wide above as below, and the scale holds it", () => {
  const count = (/** @type {any} */ one) =>
    tracesOf(reward, one, readLines(reward, one), () => "#000000").traces.length;
  assert.equal(count(all()), 4, "its two edges, the line, the marks");
  assert.equal(count(all({ view: { smooth: 0, log: true, x: "step", stack: true } })), 2);
  assert.equal(count(all({}, [{ number: 1 }])), 3);
  const { values } = tracesOf(reward, all(), readLines(reward, all()), () => "#000000");
  assert.ok(Math.abs(Math.max(...values.map(Number)) - 0.8) < 1e-9);
});

test("the legend of a picture has each name once", () => {
  const shown = pictured([{ name: "A" }, { name: "A" }, {}, { name: "B" }]).map((trace) => trace.showlegend);
  assert.deepEqual(shown, [true, false, false, true]);
});

test("what is around a chart's lines is asked for too", () => {
  assert.deepEqual(neededBy(["reward"]), ["reward", "reward_std"]);
  assert.deepEqual(neededBy(["rewards/a/mean"]), ["rewards/a/mean", "reward", "reward_std"].slice(0, 2));
  assert.deepEqual(neededBy(["heldout/success"]), ["heldout/success", "heldout/success_low", "heldout/success_high"]);
  const state = emptyState();
  for (const name of ["reward", "reward_std", "kl"]) state.names.set(name, 1);
  assert.deepEqual(missingCurves(state, ["reward"], []), ["reward", "reward_std"]);
});

test("a figure of the parts of a mix is one chart with a line of each part", () => {
  const state = emptyState();
  const names = ["parts/count/success", "parts/my shop/success", "parts/count/heldout_success", "parts/count/share"];
  for (const name of names) state.names.set(name, 1);
  assert.deepEqual(missingCurves(state, ["parts/success", "parts/heldout_success"], []), names.slice(0, 3));
  for (const name of names) state.curves.set(name, curve(0.4, 0.6));
  const specs = specsOf(state, ["parts/success", "parts/heldout_success", "parts/reward"], []);
  assert.deepEqual(
    specs.map((spec) => spec.names),
    [names.slice(0, 2), names.slice(2, 3)],
  );
});

test("the chart that answers has the reward behind it on its own scale, and an evaluation its interval and n", () => {
  const success = { key: "success", title: "Success", names: ["rollouts/task_success", "heldout/success"], removable: false }; // prettier-ignore
  const lead = all({ isLead: (/** @type {any} */ spec) => spec === success });
  lead.options.behind = "reward";
  lead.state.curves.set("rollouts/task_success", curve(0.2, 0.4));
  lead.state.curves.set("heldout/success", curve(0.3, 0.5));
  lead.state.curves.set("heldout/success_low", curve(0.1, 0.45));
  lead.state.curves.set("heldout/success_high", curve(0.4, 0.9));
  lead.state.run = { health: { held_out: { tasks: 40 } } };
  const lines = readLines(success, lead);
  assert.deepEqual(
    lines.map((line) => [line.name, line.label, line.at]),
    [
      ["rollouts/task_success", "rollouts/task_success", 0],
      ["heldout/success", "held_out_tasks", 1],
      ["reward", "behind", GHOST],
    ],
  );
  const { traces, values, behind } = tracesOf(success, lead, lines, (name) => name);
  assert.deepEqual([traces[0].yaxis, traces[0].opacity, traces[0].y], ["y3", 0.5, [0.4, 0.6]]);
  assert.deepEqual(behind, [0.4, 0.6]);
  assert.deepEqual([Math.max(...(/** @type {number[]} */ (values))), Math.min(...(/** @type {number[]} */ (values)))], [0.9, 0.1]); // prettier-ignore
  assert.deepEqual(endsAt(lines[1], 2, lead), [0.45, 0.9]);
  assert.equal(endsAt(lines[0], 2, lead), null);
  for (const over of [{ view: { ...lead.view, behind: false } }, { sources: [lead.sources[0], { ...lead.sources[0], number: 1 }] }]) // prettier-ignore
    assert.ok(readLines(success, { ...lead, ...over }).every((line) => line.at !== GHOST));
});

test("with a line behind it, a single line has its name", () => {
  const success = { key: "success", title: "Success", names: ["rollouts/task_success"], removable: false };
  const lead = all({ isLead: () => true });
  lead.options.behind = "reward";
  assert.deepEqual(
    readLines(success, lead).map((line) => line.label),
    ["rollouts/task_success", "behind"],
  );
  lead.options.behind = "";
  assert.deepEqual(
    readLines(success, lead).map((line) => line.label),
    [""],
  );
});

test("losses of updates and of held-out conversations are one chart", () => {
  const state = emptyState();
  for (const name of ["loss", "heldout/loss"]) state.curves.set(name, curve(1));
  assert.deepEqual(
    specsOf(state, ["losses"], []).map((spec) => spec.names),
    [["loss", "heldout/loss"]],
  );
});
