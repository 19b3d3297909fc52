// @ts-check
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { browser, settled } from "./browser.js";
import { page, parsed, press, send } from "./page.js";

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

const TEXTS = { "tokens.nats": "{n} nats", "tokens.token": "{n} is {id}", "words.message": "message {n}" };
const ROLLOUT = `<p data-needs-script hidden></p><button id="copy-json"></button><button id="copy-prompt"></button><dialog id="keys"></dialog><p id="toasts"></p>
<nav data-views><a aria-current="true">turns</a><a>raw</a></nav><a data-key="group-after">next</a><input>
<table id="reward"><tr data-part="right"><td>Right</td></tr><tr data-part="short"><td>Short</td></tr><tr data-part="polite"><td>Polite</td></tr></table><div id="words" hidden></div>
<div id="transcript"><article id="turn-0" data-message="0"><p data-said>What is 1 + 1?</p></article><article id="turn-1" data-message="1"><p data-said>It is 2.</p></article></div>`; // prettier-ignore
const span = (/** @type {number} */ message, /** @type {number} */ start, /** @type {number} */ end, note = "", turn = message) => ({ message, turn, start, end, note }); // prettier-ignore
const component = (/** @type {string} */ name, /** @type {number} */ curve, more = {}) => ({ name, title: name, curve, value: 0, counted: 0.5, reason: "", spans: [], ...more }); // prettier-ignore
const PARTS = [
  component("right", 0, { value: 1, spans: [span(1, 6, 7, "the answer")] }),
  component("short", 1, { spans: [span(1, 6, 8, "brief"), span(1, 0, 0), span(9, 0, 0, "brief", 4)] }),
  component("polite", 2, { counted: null, reason: "No please." }),
];
/** @param {any} [facts] */
async function rollout(facts = { words: true }) {
  shown = page(`${ROLLOUT}<script id="rollout-data">${JSON.stringify({ api: "/api/1", ...facts })}</script>`, TEXTS);
  here.answers["/words"] = { parts: PARTS };
  await run("rollout");
  await settled();
}

test("the words that earned a reward are marked, all or those of the component that is chosen", async () => {
  await rollout();
  const marks = () => every("mark").map((node) => [node.textContent, node.dataset.curve ?? null, node.className]);
  const notes = () => every(".word-note").map((node) => [node.textContent, node.hidden]);
  const all = [["2", "0", "earned"], [".", "1", "earned"]]; // prettier-ignore
  assert.deepEqual([marks(), at("words").textContent], [all, "words.hint"]);
  assert.deepEqual(notes(), [["right 0.500 · the answer", false], ["short 0.500 · brief · words.whole", false]]); // prettier-ignore
  const choose = (/** @type {number} */ place) => every("#reward button")[place].click();
  at("transcript").append(...parsed('<article data-message="1"><p data-said>It is 2.</p></article>')); // a later turn
  for (const _again of [1, 2]) {
    send(shown, "htmx:afterSettle");
    assert.deepEqual([marks().length, notes().length, texts(".part-why").length], [4, 4, 2]);
  }
  every("article")[2].remove();
  const chosen = () => every("#reward tr[data-part]").map((row) => [row.hasAttribute("data-chosen"), row.querySelector("button").getAttribute("aria-pressed")]); // prettier-ignore
  choose(1);
  assert.deepEqual(marks(), [["2", "1", "earned"], [".", "1", "earned"]]); // prettier-ignore
  assert.deepEqual([notes().map(([, hidden]) => hidden), chosen()], [[true, false], [[false, "false"], [true, "true"], [false, "false"]]]); // prettier-ignore
  assert.deepEqual(texts("#words li"), ["brief message 2 message 10 ", "words.whole message 2 "]);
  assert.deepEqual(every("#words a").map((node) => node.href), ["#turn-1", "?first=4#turn-4", "#turn-1"]); // prettier-ignore
  choose(0);
  assert.deepEqual(marks(), [["2", "0", "earned"], [".", null, ""]]); // prettier-ignore
  choose(2);
  assert.deepEqual([at("words").textContent, texts(".part-why")], ["No please.", ["brief", "No please."]]);
  choose(2);
  assert.deepEqual([marks(), at("words").textContent, chosen()[2]], [all, "words.hint", [false, "false"]]);
});

test("a rollout is copied whole, up to two thousand turns", async () => {
  await rollout({ words: false });
  const turns = (/** @type {number} */ count) => Array.from({ length: count }, (_none, n) => n);
  const copy = async (/** @type {any} */ first, /** @type {any[]} */ ...more) => {
    here.asked.length = 0;
    here.answers["/api/1"] = first;
    here.answers["/turns"] = () => more.shift();
    at("copy-json").click();
    await settled();
    await settled();
    return [JSON.parse(here.copied.at(-1)).transcript.length, here.asked.map((/** @type {any[]} */ [address]) => address.slice(6)), texts("#toasts p")]; // prettier-ignore
  };
  assert.deepEqual(await copy({ id: 1, transcript: [1], after: null }), [1, [""], ["copied"]]);
  assert.deepEqual(here.copied, ['{\n  "id": 1,\n  "transcript": [\n    1\n  ]\n}']);
  const [, asked, said] = await copy(
    { transcript: turns(1600), after: 1600 },
    { items: turns(200), after: 1800 },
    { items: turns(200), after: 2000 },
    { items: turns(200), after: null },
  );
  assert.deepEqual(asked, ["", "/turns?first=1600&limit=200", "/turns?first=1800&limit=200"]);
  assert.deepEqual(said, ["copied", "copy.long", "copied"]);
  here.answers["/turns"] = { items: [{ messages: ["m"] }] };
  at("copy-prompt").click();
  await settled();
  assert.deepEqual(here.copied.at(-1), '[\n  "m"\n]');
  here.answers["/turns"] = { items: [] };
  at("copy-prompt").click();
  await settled();
  assert.equal(here.copied.at(-1), "[]");
  here.answers["/api/1"] = [404, { message: "It is gone." }];
  at("copy-json").click();
  await settled();
  assert.equal(texts("#toasts p").at(-1), "It is gone.");
});

test("keys lead to the next rollouts, unless they are typed", async () => {
  await rollout({ words: false });
  /** @type {string[]} */
  const clicked = [];
  shown.addEventListener("click", (/** @type {any} */ event) => clicked.push(event.target.textContent));
  for (const key of ["ArrowRight", "ArrowLeft", "r", "x"]) press(shown.body, key);
  press(shown.querySelector("input"), "r");
  press(shown.body, "r", { ctrlKey: true });
  assert.deepEqual([clicked, at("keys").open], [["next", "raw"], false]);
  press(shown.body, "?");
  assert.equal(at("keys").open, true);
  assert.deepEqual([every("[data-needs-script]")[0].hidden, at("words").hidden], [false, true]);
});

const TOKENS = '<div id="tokens"></div><select id="tokens-by"></select><p id="tokens-scale"></p><p id="tokens-one"></p><p id="tokens-said"></p>'; // prettier-ignore
const COLUMNS = {
  prompt: [7, 8],
  ids: [9, 10, 11],
  sampled: [1, 0, 1],
  learned: [1, 0, 0],
  spelling: { 7: ["Go", true], 8: ["\n", true], 9: ["ok", true], 10: ["!", false] },
  ...{ logprob: [-0.1, null, -6], entropy: [0.1, null, 4], ratio: [1, null, 2.5], advantage: [-2, null, 1] },
};

test("tokens have the colour of a value, and the keys go from one to the next up to the ends", async () => {
  shown = page(`${TOKENS}<script id="rollout-data">{"api": "/api/1"}</script>`, TEXTS);
  at("tokens-by").value = "advantage";
  here.answers["/tokens"] = COLUMNS;
  await run("rollout_tokens");
  await settled();
  assert.deepEqual(texts("#tokens .token"), ["Go", "↵\n", "ok", "‹!›", "#11"]);
  assert.deepEqual(every(".token-part").map((part) => [part.dataset.who, part.querySelectorAll(".token").length]), [["prompt", 2], ["model", 1], ["environment", 1], ["model", 1]]); // prettier-ignore
  const shades = () => every("#tokens .token").map((node) => node.dataset.shade ?? null);
  const scale = () => [at("tokens").dataset.by, at("tokens-scale").textContent, every("#tokens-scale i").length];
  assert.deepEqual(
    [shades(), scale()],
    [
      [null, null, "-4", null, null],
      ["leaning", "−  +", 9],
    ],
  );
  for (const [by, wanted, ...how] of /** @type {any[]} */ ([
    ["ratio", [null, null, "0", null, "4"], "leaning", "< 1  > 1", 9],
    ["logprob", [null, null, "1", null, "6"], "rising", "0  −5", 7],
    ["mask", [null, null, "3", null, "0"], "rising", "0  1", 2],
  ])) {
    at("tokens-by").value = by;
    send(at("tokens-by"), "change");
    assert.deepEqual([shades(), scale()], [wanted, how]);
  }
  const chosen = () => every("[data-chosen]").map((node) => node.dataset.at);
  const key = (/** @type {string} */ name, facts = {}) => [press(at("tokens"), name, facts), ...chosen()];
  assert.deepEqual(key("ArrowLeft"), [false, "0"]);
  assert.equal(at("tokens-one").textContent, "“Go” · 1 is 7 · tokens.of_environment");
  for (const place of ["1", "2", "3", "4", "4"]) assert.deepEqual(key("ArrowRight"), [false, place]);
  assert.equal(at("tokens-one").textContent, "“#11” · 5 is 11 · tokens.logprob −6.00 nats · tokens.entropy 4.00 nats · tokens.ratio 2.50 · tokens.advantage – · tokens.not_learned"); // prettier-ignore
  assert.deepEqual([key("ArrowRight", { altKey: true }), key("Home")], [[true, "4"], [true, "4"]]); // prettier-ignore
  send(every("#tokens .token")[2], "pointerover");
  assert.deepEqual(chosen(), ["2"]);
  assert.equal(at("tokens-one").textContent, "“ok” · 3 is 9 · tokens.logprob −0.100 nats · tokens.entropy 0.100 nats · tokens.ratio 1.00 · tokens.advantage −2.00 · tokens.learned"); // prettier-ignore
});

test("a key goes through tokens that were not drawn yet", async () => {
  shown = page(`${TOKENS}<script id="rollout-data">{"api": "/api/1"}</script>`, TEXTS);
  at("tokens-by").value = "mask";
  const sampled = Array.from({ length: 2401 }, () => 1);
  here.answers["/tokens"] = { ...COLUMNS, prompt: [], ids: sampled, sampled, learned: sampled };
  await run("rollout_tokens");
  await settled();
  const blocks = () => every(".token-block").map((block) => block.children.length);
  assert.deepEqual(blocks(), [400, 400, 400, 400, 400, 400, 0]);
  press(at("tokens"), "ArrowRight");
  assert.deepEqual(blocks(), [400, 400, 400, 400, 400, 400, 1]);
});

test("a rollout without tokens says why", async () => {
  for (const [answer, words] of /** @type {any[]} */ ([
    [{ ...COLUMNS, why: "Not recorded." }, "Not recorded."],
    [[404, {}], "tokens.failed"],
  ])) {
    shown = page(`${TOKENS}<script id="rollout-data">{"api": "/api/1"}</script>`);
    here.answers["/tokens"] = answer;
    await run("rollout_tokens");
    await settled();
    assert.deepEqual([at("tokens-said").textContent, every(".token")], [words, []]);
  }
});
