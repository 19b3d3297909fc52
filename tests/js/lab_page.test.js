// @ts-check
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { browser, settled } from "./browser.js";
import { page, press, send } from "./page.js";

/** @type {(tag: string, ids: string) => string} */
const each = (tag, ids) => ids.split(" ").map((id) => `<${tag} id="${id}"></${tag}>`).join(""); // prettier-ignore
const SHAPE = "clip_low clip_high scale_low scale_high gate_above schedule_begin schedule_end schedule_first schedule_last schedule_kind categories"; // prettier-ignore
const MARKUP = `${each("select", "lab-spec lab-against lab-aggregation lab-scale lab-add lab-sort lab-only")}
${each("input", "lab-step save-name").replaceAll("</input>", "")}${each("details", "lab-how")}${each("dialog", "save-dialog")}
${each("button", "lab-save lab-launch lab-retry lab-back lab-next lab-reset reader-close reader-back reader-next save-button")}
${each("form", "save-form")}${each("table", "lab-table lab-turns-rows")}${each("a", "reader-page")}
${each("p", "lab-scale-idle lab-components lab-changed lab-sum lab-groups lab-groups-part lab-shown lab-ranks reader-side lab-reader transcript reader-parts reader-title lab-status lab-progress lab-result lab-error lab-error-title lab-error-detail lab-verdict lab-brief alarms-count lab-alarms lab-tiles components-count lab-missing lab-outcome lab-turns lab-turns-why lab-turns-known lab-turns-note chart-against chart-against-name chart-now chart-before lab-chart lab-plot save-problem")}
<template id="component-template"><section><h3 data-title></h3><b data-alarm hidden></b><button data-remove></button><input data-range><input data-weight>
<p data-problem hidden></p><details><i data-shaped hidden></i><i data-figures></i><p data-help></p><div data-params></div><div class="shape">
${SHAPE.split(" ").map((name) => `<input name="__id__-${name}">`).join("")}<select name="__id__-gate_component"><option value="">none</option></select><p data-schedule></p></div></details></section></template>`; // prettier-ignore

const part = (/** @type {string} */ name, weight = 1, more = {}) => ({ name, weight, params: {}, ...more });
const FACTS = {
  spec: "mine",
  choices: [
    { key: "mine", label: "mine@1", reference: "reward:mine@1", components: [part("a"), part("b", 0.5)] },
    { key: "run", label: "the run", reference: null, components: [part("a", 2)] },
  ],
  functions: { a: { title: "A", weight: 1 }, b: { title: "B", weight: 0.25 } },
  set: { id: 7, rollouts: 16 },
  urls: { score: "/score/", rollout: "/rollout/", save: "/save/", launch: "/new/?from=1", recorded: "/rollouts/" },
};
const HISTOGRAM = { edges: [0, 1], counts: [16] };
const row = (/** @type {string} */ name, more = {}) => ({
  ...{ name, title: name.toUpperCase(), mean: 0.5, std: 0.1, min: 0, max: 1, low: 0, high: 1, histogram: HISTOGRAM },
  ...{ share_of_spread: 0.25, r_outcome: 0, r_length: null, missing: 0, constant: false, ...more },
});
const rollout = (/** @type {string} */ id, more = {}) => ({
  ...{ id, index: 0, status: "completed", excluded: "", reward: 1, terms: { a: 1 }, advantage: 0.5, rank: 1 },
  ...{ rank_before: 1, reward_before: null, length: 3, ...more },
});
const group = (/** @type {number} */ number, /** @type {any[]} */ ...rollouts) =>
  ({ key: String(number), group: number, step: 4, task: "t", mean: 1, std: 0, zero_variance: true, phantom: false, rollouts }); // prettier-ignore
const reply = (more = {}) => ({
  ...{ alarms: [], components: [row("a"), row("b")], against: null, agreement: null, turns: null, missing: [] },
  ...{ groups: [group(0, rollout("r0"))], total_groups: 1, total: { histogram: HISTOGRAM }, took_ms: 12 },
  verdict: { sentence: "Fine.", kind: "info" },
  summary: { reward: { mean: 1.5, std: 0.1, min: 0, max: 2 }, zero_variance: { share: 0.5, groups: 2 }, phantom: { share: 0, groups: 0 }, excluded: 0, rollouts: 16, groups: 4, outcome: "" }, // prettier-ignore
  ...more,
});

/** @type {any} */
let shown;
/** @type {any} */
let here;
/** @type {any[]} what is drawn: the bars, and the line of another distribution */
let plots;
/** @type {(id: string) => any} */
const at = (id) => shown.getElementById(id);
/** @type {(name: string) => any} */
const fields = (name) => at(`component-${name}`);
const weight = (/** @type {string} */ name) => fields(name).querySelector("[data-weight]");
const kept = () => globalThis.sessionStorage.getItem("lab:7:mine");
const texts = (/** @type {any} */ node, /** @type {string} */ selector) => node.querySelectorAll(selector).map((/** @type {any} */ found) => found.textContent); // prettier-ignore
let number = 0;

/** @param {any} [facts] */
async function start(facts = FACTS, search = "?spec=mine") {
  here = browser(search);
  plots = [];
  /** @type {any} */ (globalThis).window.Plotly = {
    react: (/** @type {any} */ _node, /** @type {any[]} */ traces) => plots.push(traces.map((trace) => trace.y)),
  };
  shown = page(`${MARKUP}<script id="lab-data">${JSON.stringify(facts)}</script>`);
  for (const id of ["lab-spec", "lab-against"])
    at(id).append(...["", "mine", "run"].map((value) => Object.assign(shown.createElement("option"), { value })));
  here.answers["/score/"] = () => reply();
  await import(`../../static/js/pages/lab.js?${(number += 1)}`);
  await pass();
}
beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
afterEach(() => mock.timers.reset());
async function pass(ms = 120) {
  mock.timers.tick(ms);
  await settled();
}
/** @type {(node: any, value: string, kind?: string) => Promise<void>} until the lab has its answer */
async function type(node, value, kind = "input") {
  node.value = value;
  send(node, kind);
  await pass();
}
/** @type {() => any[]} */
const scored = () => here.asked.filter((/** @type {any[]} */ [address]) => address === "/score/").map((/** @type {any[]} */ [, body]) => body); // prettier-ignore

test("what is changed is kept until it is as saved again", async () => {
  await start();
  assert.deepEqual([kept(), at("lab-changed").textContent, at("lab-reset").hidden], [null, "lab.unchanged", true]);
  await type(weight("a"), "2");
  assert.deepEqual(JSON.parse(String(kept())), [part("a", 2), part("b", 0.5)]);
  assert.deepEqual([fields("a").dataset.changed, fields("b").dataset.changed], ["", undefined]);
  assert.deepEqual(scored().map((body) => [body.components[0].weight, body.against?.[0].weight ?? null]), [[1, null], [2, 1], [1, null]]); // prettier-ignore
  await type(weight("a"), "");
  assert.deepEqual([JSON.parse(String(kept()))[0].weight, at("lab-status").textContent], [2, "lab.fix_first"]); // what was right
  await type(weight("a"), "1");
  assert.deepEqual([kept(), at("lab-reset").hidden], [null, true]);
});

test("another spec is another page, which is not compared with itself", async () => {
  await start(FACTS, "?spec=mine&against=run&step=3");
  assert.deepEqual([here.shown, at("lab-how").open, at("lab-step").value], ["?spec=mine&against=run&step=3", true, "3"]); // prettier-ignore
  assert.deepEqual(at("lab-against").children.map((/** @type {any} */ option) => option.disabled), [false, true, false]); // prettier-ignore
  await type(at("lab-spec"), "run", "change");
  assert.deepEqual(here.went, ["?spec=run&step=3"]);
});

test("the distribution of a spec that is compared with is asked for once, and not drawn over a newer one", async () => {
  await start();
  /** @type {any[]} */
  const late = [];
  here.answers["/score/"] = (/** @type {any} */ body) =>
    body.limit === 0 ? new Promise((resolve) => late.push(resolve)) : reply({ against: { ...reply().summary } });
  plots = [];
  await type(at("lab-against"), "run", "change");
  await type(weight("a"), "2"); // before the first one's distribution is here
  assert.deepEqual([late.length, plots], [2, [[[1]], [[1]]]]);
  late[0](reply({ total: { histogram: { edges: [0, 1, 2], counts: [8, 8] } } }));
  await pass();
  assert.equal(plots.length, 2);
  await type(weight("a"), "3");
  assert.deepEqual([late.length, plots.length, plots[2][1]], [2, 3, [0, 0.5, 0.5, 0.5, 0.5, 0]]);
});

test("arrows move a weight by a hundredth of its slider, with Shift by a tenth", async () => {
  await start();
  const values = [
    ["ArrowUp", false],
    ["ArrowDown", true],
    ["ArrowDown", false],
  ].map(([key, shiftKey]) => [
    press(weight("b"), String(key), { shiftKey }),
    weight("b").value,
    fields("b").querySelector("[data-range]").value,
  ]);
  assert.deepEqual(values, [[false, "0.51", "0.51"], [false, "0.41", "0.41"], [false, "0.4", "0.4"]]); // prettier-ignore
  assert.equal(press(weight("b"), "ArrowLeft"), true);
  const range = fields("b").querySelector("[data-range]");
  await type(range, "0.123456");
  assert.equal(weight("b").value, "0.1235");
  await type(weight("b"), "-4");
  assert.deepEqual([range.min, range.max, range.getAttribute("step")], ["-10", "10", "0.1"]);
});

test("a gate offers the other components, and keeps one that is gone", async () => {
  const gate = { component: "b", above: 0.5 };
  await start({ ...FACTS, choices: [{ ...FACTS.choices[0], components: [part("a", 1, { gate }), part("b")] }] });
  const offered = () => fields("a").querySelectorAll("select option").map((/** @type {any} */ option) => option.getAttribute("value")); // prettier-ignore
  assert.deepEqual([offered(), fields("a").querySelector("[data-shaped]").hidden], [["", "b"], false]);
  fields("b").querySelector("[data-remove]").click();
  await pass();
  assert.deepEqual([offered(), fields("b"), shown.activeElement === weight("a")], [["", "b"], null, true]);
  await type(at("lab-add"), "a", "change");
  assert.deepEqual([offered(), at("component-a_2").querySelector("[data-title]").textContent], [["", "a_2", "b"], "A (a_2)"]); // prettier-ignore
});

test("a page of groups that is no longer there leads to the last one", async () => {
  await start();
  const pages = () => [at("lab-back").disabled, at("lab-next").disabled, scored().at(-1).offset];
  here.answers["/score/"] = (/** @type {any} */ { offset }) =>
    reply({ total_groups: 41, groups: Array.from({ length: offset === 40 ? 1 : 20 }, (_none, at) => group(offset + at)) }); // prettier-ignore
  await type(at("lab-sort"), "spread", "change");
  assert.deepEqual(pages(), [true, false, 0]);
  for (const wanted of [
    [false, false, 20],
    [false, true, 40],
  ]) {
    at("lab-next").click();
    await pass();
    assert.deepEqual(pages(), wanted);
  }
  for (const [all, last] of [
    [40, 20],
    [21, 20],
    [20, 0],
  ]) {
    here.answers["/score/"] = (/** @type {any} */ { offset }) =>
      reply({ total_groups: all, groups: offset > last ? [] : Array.from({ length: all - last }, (_none, at) => group(last + at)) }); // prettier-ignore
    await type(weight("a"), String(all));
    await pass();
    assert.deepEqual(pages(), [last === 0, true, last], String(all));
  }
  here.answers["/score/"] = () => reply({ total_groups: 0, groups: [] });
  await type(at("lab-only"), "phantom", "change");
  assert.deepEqual([texts(at("lab-groups"), "p"), at("lab-shown").textContent, ...pages()], [["lab.no_groups"], "", true, true, 0]); // prettier-ignore
});

test("the table follows the order of the spec, and says how strong a correlation is", async () => {
  await start();
  const strengths = (/** @type {number | null} */ r) => {
    const found = at("lab-table").querySelector("[data-strength]");
    return [r, found?.dataset.strength, found?.textContent];
  };
  for (const [r, word, text] of [
    [0.3, "weak", "+0.30"],
    [-0.31, "some", "−0.31"],
    [0.7, "some", "+0.70"],
    [-0.71, "strong", "−0.71"],
    [0, "weak", "0.00"],
    [null, undefined, undefined],
  ]) {
    here.answers["/score/"] = () => reply({ components: [row("a", { r_outcome: r }), row("b", { r_outcome: null })] });
    await type(weight("a"), String(r ?? 9));
    assert.deepEqual(strengths(/** @type {any} */ (r)), [r, word, text]);
  }
  const [a, b] = ["a", "b"].map((name) => row(name, { r_outcome: null })); // as they were
  here.answers["/score/"] = () => reply({ components: [b, a] });
  await type(weight("a"), "3");
  const names = at("lab-table").querySelectorAll(".lab-name");
  assert.deepEqual(names.map((/** @type {any} */ node) => [node.textContent, node.dataset.curve]), [["B", "0"], ["A", "1"]]); // prettier-ignore
  here.answers["/score/"] = () => reply({ components: [{ ...a, share_of_spread: null, missing: 2 }, { ...b, share_of_spread: -0.5 }] }); // prettier-ignore
  await type(weight("a"), "2");
  assert.deepEqual(texts(at("lab-table"), ".lab-share"), ["−50%"]);
  assert.equal(fields("a").querySelector("[data-figures]").textContent, "⌀ 0.500 · missing 2");
  names[1].click();
  assert.equal(shown.activeElement, weight("a"));
});

test("a spec is saved and launched, or only saved, as the last button says", async () => {
  await start();
  at("lab-launch").click();
  assert.deepEqual([here.went, at("save-dialog").open], [["http://here/new/?from=1&reward=reward%3Amine%401"], false]);
  await type(weight("a"), "2");
  at("lab-launch").click();
  assert.equal(at("save-dialog").open, true);
  at("save-dialog").close();
  at("lab-save").click();
  at("save-name").value = "mine";
  here.went.length = 0;
  here.answers["/save/"] = { key: "next", label: "mine@2", reference: "reward:mine@2" };
  send(at("save-form"), "submit");
  assert.deepEqual([at("save-button").disabled, at("save-button").textContent], [true, "lab.saving"]);
  await pass();
  assert.deepEqual([here.went, kept(), at("save-button").disabled], [["?spec=next"], null, false]);
  assert.deepEqual(here.asked.at(-1), ["/save/", { name: "mine", components: [part("a", 2), part("b", 0.5)] }]);
  await type(weight("a"), "");
  send(at("save-form"), "submit");
  await pass();
  assert.deepEqual([at("save-problem").hidden, at("save-problem").textContent], [false, "lab.fix_first"]);
  send(at("save-dialog"), "close");
  assert.equal(at("save-problem").hidden, true);
});

test("a card says its reward, by how many places it moved, and its advantage", async () => {
  await start();
  at("lab-next").click(); // the second page
  await pass();
  const cards = [
    rollout("r0", { rank: 3, advantage: 0, reward: 0.5 }),
    rollout("r1", { index: 1, rank: 1, rank_before: 2, advantage: -0.5 }),
    rollout("r2", { index: 2, excluded: "Cut off.", reward: null, rank: null, advantage: null }),
    rollout("r3", { index: 3, rank_before: null, policy: "give-up" }),
  ];
  const groups = [group(0, ...cards), { ...group(1), step: null, zero_variance: false, phantom: true, mean: null }];
  here.answers["/score/"] = () => reply({ groups });
  await type(at("lab-sort"), "spread", "change");
  const said = (/** @type {string} */ name) => texts(at("lab-groups"), `.rollout-${name}`);
  assert.deepEqual([said("index"), said("reward"), scored().at(-1).offset], [["0", "1", "2", "3 give-up"], ["0.50", "1.00", "–", "1.00"], 0]); // prettier-ignore
  assert.deepEqual([said("note").slice(0, 3), said("advantage")], [["↓2", "↑1", "outcome.excluded"], ["0.00", "−0.50", "", "+0.50"]]); // prettier-ignore
  const flags = ["zero", "phantom"].map((name) => at("lab-groups").querySelectorAll(`[data-flag="${name}"]`).map((/** @type {any} */ node) => node.hidden)); // prettier-ignore
  assert.deepEqual([flags, texts(at("lab-groups"), "h2")], [[[false, true], [true, false]], ["lab.group", "group"]]); // prettier-ignore
  const piece = () => at("lab-groups").querySelector(".card-terms").firstElementChild;
  const before = piece();
  await type(weight("a"), "2");
  assert.equal(piece() === before, true); // nothing of it changed
});
