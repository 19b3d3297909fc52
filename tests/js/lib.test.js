// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  advantageStep,
  ago,
  bytes,
  coarse,
  duration,
  figure,
  percent,
  plain,
  pretty,
  scaleStep,
  score,
  visible,
} from "../../static/js/lib/format.js";
import { modelTurns, rewardSpan } from "../../static/js/lib/rollouts.js";
import { baselineShapes, markShapes, stageShapes } from "../../static/js/lib/shapes.js";
import { decimate, flatRange, last, positive, smooth, sparkLines, valueAt } from "../../static/js/lib/series.js";
import { wallClock } from "../../static/js/lib/timechart.js";

const t = (/** @type {string} */ key, /** @type {Record<string, any>} */ values = {}) =>
  `${key}(${Object.values(values).join(",")})`;

test("figures say what they know and no more", () => {
  assert.equal(figure(null), "–");
  assert.equal(figure(NaN), "NaN");
  assert.deepEqual([figure(-Infinity), figure(Infinity), figure(undefined)], ["−∞", "∞", "–"]);
  assert.deepEqual(
    [figure(0), figure(-0.001), figure(1e-3), figure(0.0009)],
    ["0.00", "−0.00100", "0.00100", "9.00e-4"],
  );
  assert.deepEqual([figure(99_999), figure(1e5), figure(1234.5)], ["99999", "1.00e5", "1235"]);
  assert.equal(figure(0.61234), "0.612");
  assert.equal(figure(-12.345), "−12.3");
  assert.equal(figure(1e-5), "1.00e-5");
  assert.equal(score(-0.001), "0.00");
  assert.equal(score(-1.239), "−1.24");
  assert.deepEqual([score(null), score(Infinity), score(999.5), score(-1000)], ["–", "∞", "999.50", "−1000"]);
  assert.equal(percent(0.4812), "48.1%");
  assert.deepEqual([percent(undefined), percent(null), percent(NaN), percent(0)], ["–", "–", "–", "0%"]);
  assert.deepEqual([1023, 1024, 1536, 2 ** 30, 3 * 2 ** 40].map(bytes), [
    "1023 B",
    "1.0 KB",
    "1.5 KB",
    "1.0 GB",
    "3.0 TB",
  ]);
});

test("durations use the two largest units", () => {
  assert.equal(duration(1.84, t), "seconds(1.8)");
  assert.equal(duration(0.0812, t), "seconds(0.081)");
  assert.equal(duration(125, t), "minutes_seconds(2,5)");
  assert.equal(duration(3700, t), "hours_minutes(1,1)");
  for (const none of [-1, null, undefined, NaN]) assert.equal(duration(none, t), "–");
  assert.deepEqual(
    [duration(0, t), duration(9.94, t), duration(9.95, t)],
    ["seconds(0)", "seconds(9.9)", "seconds(10)"],
  );
  assert.deepEqual([duration(59.4, t), duration(59.5, t)], ["seconds(59)", "minutes_seconds(1,0)"]);
  assert.deepEqual([duration(599, t), duration(600, t)], ["minutes_seconds(9,59)", "minutes(10)"]);
  assert.deepEqual([duration(3599, t), duration(3600, t)], ["minutes(59)", "hours_minutes(1,0)"]);
  assert.deepEqual([duration(86_399, t), duration(86_400, t)], ["hours_minutes(23,59)", "days_hours(1,0)"]);
  assert.equal(duration(180_000, t), "days_hours(2,2)");
  assert.equal(coarse(59, t), "seconds(59)");
  assert.deepEqual(
    [coarse(60, t), coarse(432, t), coarse(3600, t)],
    ["minutes(1)", "minutes(7)", "hours_minutes(1,0)"],
  );
  assert.equal(coarse(3700, t), "hours_minutes(1,1)");
  assert.deepEqual([ago(44.9, t), ago(45, t), ago(89, t)], ["just_now()", "ago(minutes(1))", "ago(minutes(1))"]);
  assert.deepEqual([ago(3569, t), ago(3570, t), ago(3600, t)], ["ago(minutes(59))", "ago(hours_minutes(1,0))", "ago(hours_minutes(1,0))"]); // prettier-ignore
  assert.equal(ago(130, t), "ago(minutes(2))");
});

test("hidden characters become marks, everything else stays as it is", () => {
  assert.deepEqual(visible("a\u202eb"), [
    { text: "a", hidden: false },
    { text: "U+202E", hidden: true },
    { text: "b", hidden: false },
  ]);
  assert.equal(plain("x\u200b\ufeff\u0007y\n\tz"), "x[U+200B][U+FEFF][U+0007]y\n\tz");
  assert.deepEqual(visible("\u202e\u202e"), Array(2).fill({ text: "U+202E", hidden: true }));
  assert.equal(plain("\u{e0041}"), "[U+E0041]");
  assert.equal(plain("\ud800"), "[U+D800]");
  assert.equal(plain("<b>中文 😀</b>"), "<b>中文 😀</b>");
});

test("arguments are pretty when they are JSON", () => {
  assert.equal(pretty({ a: 1 }), '{\n  "a": 1\n}');
  assert.equal(pretty('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(pretty("not json"), "not json");
  assert.deepEqual([pretty(null), pretty(undefined)], ["", ""]);
});

test("thinning keeps spikes, gaps and both ends", () => {
  const x = Array.from({ length: 10_000 }, (_, at) => at + 1);
  const y = /** @type {(number | null)[]} */ (x.map(() => 0));
  y[5000] = 9;
  y[7000] = null;
  y[9999] = 1;
  const thin = decimate(x, y, 400);
  assert.ok(thin.x.length <= 620);
  assert.ok(thin.y.includes(9) && thin.y.includes(null) && thin.y.includes(1));
  assert.equal(thin.x[0], 1);
  assert.deepEqual(
    thin.x,
    [...thin.x].sort((a, b) => a - b),
  );
  assert.equal(decimate([1, 2], [1, 2], 400).x.length, 2);
  const five = [0, 1, 2, 3, 4];
  assert.deepEqual(decimate(five, [3, 1, 2, 5, 4], 4), { x: [0, 1, 2, 3], y: [3, 1, 2, 5] });
  assert.deepEqual(decimate(five, [3, 1, 2, 5, 4], 5).x, five);
  assert.deepEqual(decimate(five, [1, 1, 1, 1, 1], 3).x, five); // too few to thin
  assert.deepEqual(decimate(five, [1, 2, null, 2, 3], 4), { x: five, y: [1, 2, null, 2, 3] });
});

test("smoothing starts without bias and leaves gaps", () => {
  const out = smooth([1, 1, null, 1], 0.9);
  assert.ok(Math.abs(/** @type {number} */ (out[0]) - 1) < 1e-9);
  assert.equal(out[2], null);
  assert.deepEqual(smooth([1, 2], 0), [1, 2]);
  assert.deepEqual(positive([0, -1, 2, null]), [null, null, 2, null]);
  assert.deepEqual(smooth([1, NaN, 3], 0.5), [1, null, 7 / 3]);
  assert.deepEqual(smooth([0, 1], 0.5, [1, 2]), [0, 6 / 7]); // the second is the mean of two
  assert.deepEqual([last([1, null]), last([1, NaN]), last([null])], [1, 1, null]);
  assert.equal(valueAt([1, 3], [5, 6], 3), 6);
  assert.equal(valueAt([1, 3], [5, 6], 2), undefined);
  assert.deepEqual([valueAt([1, 3], [5, 6], 2, 1), valueAt([1, 4], [5, 6], 3, 1), valueAt([1, 4], [5, 6], 6, 1)], [5, 6, undefined]); // prettier-ignore
  assert.deepEqual([valueAt([2, 4], [5, 6], 1, 1), valueAt([2, 4], [5, 6], 1), valueAt([], [], 1, 9)], [5, undefined, undefined]); // prettier-ignore
  assert.deepEqual(sparkLines([1, 2, null, 3, 4], 10, 10), ["0.0,8.0 2.5,6.0", "7.5,4.0 10.0,2.0"]);
  assert.deepEqual(sparkLines([9, 1, 2, 3], 10, 10, 3), ["0.0,8.0 5.0,5.0 10.0,2.0"]); // the last three
  assert.deepEqual(sparkLines([2, 2], 10, 10), ["0.0,8.0 10.0,8.0"]);
  assert.deepEqual([sparkLines([1], 10, 10), sparkLines([1, null], 10, 10), sparkLines([1, Infinity], 10, 10)], [[], [], []]); // prettier-ignore
});

test("scales stay inside their steps", () => {
  assert.equal(scaleStep(-5, 0, 1), 0);
  assert.equal(scaleStep(1, 0, 1), 5);
  assert.deepEqual([0, 1, 2].map((value) => scaleStep(value, 1, 1)), [0, 3, 5]); // prettier-ignore
  assert.deepEqual([scaleStep(0.5, 0, 1), scaleStep(0.49, 0, 1), scaleStep(0.5, 0, 1, 4)], [3, 2, 2]);
  assert.deepEqual([0, 0.049, 0.05, 0.3, 0.75, 0.76].map(advantageStep), [0, 0, 1, 1, 1, 2]);
  assert.deepEqual([-0.05, -1.2, null, NaN, Infinity].map(advantageStep), [-1, -2, 0, 0, 0]);
});

test("the span of rewards, and the turns of the model", () => {
  const rows = [
    { group: 0, status: "truncated", outcome: "failed", reward: 2 },
    { group: 0, status: "excluded", outcome: "excluded", reward: null },
    { group: 1, status: "running", outcome: "in_flight", reward: null },
  ];
  assert.deepEqual(rewardSpan(rows), { low: 0, high: 2 });
  assert.deepEqual(rewardSpan([{ reward: -3 }, { reward: NaN }, { reward: Infinity }, { reward: 0.5 }]), { low: -3, high: 1 }); // prettier-ignore
  const turns = [
    { messages: [{ role: "user" }] },
    { messages: [{ role: "assistant", tool_calls: [{ name: "go\u200b" }] }] },
    { messages: [{ role: "user", content: "" }] },
  ];
  assert.equal(modelTurns(turns), 1);
});

test("baselines are dashed lines, and a logarithmic axis has none at zero", () => {
  const lines = [
    { name: "rules", y: 0.1 },
    { name: "nothing", y: 0 },
  ];
  const plain = baselineShapes(lines, "#000", false);
  assert.deepEqual(
    plain.shapes.map((shape) => [shape.y0, shape.line.dash]),
    [
      [0.1, "dash"],
      [0, "dash"],
    ],
  );
  const log = baselineShapes(lines, "#000", true);
  assert.deepEqual(
    log.shapes.map((shape) => shape.y0),
    [0.1],
  );
  assert.deepEqual(
    log.annotations.map((note) => [note.text, note.y]),
    [["rules", -1]],
  );
});

test("stages are bands of the steps that are shown, every other one shaded", () => {
  const stages = [
    { name: "format", began: 0 },
    { name: "a <b>", began: 10 },
    { name: "all", began: 25 },
  ];
  const whole = stageShapes(stages, [1, 40], "#000", 400);
  assert.deepEqual(
    whole.annotations.map((note) => [note.text, note.x]),
    [
      ["format", 1],
      ["a &lt;b>", 10.5],
      ["all", 25.5],
    ],
  );
  assert.deepEqual(
    whole.shapes.map((shape) => [shape.x0, shape.x1]),
    [[10.5, 25.5]],
  );
  const zoomed = stageShapes(stages, [12, 20], "#000", 400);
  assert.deepEqual(
    zoomed.annotations.map((note) => [note.text, note.x]),
    [["a &lt;b>", 12]],
  );
  assert.deepEqual(
    zoomed.shapes.map((shape) => [shape.x0, shape.x1]),
    [[12, 20]],
  );
  assert.deepEqual(stageShapes([], [1, 40], "#000", 400), { shapes: [], annotations: [] });
  assert.deepEqual(stageShapes(stages, null, "#000", 400).shapes, []);
  const long = [
    { name: "a name that has no room", began: 0 },
    { name: "所有四个部分和长回答", began: 10 },
    { name: "narrow", began: 39 },
  ];
  assert.deepEqual(
    stageShapes(long, [0, 40], "#000", 240).annotations.map((note) => note.text),
    ["a name th…", "所有四个部分和长回答", ""],
  );
});

test("a moment is drawn at the reader's own time of day", () => {
  const iso = "2026-11-21T18:30:05.123456+00:00";
  const at = new Date(iso);
  assert.equal(
    wallClock(iso).slice(11, 16),
    `${String(at.getHours()).padStart(2, "0")}:${String(at.getMinutes()).padStart(2, "0")}`,
  );
});

test("the axis of a constant begins at zero, so that a small one is not drawn as zero", () => {
  assert.deepEqual(flatRange([1e-6, null, 1e-6]), [0, 2e-6]);
  assert.deepEqual(flatRange([-3, -3]), [-6, 0]);
  assert.deepEqual(flatRange([0, 0, 0]), [-0.05, 1]);
  assert.equal(flatRange([1e-6, 2e-6]), null);
  assert.equal(flatRange([null]), null);
  assert.equal(flatRange([]), null);
});

const advised = { first: 10, last: 14, open: false, severity: "warn", title: "KL spike", names: ["kl"] };

test("an advisory is a band from its first step to its last, or to the end while it is open", () => {
  const tone = (/** @type {string} */ severity) => `ink of ${severity}`;
  const { shapes, annotations } = markShapes([advised, { ...advised, open: true, first: 30 }], [0, 40], tone, 400);
  assert.deepEqual(
    shapes.map((shape) => [shape.type, shape.x0, shape.x1]),
    [
      ["rect", 10, 14],
      ["line", 10, 10],
      ["rect", 30, 40],
      ["line", 30, 30],
    ],
  );
  assert.equal(shapes[0].fillcolor, "ink of warn");
  assert.deepEqual(
    annotations.map((note) => [note.text, note.x, note.xanchor, note.yshift]),
    [
      ["KL spike", 10, "left", -0],
      ["KL spike", 30, "right", -12],
    ],
  );
});

test("what of an advisory lies outside the zoom is left out, and its title reads as it is", () => {
  const tone = () => "#000";
  assert.deepEqual(markShapes([advised], [15, 40], tone, 400), { shapes: [], annotations: [] });
  assert.deepEqual(markShapes([advised], null, tone, 400), { shapes: [], annotations: [] });
  const within = markShapes([{ ...advised, title: "a<b" }], [12, 40], tone, 400);
  assert.deepEqual([within.shapes[0].x0, within.shapes[0].x1, within.shapes[1].line?.width], [12, 14, 0]);
  assert.equal(within.annotations[0].text, "a&lt;b");
  assert.equal(markShapes([advised], [0, 40], tone, 400, 1).annotations[0].yshift, -12, "below the names of stages");
  const many = markShapes([advised, advised, advised, advised], [0, 40], tone, 400);
  assert.deepEqual([many.shapes.length, many.annotations.length], [8, 3], "names of the first three");
});
