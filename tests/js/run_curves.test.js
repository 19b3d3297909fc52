// @ts-check
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { emptyState } from "../../static/js/lib/state.js";
import { browser, settled } from "./browser.js";
import { page, parsed, send } from "./page.js";

const MARKUP = `<div id="chart-lead"></div><div id="charts"></div><details id="charts-still"><summary></summary><div class="charts"></div></details>
<button data-smooth="0"></button><button data-smooth="0.9"></button><button id="curve-log"></button><p id="no-points" hidden></p>
<details id="metric-menu"><input id="metric-find"><div id="metric-list"></div></details><p id="run-advisories" data-marks="[]"></p>
<button data-axis="step"></button><button data-axis="time"></button><button data-axis="tokens"></button>
<details id="overlay-menu"><summary></summary><input id="others-find"><div id="others-list"></div></details><ul id="others-legend"></ul><p id="toasts"></p>`; // prettier-ignore
const PAGE = { id: "own", name: "mine", api: "/api", project: "joust", runs: "/runs/", training: ["grpo"], terminal: ["succeeded"], curves_at_once: 2, csv: "/csv", can_pin: true, leads: ["reward"], shares: [], behind: "", stack: null }; // prettier-ignore
const TEXTS = { no_match: "none", no_run: "no run", offline: "offline", run_unknown: "unknown", rewards_differ: "differs", axis_unknown: "not known", pinned: "pinned" }; // prettier-ignore
const AXES = { time: { steps: [1, 2], at: [1, 2] } };

/** @type {any} */
let shown;
/** @type {any} */
let here;
/** @type {any} */
let panel;
/** @type {any} */
let state;
/** @type {any} */
let view;
/** @type {any[]} the frames that were sent */
let sent;
/** @type {boolean} whether there is a line to send them on */
let line;
/** @type {(id: string) => any} */
const at = (id) => shown.getElementById(id);
const texts = (/** @type {any} */ box) => box.children.map((/** @type {any} */ node) => node.textContent);

beforeEach(async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  here = browser();
  shown = page(MARKUP, TEXTS);
  Object.defineProperty(globalThis.Element.prototype, "clientWidth", { value: 256, configurable: true });
  const { CurvePanel } = await import("../../static/js/pages/run_curves.js");
  [sent, line] = [[], true];
  state = emptyState();
  Object.assign(state, { run: { step: 2 } });
  for (const name of ["reward", "kl", "loss", "b", "a"]) state.names.set(name, 0.5);
  curve("reward");
  view = { smooth: 0, log: false, x: "step", stack: true, behind: true, still: false, others: [], add: [] };
  const options = { page: PAGE, state, view, curves: ["reward", "kl", "loss"], own: [], plotly: "", ended: () => false, baselines: {}, components: {}, onView() {}, onStep() {} }; // prettier-ignore
  panel = new CurvePanel({ ...options, send: (/** @type {any} */ frame) => line && sent.push(frame.names) > 0 });
});
afterEach(() => mock.timers.reset());
const curve = (/** @type {string} */ name, of = state) => of.curves.set(name, { steps: [1, 2], values: [0, 1], attempts: [1, 1] }); // prettier-ignore
const axes = (more = {}) => ({ name: "other", axes: AXES, same_rewards: true, state: "succeeded", ...more });
/** What the server answers of another run. @param {string} id @param {any} of */
const answer = (id, of) => {
  here.answers[`/runs/${id}/axes`] = of;
  here.answers[`/runs/${id}/metrics`] = { curves: { reward: { steps: [1, 2], values: [0, 1], attempts: 1 } } };
};
const legend = () => at("others-legend").children.map((/** @type {any} */ item) => item.children.slice(1, 3).map((/** @type {any} */ node) => node.textContent).filter(Boolean).join(" ")); // prettier-ignore
const asked = (/** @type {string} */ end) => here.asked.filter((/** @type {any[]} */ [address]) => address.split("?")[0].endsWith(end)).length; // prettier-ignore
/** @param {any[]} ids */
async function draw(...ids) {
  view.others = ids.map((id, place) => ({ id, number: place + 1 }));
  panel.draw();
  await settled();
}

test("curves that the page lacks are asked for once, a few at a time, and again on another line", () => {
  line = false;
  panel.draw();
  line = true;
  panel.draw();
  panel.draw();
  assert.deepEqual(sent, [["kl", "loss"]]);
  view.add = ["a", "b"];
  panel.draw();
  assert.deepEqual(sent.slice(1), [["b", "a"]]);
  panel.forget();
  panel.draw();
  assert.deepEqual(sent.slice(2), [["kl", "loss"], ["b", "a"]]); // prettier-ignore
  panel.ask(["kl"], [1, 2]);
  panel.ask(["kl"], [1, 3]);
  panel.ask(["kl"], [1, 2]);
  assert.deepEqual(sent.slice(4), [["kl"], ["kl"]]);
});

test("the bar shows how curves are drawn, and what there is to draw", () => {
  const pressed = () => shown.querySelectorAll('[aria-pressed="true"]').map((/** @type {any} */ node) => node.dataset.smooth ?? node.dataset.axis ?? node.id); // prettier-ignore
  panel.draw();
  assert.deepEqual([pressed(), at("no-points").hidden, at("charts").hidden], [["0", "step"], true, false]);
  shown.querySelectorAll("[data-smooth]")[1].click();
  at("curve-log").click();
  assert.deepEqual([view.smooth, view.log, pressed()], [0.9, true, ["0.9", "curve-log", "step"]]);
  state.names.clear();
  panel.draw();
  assert.deepEqual([at("no-points").hidden, at("charts").hidden, at("chart-lead").hidden], [false, true, true]);
  state.run = null;
  panel.draw();
  assert.deepEqual([at("no-points").hidden, at("charts").hidden], [true, false]);
});

test("a metric is found by a part of its name, added, and taken away again", () => {
  const list = (/** @type {string} */ text) => {
    at("metric-find").value = text;
    send(at("metric-find"), "input");
    return texts(at("metric-list"));
  };
  send(at("metric-menu"), "toggle");
  assert.deepEqual(texts(at("metric-list")), []);
  at("metric-menu").open = true;
  send(at("metric-menu"), "toggle");
  assert.deepEqual([texts(at("metric-list")), shown.activeElement.id], [["a0.500", "b0.500", "kl0.500", "loss0.500"], "metric-find"]); // prettier-ignore
  assert.deepEqual([list(" L"), list("reward"), list("x")], [["kl0.500", "loss0.500"], ["none"], ["none"]]);
  list("a");
  at("metric-list").firstElementChild.click();
  assert.deepEqual([view.add, at("metric-list").firstElementChild.getAttribute("aria-pressed")], [["a"], "true"]);
  at("metric-list").firstElementChild.click();
  assert.deepEqual([view.add, at("metric-list").firstElementChild.getAttribute("aria-pressed")], [[], "false"]);
  for (let n = 0; n < 200; n += 1) state.names.set(`m${n}`, 0);
  assert.deepEqual([list("").length, list("m").length, list("m199").length], [200, 200, 1]);
});

test("a chart is pinned as it is shown", async () => {
  here.answers["/pins"] = {};
  await panel.pin({ key: "reward", names: ["reward"] });
  assert.deepEqual(here.asked.at(-1), ["/api/runs/own/pins", { key: "reward", names: ["reward"], smooth: 0, log: false, x: "step", stack: true }]); // prettier-ignore
  here.answers["/pins"] = [422, { message: "Too many." }];
  await panel.pin({ key: "reward", names: ["reward"] });
  assert.deepEqual(texts(at("toasts")), ["pinned", "Too many."]);
});

test("up to seven other runs are drawn, each in a colour that stays its own", async () => {
  const ids = ["r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"];
  here.answers["/projects/joust/runs"] = { items: [...ids.map((id) => ({ id, name: id, kind: "grpo", state: "succeeded" })), { id: "own", name: "mine", kind: "grpo" }, { id: "e", name: "e", kind: "evaluate" }] }; // prettier-ignore
  for (const id of ids) answer(id, axes({ name: id }));
  const menu = async () => {
    at("overlay-menu").open = true;
    send(at("overlay-menu"), "toggle");
    await settled();
    return at("others-list").querySelectorAll(".truncate").map((/** @type {any} */ node) => node.textContent); // prettier-ignore
  };
  const full = () => at("overlay-menu").querySelector("summary").getAttribute("aria-disabled");
  assert.deepEqual(await menu(), ids);
  for (const id of ids.slice(0, 6)) panel.others.choose(id);
  await settled();
  assert.deepEqual([full(), at("overlay-menu").open, await menu()], [null, false, ["r7", "r8"]]);
  at("others-list").firstElementChild.click();
  await settled();
  assert.deepEqual([full(), view.others.length, legend()], ["true", 7, ["mine", ...ids.slice(0, 7)]]);
  panel.others.choose("r8");
  assert.equal(view.others.length, 7);
  at("others-legend").children[3].querySelector("button").click();
  panel.others.choose("r8");
  await settled();
  assert.deepEqual([view.others.at(-1), legend().at(-1)], [{ id: "r8", number: 3 }, "r8"]);
  here.answers["/projects/joust/runs"] = { items: [] };
  await menu();
  assert.deepEqual(texts(at("others-list")), ["no run"]);
  here.answers["/projects/joust/runs"] = [500, {}];
  await menu();
  assert.deepEqual(texts(at("others-list")), ["offline"]);
});

test("a run that is refused stays out, and one that is away is asked for again while the page is looked at", async () => {
  for (const [id, status] of /** @type {any[]} */ ([["a", 403], ["b", 404], ["c", 422], ["d", 500]])) answer(id, [status, {}]); // prettier-ignore
  await draw("a", "b", "c", "d");
  assert.deepEqual(legend(), ["mine", "– unknown", "– unknown", "– unknown", "– offline"]);
  answer("d", axes({ name: "back", same_rewards: false }));
  shown.visibilityState = "hidden";
  const tick = async () => {
    for (const work of here.ticks) work();
    await settled();
    await settled();
    return ["a", "b", "c", "d"].map((id) => asked(`/${id}/axes`));
  };
  assert.deepEqual(await tick(), [1, 1, 1, 1]);
  shown.visibilityState = "visible";
  assert.deepEqual([await tick(), legend().at(-1)], [[1, 1, 1, 2], "back differs"]);
  assert.deepEqual(await tick(), [1, 1, 1, 2]); // it has ended, and all of its curves are here
  await draw();
  assert.deepEqual([at("others-legend").hidden, legend()], [true, ["mine"]]);
});

test("a run at work is asked again for its axes and its curves", async () => {
  answer("a", axes({ state: "running" }));
  await draw("a");
  assert.deepEqual([asked("/a/axes"), asked("/a/metrics")], [1, 1]);
  here.answers["/runs/a/axes"] = axes();
  for (const _twice of [1, 2]) {
    for (const work of here.ticks) work();
    await settled();
    await settled();
    assert.deepEqual([asked("/a/axes"), asked("/a/metrics")], [2, 2]); // and not once it has ended
  }
});

test("another axis is used once it is known, asked for again as the run continues, and left where it is none", async () => {
  here.answers["/own/axes"] = { axes: AXES };
  const axis = (/** @type {string} */ name) => shown.querySelector(`[data-axis="${name}"]`);
  axis("time").click();
  panel.draw();
  assert.deepEqual([panel.others.ready(), panel.curves.view.x], [false, "step"]);
  await settled();
  assert.deepEqual([panel.others.ready(), panel.curves.view.x, asked("/own/axes")], [true, "time", 1]);
  assert.deepEqual(["step", "time", "tokens"].map((name) => [axis(name).disabled, axis(name).title]), [[false, ""], [false, ""], [true, "not known"]]); // prettier-ignore
  for (const [step, times] of [
    [100, 2],
    [102, 2],
    [103, 3],
  ]) {
    state.run = { step };
    panel.draw();
    await settled();
    assert.equal(asked("/own/axes"), times, String(step));
  }
  view.x = "tokens";
  state.run = { step: 200 };
  panel.draw();
  await settled();
  assert.equal(view.x, "step");
  panel.others.own.axes = null;
  here.answers["/own/axes"] = [500, {}];
  axis("time").click();
  await settled();
  assert.deepEqual([view.x, texts(at("toasts")).length], ["step", 1]);
});

test("advisories are drawn again when the server's part of the page brings others", () => {
  let drawn = 0;
  panel.curves.recolour = () => (drawn += 1);
  send(shown, "htmx:afterSwap");
  assert.equal(drawn, 0);
  at("run-advisories").replaceChildren(...parsed("<p></p>"));
  at("run-advisories").dataset.marks = '[{"first": 1}]';
  send(shown, "htmx:afterSwap");
  send(shown, "htmx:afterSwap");
  assert.deepEqual([drawn, panel.curves.options.marks()], [1, [{ first: 1 }]]);
});

test("a zoom asks other runs for the points that it lacks, once", async () => {
  answer("a", axes());
  const means = { steps: [1], values: [0.5], counts: [2] };
  here.answers["/runs/a/metrics"] = { curves: { reward: { steps: [1, 9], values: [0, 1], attempts: 1, means } } };
  const drawn = draw("a");
  assert.deepEqual([panel.others.sources().length, legend()], [1, ["mine", "…"]]);
  await drawn;
  assert.equal(panel.others.sources().length, 2);
  const closer = async (/** @type {[number, number] | null} */ range) => {
    panel.curves.zoom(range);
    await settled();
    return [asked("/a/metrics"), here.asked.at(-1)[0].split("?")[1]];
  };
  const wanted = "points=2000&name=reward&first=3&last=6";
  here.answers["/runs/a/metrics"] = [500, {}];
  assert.deepEqual(await closer([4, 5]), [2, wanted]);
  here.answers["/runs/a/metrics"] = () => new Promise(() => {});
  assert.deepEqual(await closer([4, 5]), [3, wanted]); // its answer was lost
  assert.deepEqual([await closer([4, 5]), await closer(null)], [[3, wanted], [3, wanted]]); // prettier-ignore
});

test("the curves of another run are asked for a hundred at a time", async () => {
  const names = Array.from({ length: 100 }, (_none, n) => `m${n}`);
  for (const name of names) curve(name);
  view.add = names;
  answer("a", axes());
  await draw("a");
  await settled();
  const counts = here.asked.filter((/** @type {any[]} */ [address]) => address.includes("/metrics")).map((/** @type {any[]} */ [address]) => address.match(/name=/g).length); // prettier-ignore
  assert.deepEqual(counts, [100, 1]);
});

test("what is typed is looked for once it rests", async () => {
  for (const ms of [249, 249]) {
    send(at("others-find"), "input");
    mock.timers.tick(ms);
  }
  assert.equal(asked("/joust/runs"), 0);
  mock.timers.tick(1);
  assert.equal(asked("/joust/runs"), 1);
});

test("a reader of a shared page pins nothing, and folded charts stay open where they were", async () => {
  const { CurvePanel } = await import("../../static/js/pages/run_curves.js");
  for (const still of [true, false]) {
    const { options } = panel;
    const other = new CurvePanel({ ...options, page: { ...PAGE, can_pin: still }, view: { ...view, still } });
    assert.deepEqual([at("charts-still").open, "onPin" in other.curves.options && other.curves.options.onPin !== undefined], [still, still]); // prettier-ignore
  }
  panel.options.view.still = false;
  at("charts-still").open = true;
  send(at("charts-still"), "toggle");
  assert.equal(view.still, true);
});
