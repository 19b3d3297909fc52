// @ts-check
/** Upload of several files with a progress bar. Without this script the form posts by itself. */

import { t } from "../lib/dom.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("upload-form"));
const input = /** @type {HTMLInputElement} */ (document.getElementById("id_uploads"));
const drop = /** @type {HTMLElement} */ (document.getElementById("drop"));
const dropText = /** @type {HTMLElement} */ (document.getElementById("drop-text"));
const panel = /** @type {HTMLElement} */ (document.getElementById("upload-progress"));
const bar = /** @type {HTMLProgressElement} */ (panel.querySelector("progress"));
const text = /** @type {HTMLElement} */ (document.getElementById("upload-text"));
const errors = /** @type {HTMLElement} */ (document.getElementById("id_uploads_error"));
const button = /** @type {HTMLButtonElement} */ (document.getElementById("upload-button"));
const cancel = /** @type {HTMLButtonElement} */ (document.getElementById("upload-cancel"));
const limit = Number(form.dataset.limit);
const most = Number(form.dataset.files);

/** @param {number} bytes */
const size = (bytes) => (bytes >= 2 ** 30 ? `${(bytes / 2 ** 30).toFixed(2)} GB` : `${(bytes / 2 ** 20).toFixed(1)} MB`);
const total = () => Array.from(input.files ?? []).reduce((sum, file) => sum + file.size, 0);

/** @param {string[]} sentences */
function show(sentences) {
  errors.replaceChildren(...sentences.map((sentence) => Object.assign(document.createElement("li"), { textContent: sentence })));
  errors.hidden = sentences.length === 0;
}

/** What is wrong with the choice before anything is sent. */
function problems() {
  const count = input.files?.length ?? 0;
  if (count > most) return [t("upload.many", { n: count })];
  return total() > limit ? [t("upload.large", { limit: size(limit) })] : [];
}

function chosen() {
  const files = Array.from(input.files ?? []);
  if (!files.length) return;
  const one = `${files[0].name} · ${size(files[0].size)}`;
  dropText.textContent = files.length === 1 ? one : t("upload.chosen", { n: files.length, size: size(total()) });
  show(problems());
}

input.addEventListener("change", chosen);
for (const kind of ["dragenter", "dragover"]) {
  drop.addEventListener(kind, (event) => {
    event.preventDefault();
    drop.dataset.over = "";
  });
}
for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => delete drop.dataset.over);
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  if (!event.dataTransfer?.files.length) return;
  input.files = event.dataTransfer.files;
  chosen();
});

/** @param {boolean} on */
function busy(on) {
  button.disabled = on;
  panel.hidden = cancel.hidden = !on;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const wrong = problems();
  if (!input.files?.length || wrong.length) {
    show(wrong);
    return;
  }
  const request = new XMLHttpRequest();
  const started = performance.now();
  request.open("POST", form.action);
  request.setRequestHeader("Accept", "application/json");
  request.upload.addEventListener("progress", (moved) => {
    bar.value = moved.total ? (100 * moved.loaded) / moved.total : 0;
    const rate = moved.loaded / Math.max(0.001, (performance.now() - started) / 1000);
    text.textContent = t("upload.moved", { done: size(moved.loaded), total: size(moved.total), rate: size(rate) });
    if (moved.loaded === moved.total) text.textContent = t("upload.storing");
  });
  request.addEventListener("load", () => {
    let body = null;
    try {
      body = JSON.parse(request.responseText);
    } catch {
      body = null;
    }
    if (request.status < 300 && body?.ok) {
      window.location.assign(body.url);
      return;
    }
    busy(false);
    /** @type {string[]} */
    const sentences = body?.detail ? Object.values(body.detail).flat().map((item) => String(item.message)) : [];
    show(sentences.length ? sentences : [body?.message || t("upload.failed")]);
  });
  request.addEventListener("error", () => {
    busy(false);
    show([t("upload.broken")]);
  });
  request.addEventListener("abort", () => busy(false));
  cancel.onclick = () => request.abort();
  show([]);
  busy(true);
  request.send(new FormData(form));
});
