// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { page, press, send } from "./page.js";

let number = 0;
/** A page script runs once it is imported; each query is another import. @param {string} name */
const run = (name) => import(`../../static/js/pages/${name}.js?${(number += 1)}`);

const RESOURCES = '<script id="environment-resources">{"maze": {"memory_mb": 512, "cpus": 2}, "wolf": {"memory_mb": 64, "cpus": 1}}</script>'; // prettier-ignore
const FIELDS = ["name", "memory_mb", "cpus", "image", "program", "protocol", "kind"].map((name) => `<input name="${name}" value="">`).join(""); // prettier-ignore
const GROUPS = '<p data-program="maze"></p><p data-program="wolf"></p>';

/** @type {(values: Record<string, string>, more?: string) => Promise<any>} */
async function environment(values, more = "") {
  const shown = page(`${RESOURCES}<form id="environment-form">${FIELDS}${GROUPS}${more}</form>`);
  const form = shown.getElementById("environment-form");
  for (const [name, value] of Object.entries(values)) form.elements.namedItem(name).value = value;
  await run("environment-new");
  const at = (/** @type {string} */ name) => form.elements.namedItem(name);
  const offered = () => shown.querySelectorAll("[data-program]:not([hidden])").map((/** @type {any} */ node) => node.dataset.program); // prettier-ignore
  const given = () => [at("memory_mb").value, at("cpus").value];
  return { form, at, offered, given };
}

test("a built-in server brings its own limits and options, until someone writes others", async () => {
  const { form, at, offered, given } = await environment({ kind: "process", program: "maze" });
  assert.deepEqual([offered(), given()], [["maze"], ["512", "2"]]);
  at("memory_mb").value = "100";
  send(at("memory_mb"), "input");
  at("program").value = "wolf";
  send(form, "change");
  assert.deepEqual([offered(), given()], [["wolf"], ["100", "1"]]);
  at("program").value = "other";
  send(form, "change");
  assert.deepEqual([offered(), given()], [[], ["100", "1"]]);
});

test("a form that came back keeps what was written into it", async () => {
  for (const more of ['<ul class="errorlist"></ul>', '<p class="notice"></p>']) {
    const { given } = await environment({ kind: "process", program: "maze", memory_mb: "7" }, more);
    assert.deepEqual(given(), ["7", ""]);
  }
});

test("an image of ours is known by its name, whatever its registry, tag, and digest", async () => {
  const offers = async (/** @type {string} */ image, kind = "docker", protocol = "openenv") =>
    (await environment({ kind, image, protocol, program: "wolf" })).offered();
  for (const image of ["tiltyard-env-maze", "ghcr.io/a/tiltyard-env-maze:1@sha256:00", " tiltyard-env-maze:2 "])
    assert.deepEqual(await offers(image), ["maze"], image);
  assert.deepEqual(await offers("maze"), []);
  assert.deepEqual(await offers("tiltyard-env-maze", "docker", "mcp"), []);
  assert.deepEqual(await offers("tiltyard-env-maze", "url"), []);
  assert.deepEqual(await offers("tiltyard-env-maze", "process"), ["wolf"]);
  const { at, offered } = await environment({ kind: "docker", protocol: "openenv" });
  at("image").value = "tiltyard-env-wolf";
  send(at("image"), "input");
  assert.deepEqual(offered(), ["wolf"]);
});

const BALLOT = '<div id="ballot"><h1></h1><button data-key="ArrowLeft">A</button><a data-key="ArrowUp">x</a></div><input><p id="vote-unsent" hidden></p>'; // prettier-ignore

test("a key votes once, and not again until its answer has come", async () => {
  const shown = page(BALLOT);
  /** @type {any[]} */
  const clicked = [];
  shown.addEventListener("click", (/** @type {any} */ event) => clicked.push(event.target.textContent));
  await run("vote");
  assert.equal(press(shown.body, "ArrowRight"), true); // the ballot has no such button
  assert.equal(press(shown.body, "ArrowUp"), true); // nor is a link one
  assert.equal(press(shown.querySelector("input"), "ArrowLeft"), true);
  assert.equal(press(shown.body, "ArrowLeft"), false);
  assert.equal(press(shown.body, "ArrowLeft", { repeat: true }), false);
  assert.deepEqual(clicked, ["A"]);
  send(shown, "htmx:beforeRequest");
  press(shown.body, "ArrowLeft");
  assert.deepEqual([clicked.length, "sending" in shown.getElementById("ballot").dataset], [1, true]);
  send(shown, "htmx:afterRequest");
  press(shown.body, "ArrowLeft");
  assert.deepEqual([clicked.length, "sending" in shown.getElementById("ballot").dataset], [2, false]);
});

test("a vote that was not saved says so until the next one", async () => {
  const shown = page(BALLOT);
  await run("vote");
  const hidden = () => shown.getElementById("vote-unsent").hidden;
  for (const failure of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
    send(shown, "htmx:beforeRequest");
    assert.equal(hidden(), true);
    send(shown, failure);
    assert.deepEqual([hidden(), "sending" in shown.getElementById("ballot").dataset], [false, false], failure);
  }
  send(shown, "htmx:afterSwap");
  assert.equal(shown.activeElement.localName, "h1");
});

const option = (/** @type {string} */ path, /** @type {string} */ value, more = "") =>
  `<div class="field" data-path="${path}" data-default="1" ${more}><label>${path}</label><input name="${path}" value="${value}"><p class="field-help">help of ${path}</p></div>`; // prettier-ignore
const FORM = `<p id="form-views" hidden><button data-view="recipe"></button><button data-view="changed"></button><button data-view="all"></button></p>
<input id="option-search" value=""><p id="form-views-words" data-none="No match" data-unchanged="No change"></p><b id="changed-count"></b>
<form id="run-form"><input name="kind" value="grpo"><div id="options"><div data-kinds="grpo"><details class="fold" id="fold"><summary>s</summary>
<section data-group="a">${option("lr", "1", "data-basic")}${option("beta", "2")}</section></details></div>
<div data-kinds="dpo"><section data-group="b">${option("margin", "3")}</section></div></div></form>`;

/** @type {(hash?: string, change?: (shown: any) => void) => Promise<any>} */
async function runForm(hash = "", change = () => {}) {
  const shown = page(FORM);
  Object.assign(globalThis, { location: { hash }, matchMedia: () => ({ matches: false }) });
  change(shown);
  await run("run-new");
  const at = (/** @type {string} */ id) => shown.getElementById(id);
  const fields = () => shown.querySelectorAll("[data-kinds]:not([hidden]) .field:not([hidden])").map((/** @type {any} */ node) => node.dataset.path); // prettier-ignore
  const view = (/** @type {string} */ name) => shown.querySelector(`[data-view="${name}"]`);
  const pressed = () => shown.querySelectorAll('[aria-pressed="true"]').map((/** @type {any} */ node) => node.dataset.view); // prettier-ignore
  return { shown, at, fields, view, pressed, form: at("run-form") };
}

test("the form begins with the recipe of its method, and shows what is changed or all when asked", async () => {
  const { shown, at, fields, view, pressed, form } = await runForm();
  assert.deepEqual([fields(), pressed(), at("changed-count").textContent], [["lr"], ["recipe"], "1"]);
  assert.deepEqual([at("form-views").hidden, form.dataset.view, at("fold").open], [false, "recipe", true]);
  view("changed").click();
  assert.deepEqual([fields(), pressed()], [["beta"], ["changed"]]);
  view("all").click();
  assert.deepEqual(fields(), ["lr", "beta"]);
  form.elements.namedItem("kind").value = "dpo";
  send(form, "change");
  assert.deepEqual(fields(), ["margin"]);
  assert.equal("empty" in shown.querySelector('[data-group="b"]').dataset, false);
});

test("a search looks through all options, and says when there is none", async () => {
  const { at, fields, pressed, form, view } = await runForm();
  at("option-search").value = "beta";
  send(at("option-search"), "input");
  assert.deepEqual([fields(), pressed(), form.dataset.view, at("form-views-words").textContent], [["beta"], [], "search", ""]); // prettier-ignore
  at("option-search").value = "zebra";
  send(at("option-search"), "input");
  assert.deepEqual([fields(), at("form-views-words").textContent, at("fold").hidden], [[], "No match", true]);
  assert.equal(press(at("option-search"), "Enter"), false); // it would send the form
  assert.equal(press(at("option-search"), "a"), true);
  view("changed").click();
  assert.deepEqual([at("option-search").value, fields()], ["", ["beta"]]);
  form.elements.namedItem("beta").value = "1";
  send(form, "change");
  assert.deepEqual([fields(), at("form-views-words").textContent, at("changed-count").textContent], [[], "No change", "0"]); // prettier-ignore
});

test("a form with a problem, or one that is led to, begins with all options", async () => {
  const wrong = await runForm("", (shown) => (shown.querySelector('[data-path="beta"]').dataset.invalid = ""));
  assert.deepEqual([wrong.fields(), wrong.at("fold").open], [["lr", "beta"], true]);
  const led = await runForm("#field-beta", (shown) => (shown.querySelector('[name="beta"]').id = "field-beta"));
  assert.deepEqual([led.fields(), led.shown.activeElement.name, led.at("fold").open], [["lr", "beta"], "beta", true]);
  const plain = await runForm();
  send(plain.form.elements.namedItem("lr"), "invalid");
  assert.deepEqual([plain.fields(), plain.at("option-search").value], [["lr", "beta"], ""]); // a browser shows what is wrong
});

test("options that are set for the reader are shown", async () => {
  const { form, fields, view } = await runForm();
  send(form, "options-set");
  assert.deepEqual(fields(), ["beta"]);
  view("all").click();
  send(form, "options-set");
  assert.deepEqual(fields(), ["lr", "beta"]);
});
