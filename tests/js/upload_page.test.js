// @ts-check
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { uploadForm } from "../../static/js/lib/upload.js";
import { page, send } from "./page.js";

const MARKUP = `<form id="upload-form"><label id="drop"><span id="drop-text">none</span></label><input id="file" type="file">
<ul id="file_error" hidden></ul><button id="upload-button">Send</button><button id="upload-cancel" hidden>Stop</button>
<div id="upload-progress" hidden><progress></progress><p id="upload-text"></p></div></form>`;
const TEXTS = { "upload.none": "Choose a file", "upload.failed": "Failed", "upload.broken": "Broken", "upload.storing": "Storing", "upload.moved": "{done} of {total}" }; // prettier-ignore

/** @type {any} */
let shown;
/** @type {any} */
let request;
/** @type {string[]} */
let went;
/** @type {any} */
let rules;
beforeEach(() => {
  shown = page(MARKUP, TEXTS);
  request = Object.assign(new EventTarget(), { upload: new EventTarget(), status: 0, responseText: "", headers: {}, sent: 0 }); // prettier-ignore
  Object.assign(request, {
    open: (/** @type {string[]} */ ...how) => (request.how = how),
    setRequestHeader: (/** @type {string} */ name, /** @type {string} */ value) => (request.headers[name] = value),
    send: () => (request.sent += 1),
    abort: () => request.dispatchEvent(new Event("abort")),
  });
  went = [];
  const window = Object.assign(new EventTarget(), {
    location: { assign: (/** @type {string} */ url) => went.push(url) },
  });
  const XMLHttpRequest = class {
    constructor() {
      return request;
    }
  };
  Object.assign(globalThis, { window, XMLHttpRequest, FormData: class {} });
  Object.assign(at("upload-form"), { action: "/send" });
  at("file").files = [{ name: "a.jsonl", size: 1 }];
  rules = { field: "file", chosen: (/** @type {any[]} */ files) => `${files.length} chosen`, problems: () => [] };
});
/** @type {(id: string) => any} */
const at = (id) => shown.getElementById(id);
const errors = () => at("file_error").children.map((/** @type {any} */ item) => item.textContent);
const start = (more = {}) => uploadForm({ ...rules, ...more });
const submit = () => send(at("upload-form"), "submit");
const states = () => [at("upload-button").disabled, at("upload-progress").hidden, at("upload-cancel").hidden];

test("what is chosen is named at once, with what is wrong with it", () => {
  start({ problems: () => ["Too large"] });
  send(at("file"), "change");
  assert.deepEqual(
    [at("drop-text").textContent, errors(), at("file_error").hidden],
    ["1 chosen", ["Too large"], false],
  );
  at("file").files = [];
  send(at("file"), "change");
  assert.deepEqual([at("drop-text").textContent, errors()], ["1 chosen", ["Too large"]]);
});

test("files that are dropped are chosen; a text that is dropped is nothing", () => {
  start();
  assert.equal(send(at("drop"), "dragover"), false);
  assert.equal("over" in at("drop").dataset, true);
  send(at("drop"), "dragleave");
  assert.equal("over" in at("drop").dataset, false);
  assert.equal(send(at("drop"), "drop", { dataTransfer: { files: [] } }), false);
  assert.equal(at("drop-text").textContent, "none");
  send(at("drop"), "drop", { dataTransfer: { files: [1, 2] } });
  assert.equal(at("drop-text").textContent, "2 chosen");
});

test("nothing is sent without a file, unless the form has nothing but its fields, nor what is wrong", () => {
  at("file").files = [];
  start();
  assert.equal(submit(), false);
  assert.deepEqual([errors(), request.sent], [["Choose a file"], 0]);
  shown = page(MARKUP);
  at("file").files = [];
  start({ plain: () => true });
  assert.equal(submit(), true); // the browser sends it
  assert.equal(request.sent, 0);
  shown = page(MARKUP);
  at("file").files = [1];
  start({ problems: () => ["Too large"], plain: () => true });
  assert.equal(submit(), false);
  assert.deepEqual([errors(), request.sent, states()], [["Too large"], 0, [false, true, true]]);
});

test("while it is sent the form says how far it is, and can be stopped", () => {
  start();
  assert.equal(submit(), false);
  assert.deepEqual(
    [request.how, request.headers, request.sent],
    [["POST", "/send"], { Accept: "application/json" }, 1],
  );
  assert.deepEqual(states(), [true, false, false]);
  send(request.upload, "progress", { loaded: 512, total: 2048 });
  assert.deepEqual([shown.querySelector("progress").value, at("upload-text").textContent], ["25", "512 B of 2.0 KB"]);
  send(request.upload, "progress", { loaded: 0, total: 0 });
  assert.equal(shown.querySelector("progress").value, "0");
  send(request.upload, "progress", { loaded: 2048, total: 2048 });
  assert.equal(at("upload-text").textContent, "Storing");
  at("upload-cancel").onclick();
  assert.deepEqual(states(), [false, true, true]);
});

test("an answer leads on, or says what is wrong", () => {
  start();
  const answered = (/** @type {number} */ status, /** @type {any} */ body) => {
    submit();
    Object.assign(request, { status, responseText: typeof body === "string" ? body : JSON.stringify(body) });
    request.dispatchEvent(new Event("load"));
    return errors();
  };
  assert.deepEqual([answered(299, { ok: true, url: "/made" }), went], [[], ["/made"]]);
  assert.deepEqual(answered(300, { ok: true, url: "/made" }), ["Failed"]);
  assert.deepEqual(answered(200, { ok: false, message: "No room" }), ["No room"]);
  assert.deepEqual(answered(422, { message: "m", detail: { file: [{ message: "one" }], name: [{ message: "two" }] } }), ["one", "two"]); // prettier-ignore
  assert.deepEqual(answered(422, { message: "m", detail: {} }), ["m"]);
  assert.deepEqual(answered(502, "<html>"), ["Failed"]);
  assert.deepEqual([went, states()], [["/made"], [false, true, true]]);
  submit();
  assert.deepEqual(errors(), []);
  request.dispatchEvent(new Event("error"));
  assert.deepEqual([errors(), states()], [["Broken"], [false, true, true]]);
});
