// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { chosenWords, tooMuch, uploadForm } from "../../static/js/lib/upload.js";

/** @param {string} key @param {Record<string, any>} [values] */
const t = (key, values = {}) => [key, ...Object.values(values)].join(" ");
const MB = 2 ** 20;

test("several files are chosen together, within the limits of all of them together", () => {
  const files = [1, 2, 3].map((n) => ({ name: `part-${n}.jsonl`, size: n * MB }));
  assert.equal(chosenWords(files.slice(0, 1), t), "part-1.jsonl · 1.0 MB");
  assert.deepEqual(tooMuch(files, { bytes: 0, files: 2 }, t), ["upload.many 3"]);
  assert.equal(chosenWords(files, t), "upload.chosen 3 6.0 MB");
  assert.equal(chosenWords([{ name: "a.jsonl", size: 30_000 }], t), "a.jsonl · 29.3 KB");
  assert.deepEqual(tooMuch(files, { bytes: 6 * MB, files: 3 }, t), []);
  assert.deepEqual(tooMuch(files, { bytes: 6 * MB - 1, files: 3 }, t), ["upload.large 6.0 MB"]);
  assert.deepEqual(tooMuch(files, { bytes: 6 * MB, files: 2 }, t), ["upload.many 3"]);
});

/** A page with just what the form needs, and a request that only notes what is asked of it. */
function desk() {
  /** @type {Record<string, any>} */
  const nodes = {};
  const node = () => Object.assign(new EventTarget(), { dataset: {}, hidden: true, replaceChildren() {}, querySelector: node }); // prettier-ignore
  for (const id of ["upload-form", "file", "file_error", "drop", "drop-text", "upload-progress", "upload-text", "upload-button", "upload-cancel"]) nodes[id] = node(); // prettier-ignore
  nodes.file.files = [{ name: "a.jsonl", size: 1 }];
  const window = Object.assign(new EventTarget(), { location: { assign() {} } });
  const upload = Object.assign(new EventTarget(), {
    upload: new EventTarget(),
    status: 0,
    responseText: "",
    open() {},
    setRequestHeader() {},
    send() {},
    abort: () => upload.dispatchEvent(new Event("abort")),
  });
  const getElementById = (/** @type {string} */ id) => nodes[id];
  const document = { getElementById, querySelectorAll: () => [], createElement: () => ({}) };
  const XMLHttpRequest = class {
    constructor() {
      return upload;
    }
  };
  Object.assign(globalThis, { document, window, XMLHttpRequest, FormData: class {} });
  uploadForm({ field: "file", chosen: () => "", problems: () => [] });
  nodes["upload-form"].dispatchEvent(new Event("submit", { cancelable: true }));
  return { nodes, window, upload };
}

/** @param {EventTarget} window */
function leaving(window) {
  const event = new Event("beforeunload", { cancelable: true });
  window.dispatchEvent(event);
  return event.defaultPrevented;
}

test("a page that is left during an upload asks first, and no longer once it ended", () => {
  const stopped = desk();
  assert.equal(leaving(stopped.window), true);
  stopped.nodes["upload-cancel"].onclick();
  assert.equal(leaving(stopped.window), false, "cancelled");
  const refused = desk();
  Object.assign(refused.upload, { status: 422, responseText: "{}" });
  refused.upload.dispatchEvent(new Event("load"));
  assert.equal(leaving(refused.window), false, "refused");
  const taken = desk();
  Object.assign(taken.upload, { status: 200, responseText: '{"ok": true, "url": "/"}' });
  taken.upload.dispatchEvent(new Event("load"));
  assert.equal(leaving(taken.window), false, "done: the script leaves by itself");
});
