// @ts-check
import assert from "node:assert/strict";
import { mock, test } from "node:test";

const page = /** @type {any} */ (globalThis);
const watching = { observe() {}, unobserve() {} };
page.IntersectionObserver = page.ResizeObserver = class {
  observe = watching.observe;
};
page.document = { addEventListener() {} };
page.matchMedia = () => ({ addEventListener() {} });
page.requestAnimationFrame = () => assert.fail("no code waits for a frame");
const { Curves } = await import("../../static/js/lib/curves.js");

/**
 * Curves whose charts take so long to draw each.
 * @param {number} count
 * @param {number} takesMs
 */
function charts(count, takesMs) {
  let now = 0;
  mock.method(performance, "now", () => now);
  /** @type {(() => void)[]} */
  const turns = [];
  mock.method(globalThis, "setTimeout", (/** @type {() => void} */ work) => turns.push(work));
  /** @type {number[]} */
  const drawn = [];
  const curves = new Curves(page.box, page.fold, /** @type {any} */ ({}));
  for (let at = 0; at < count; at += 1) {
    const chart = {
      spec: { key: `chart ${at}` },
      node: { at },
      visible: false,
      dirty: true,
      read() {},
      draw() {
        chart.dirty = false;
        now += takesMs;
        drawn.push(at);
      },
    };
    curves.charts.set(chart.spec.key, /** @type {any} */ (chart));
  }
  const seen = () => {
    const entries = Array.from(curves.charts.values(), (chart) => ({ target: chart.node, isIntersecting: true }));
    curves.onSeen(/** @type {any} */ (entries));
  };
  return { drawn, seen, turn: () => turns.shift()?.() };
}

test("charts that come into view are drawn at once, those of 30 ms in one turn, the others in the next ones", () => {
  const { drawn, seen, turn } = charts(7, 12);
  seen();
  assert.deepEqual(drawn, [0, 1, 2]);
  turn();
  assert.deepEqual(drawn, [0, 1, 2, 3, 4, 5]);
  turn();
  assert.deepEqual(drawn, [0, 1, 2, 3, 4, 5, 6]);
  mock.restoreAll();
});

test("a chart that takes long has a turn of its own, and what is drawn is not drawn again", () => {
  const { drawn, seen, turn } = charts(2, 100);
  seen();
  assert.deepEqual(drawn, [0]);
  turn();
  seen();
  assert.deepEqual(drawn, [0, 1]);
  mock.restoreAll();
});

test("the chart that answers is the first of the method's that there is, else the first of all", () => {
  const options = { leads: ["success", "reward"] };
  const curves = new Curves(page.box, page.fold, /** @type {any} */ (options));
  const lead = (/** @type {string[]} */ keys) => {
    curves.specs = keys.map((key) => ({ key, title: key, names: [key], removable: false }));
    return curves.specs.filter((spec) => curves.isLead(spec)).map((spec) => spec.key);
  };
  assert.deepEqual(lead(["kl", "reward", "success"]), ["success"]);
  assert.deepEqual(lead(["kl", "reward"]), ["reward"]);
  assert.deepEqual(lead(["kl", "loss"]), ["kl"]);
  assert.deepEqual(lead([]), []);
  const pinned = new Curves(page.box, page.fold, /** @type {any} */ ({}));
  pinned.specs = curves.specs = [{ key: "success", title: "", names: ["success"], removable: false }];
  assert.equal(pinned.isLead(pinned.specs[0]), false);
});
