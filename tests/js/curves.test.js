// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { inOrder, marksFor } from "../../static/js/lib/specs.js";
import { flatRange, smooth, stepSpan } from "../../static/js/lib/series.js";

test("a constant stays one line when it is smoothed, not the rounding of its average", () => {
  const constant = Array.from({ length: 200 }, () => 0.1);
  assert.deepEqual(new Set(smooth(constant, 0.9)), new Set([0.1]));
  const rounded = constant.map((value, at) => value * (1 + (at % 2) * 1e-15));
  assert.deepEqual(flatRange(rounded), [0, 0.2]);
  assert.equal(flatRange([0.1, 0.1001]), null);
  assert.notDeepEqual(smooth([0, 1, 0, 1], 0.9), [0, 1, 0, 1]);
});

test("components come in the order of the spec, so that each has the same colour as in the lab", () => {
  const names = ["rewards/a/mean", "rewards/b/mean", "rewards/extra/mean", "reward"];
  assert.deepEqual(inOrder(names, ["b", "a"]), ["rewards/b/mean", "rewards/a/mean", "rewards/extra/mean"]);
});

test("charts share one axis of steps, although some figures come more rarely", () => {
  assert.deepEqual(stepSpan([[1, 2, 3, 4, 5, 6], [5], []]), [1, 6]);
  assert.deepEqual(stepSpan([[3], [3, 4]]), [2.5, 4.5]);
  assert.equal(stepSpan([[], []]), null);
});

test("an advisory is shown in the charts of its curves, and in the first where no chart has one", () => {
  const spec = (/** @type {string} */ name) => ({ key: name, title: name, names: [name], removable: false });
  const [reward, kl, loss] = [spec("reward"), spec("kl"), spec("loss")];
  const mark = { first: 1, last: 2, open: false, severity: "warn", title: "x", names: ["kl", "loss"] };
  const none = { ...mark, names: ["loop_share"] };
  const shown = [reward, kl, loss].map((one) => marksFor([mark, none], [reward, kl, loss], one));
  assert.deepEqual(shown, [[none], [mark], [mark]]);
  assert.deepEqual(marksFor([], [reward], reward), []);
});
