// @ts-check
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { bars, count, longestStack, moved, outline, shares, stack } from "../../static/js/lib/lab-figures.js";
import { Asker } from "../../static/js/lib/lab-score.js";
import {
  canonical,
  changedNames,
  freshName,
  ownerOf,
  readParam,
  readShape,
  shapeFields,
  sliderRange,
  standing,
  weightSum,
} from "../../static/js/lib/lab-spec.js";
import { isWhole, notesOf, segments } from "../../static/js/lib/lab-text.js";
import { readLabView, scaleMatters, writeLabView } from "../../static/js/lib/lab-view.js";

test("fields are read as the component takes them", () => {
  assert.deepEqual(readParam("number", " 0.5 "), { value: 0.5 });
  assert.deepEqual(readParam("number", ""), { error: "lab.not_number" });
  assert.deepEqual(readParam("number", " ", true), { value: null });
  assert.deepEqual(readParam("number", "x", true), { error: "lab.not_number" });
  assert.deepEqual([readParam("integer", "2.5"), readParam("integer", "9007199254740992")], [{ error: "lab.not_whole" }, { error: "lab.not_whole" }]); // prettier-ignore
  assert.deepEqual([readParam("integer", "2"), readParam("number", "2.5")], [{ value: 2 }, { value: 2.5 }]);
  assert.deepEqual(readParam("lines", " a \n\nb"), { value: ["a", "b"] });
  assert.deepEqual([readParam("boolean", false), readParam("lines", true)], [{ value: false }, { value: true }]);
  assert.deepEqual(readParam("text", " as it is "), { value: " as it is " });
});

test("clip, scale, gate and schedule go into fields and come back", () => {
  const part = {
    name: "a",
    weight: 1,
    clip: [-1, 2],
    gate: { component: "b", above: 0.5 },
    schedule: { kind: "step", begin: 0, end: 9, first: 1, last: 0.5 },
    categories: ["x", "y"],
  };
  const given = { ...shapeFields(part), categories: ["x", "y"] };
  const { shape, errors } = readShape(given);
  assert.deepEqual(errors, {});
  assert.deepEqual(canonical({ ...part, ...shape }), canonical(part));
  assert.deepEqual(readShape({ clip_low: 1 }).errors, { clip_low: "lab.needs_both" });
  assert.deepEqual(readShape({ scale_high: 1 }).errors, { scale_low: "lab.needs_both" });
  assert.deepEqual(readShape({ scale_low: 0, scale_high: 0 }), { shape: { clip: null, scale: [0, 0], gate: null, schedule: null, categories: [] }, errors: {} }); // prettier-ignore
  assert.deepEqual(readShape({ gate_component: "b" }).shape.gate, { component: "b", above: 0 });
  assert.deepEqual(readShape({ schedule_kind: "linear" }).shape.schedule, { kind: "linear", begin: 0, end: 0, first: 0, last: 0 }); // prettier-ignore
  assert.deepEqual(shapeFields({ name: "a", weight: 1, scale: [0, 2] }), { scale_low: 0, scale_high: 2, categories: "" }); // prettier-ignore
});

test("a component is written in one way, without what says nothing", () => {
  const bare = { name: "a", weight: 1, params: {} };
  assert.deepEqual(canonical({ name: "a", function: "a", weight: 1, clip: null, gate: null, schedule: null }), bare);
  const gate = /** @type {any} */ ({ component: "b" });
  const schedule = /** @type {any} */ ({ end: 9, last: 0.5 });
  assert.deepEqual(canonical({ ...bare, function: "f", scale: [0, 1], gate, schedule }), {
    ...bare,
    function: "f",
    scale: [0, 1],
    gate: { component: "b", above: 0 },
    schedule: { kind: "linear", begin: 0, first: 1, end: 9, last: 0.5 },
  });
  assert.deepEqual(Object.keys(canonical({ ...bare, params: { z: 1, b: 2 } }).params ?? {}), ["b", "z"]);
});

test("only real changes count", () => {
  const saved = [
    canonical({ name: "a", weight: 0.3, params: { n: 2 } }),
    canonical({ name: "b", weight: 1, params: {} }),
  ];
  const same = [
    canonical({ name: "a", weight: 0.3, params: { m: 1, n: 2 }, clip: null, categories: [] }, { m: 1, n: 3 }),
    saved[1],
  ];
  assert.deepEqual(changedNames(saved, same), []);
  assert.deepEqual(changedNames(saved, [canonical({ name: "a", weight: 0.4, params: { n: 2 } })]), ["a", "b"]);
  assert.deepEqual([freshName("a", ["a", "a_2"]), freshName("b", ["a"])], ["a_3", "b"]);
  assert.equal(freshName("x".repeat(64), ["x".repeat(64)]).length, 64);
  assert.equal(weightSum([{ name: "a", weight: 0.1 }, { name: "b", weight: 0.2 }]), 0.3); // prettier-ignore
  assert.deepEqual(sliderRange(-3), { low: -10, high: 10, step: 0.1 });
  assert.deepEqual(
    [0, 0.3, 1].map((weight) => sliderRange(weight).high),
    [1, 1, 1],
  );
  assert.deepEqual(sliderRange(0.3), { low: 0, high: 1, step: 0.01 });
  assert.deepEqual([sliderRange(1.1).high, sliderRange(5000).high, sliderRange(-1).low], [10, 100, -1]);
});

test("a spec with a wrong field is not “as saved”, and its weights do not sum to 0", () => {
  const [a, b] = [canonical({ name: "a", weight: 0.3 }), canonical({ name: "b", weight: 0.7 })];
  const saved = [a, b];
  const fields = (/** @type {any[]} */ ...parts) => parts.map((part, at) => ({ name: "ab"[at], part }));
  assert.deepEqual(standing(saved, fields(a, b)), { changed: [], wrong: 0, sum: 1 });
  assert.deepEqual(standing(saved, fields(a, null)), { changed: ["b"], wrong: 1, sum: null });
  assert.deepEqual(standing(saved, fields({ ...a, weight: 0.5 }, null)), { changed: ["a", "b"], wrong: 1, sum: null });
  assert.deepEqual(standing(saved, []), { changed: ["a", "b"], wrong: 0, sum: 0 });
});

test("the spread is chosen only where advantages are divided by it", () => {
  assert.deepEqual([scaleMatters("sum_then_normalize"), scaleMatters("normalize_then_sum")], [true, false]);
});

test("a complaint is shown at the component it is about", () => {
  const names = ["a", "b"];
  assert.equal(ownerOf("components.1.weight", "too large", names), "b");
  assert.equal(ownerOf("a", "any", names), "a");
  assert.equal(ownerOf("components", "The gate of `b` needs `a` as another component.", names), "b");
  assert.equal(ownerOf("against", "`a`: wrong", names), undefined);
  assert.equal(ownerOf("", "No name.", names), undefined);
});

test("spans count code points, may overlap, and never lose text", () => {
  const text = "🎟️ ab cd"; // the ticket is two UTF-16 units and a selector
  const found = segments(text, [{ start: 3, end: 5, name: "x", note: "n" }, { start: 4, end: 8, name: "y", note: "" }]); // prettier-ignore
  assert.equal(found.map((piece) => piece.text).join(""), text);
  assert.deepEqual(found.map((piece) => [piece.text, piece.names]), [["🎟️ ", []], ["a", ["x"]], ["b", ["x", "y"]], [" cd", ["y"]]]); // prettier-ignore
  assert.deepEqual(found[2].notes, ["n"]);
  assert.deepEqual(segments("abc", [{ start: -1, end: 2, name: "x", note: "" }, { start: 2, end: 1, name: "y", note: "" }]).map((piece) => [piece.text, piece.names]), [["abc", []]]); // prettier-ignore
  assert.deepEqual(segments("abc", [{ start: 0, end: 1, name: "x", note: "" }]).map((piece) => piece.names), [["x"], []]); // prettier-ignore
  assert.deepEqual([[0, 0], [0, 1], [1, 0]].map(([start, end]) => isWhole({ start, end })), [true, false, false]); // prettier-ignore
  assert.deepEqual(segments("ab", [{ start: 0, end: 0, name: "x", note: "" }, { start: 1, end: 99, name: "y", note: "" }]).map((piece) => piece.names), [[], ["y"]]); // prettier-ignore
});

test("what holds for several messages is shown once", () => {
  const spans = [{ message: 4, note: "no" }, { message: 2, note: "no" }, { message: 2, note: "no" }, { message: 3, note: "" }]; // prettier-ignore
  assert.deepEqual(notesOf(spans), [{ note: "no", messages: [2, 4] }, { note: "", messages: [3] }]); // prettier-ignore
});

test("figures: changes, bars, and two distributions on one scale", () => {
  assert.equal(moved(0.5, 0.50001), false);
  assert.equal(moved(0.5, 0.6), true);
  assert.equal(moved(undefined, 0.6), false);
  assert.deepEqual([moved(null, 0.6), moved(0.6, null), moved(0.6, undefined), moved(null, null)], [true, true, true, false]); // prettier-ignore
  assert.deepEqual([moved(1, 1.0005), moved(1, 1.0006), moved(1000, 1000.4)], [false, true, false]);
  const histogram = { edges: [0, 1, 2], counts: [1, 3] };
  assert.deepEqual(shares(histogram).y, [0.25, 0.75]);
  assert.deepEqual(shares(histogram, 2).y, [0.5, 1.5]);
  assert.deepEqual(outline(histogram, 1), { x: [0, 0, 1, 1, 2, 2], y: [0, 0.25, 0.25, 0.75, 0.75, 0] });
  assert.deepEqual(shares({ edges: [0, 1], counts: [0] }).y, [0]);
  assert.deepEqual(shares({ edges: [1, 1], counts: [4] }, 2).y, [1]); // a bin without a width
  assert.deepEqual(bars(histogram, 10, 6).map((bar) => bar.height), [2, 6]); // prettier-ignore
  assert.deepEqual(bars({ edges: [0, 1, 2], counts: [0, 900] }, 10, 6), [{ x: 0, y: 6, width: 4.5, height: 0 }, { x: 5, y: 0, width: 4.5, height: 6 }]); // prettier-ignore
  assert.equal(bars({ edges: [0, 1, 2], counts: [1, 900] }, 10, 6)[0].height, 1); // one is seen
  assert.deepEqual(bars({ edges: [3, 3], counts: [9] }, 10, 6), [{ x: 3, y: 0, width: 4, height: 6 }]);
  assert.deepEqual(bars({ edges: [3, 3, 3], counts: [1, 1] }, 10, 6).map((bar) => bar.x), [0, 0]); // prettier-ignore
  /** @type {{rollouts: {terms: Record<string, number>}[]}[]} */
  const groups = [{ rollouts: [{ terms: { a: 0.5, b: -0.5 } }, { terms: {} }, /** @type {any} */ ({ terms: null })] }];
  assert.deepEqual([longestStack(groups), longestStack([])], [1, 0]);
  assert.deepEqual(stack({ a: 0, b: 1 }, ["a", "b", "c"], 2), [{ name: "b", at: 1, share: 0.5, negative: false }]);
  assert.deepEqual(stack({ a: 1 }, ["a"], 0), []);
  assert.deepEqual(stack({ a: 0.5, b: -0.5 }, ["b", "a"], 1), [{ name: "b", at: 0, share: 0.5, negative: true }, { name: "a", at: 1, share: 0.5, negative: false }]); // prettier-ignore
  assert.equal(count(10000), "10,000");
});

test("the view survives its way through the address, and nonsense does not", () => {
  const id = "206d24eb-2c3a-4e14-b67b-d2c3ee81e6e2";
  const search = `?spec=start&against=run&scale=batch&step=7&only=phantom&offset=20&rollout=${id}&component=a`;
  const view = readLabView(search, "start", ["run", "start"]);
  assert.equal(
    writeLabView(view),
    `?spec=start&against=run&scale=batch&only=phantom&step=7&offset=20&rollout=${id}&component=a`,
  );
  const fresh = readLabView("?against=start&scale=bad&step=-1&rollout=x&offset=NaN", "start", ["run", "start"]);
  assert.equal(writeLabView(fresh), "?spec=start");
});

test("only the newest question is answered, and it waits until the hand rests", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  /** @type {any[]} */
  const sent = [];
  /** @type {any[]} */
  const answers = [];
  const send = (/** @type {any} */ body, /** @type {AbortSignal} */ signal) =>
    new Promise((resolve) => sent.push({ body, signal, resolve: () => resolve({ of: body.n }) }));
  /** @type {number[]} */
  const asked = [];
  const asking = (/** @type {any} */ body) => asked.push(body.n);
  const asker = new Asker({ send, asking, answered: (reply) => answers.push(reply.of), failed: assert.fail });
  asker.ask(() => ({ n: 1 }));
  mock.timers.tick(60);
  asker.ask(() => ({ n: 2 }));
  mock.timers.tick(120);
  asker.ask(() => ({ n: 3 }));
  mock.timers.tick(120);
  assert.deepEqual(sent.map((item) => [item.body.n, item.signal.aborted]), [[2, true], [3, false]]); // prettier-ignore
  assert.deepEqual(asked, [2, 3]);
  sent[1].resolve();
  sent[0].resolve(); // the older one comes late
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(answers, [3]);
  asker.ask(() => null, 10); // nothing to ask, but what was asked before counts no more
  mock.timers.tick(10);
  assert.deepEqual([sent.length, sent[1].signal.aborted], [2, true]);
  mock.timers.reset();
});

test("a question that fails says so, unless a newer one was asked", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  /** @type {any[]} */
  const failed = [];
  const asker = new Asker({ send: async () => Promise.reject("no"), asking: () => {}, answered: assert.fail, failed: (problem) => failed.push(problem), restMs: 50 }); // prettier-ignore
  asker.ask(() => ({}));
  mock.timers.tick(49);
  asker.ask(() => ({}));
  mock.timers.tick(50);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(failed, ["no"]);
  asker.ask(() => ({}));
  mock.timers.tick(50);
  asker.ask(() => ({}));
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(failed, ["no"]);
  mock.timers.reset();
});
