// @ts-check
/** A form that sends files with a progress bar. Without a script it posts by itself. */

import { t } from "./dom.js";
import { bytes } from "./format.js";

/** @typedef {import("./format.js").Translate} Translate */
/** @typedef {{name: string, size: number}} Chosen */

/** @param {Chosen[]} files */
const total = (files) => files.reduce((sum, file) => sum + file.size, 0);

/**
 * The text that is shown for the chosen files.
 * @param {Chosen[]} files
 * @param {Translate} t
 */
export const chosenWords = (files, t) =>
  files.length === 1
    ? `${files[0].name} · ${bytes(files[0].size)}`
    : t("upload.chosen", { n: files.length, size: bytes(total(files)) });

/**
 * Why these files cannot be sent in one go.
 * @param {Chosen[]} files
 * @param {{bytes: number, files: number}} limits
 * @param {Translate} t
 * @returns {string[]}
 */
export function tooMuch(files, limits, t) {
  if (files.length > limits.files) return [t("upload.many", { n: files.length })];
  return total(files) > limits.bytes ? [t("upload.large", { limit: bytes(limits.bytes) })] : [];
}

/**
 * @typedef {{
 *   field: string, chosen: (files: File[]) => string, problems: (files: File[]) => string[], plain?: () => boolean,
 * }} Rules `field` is the id of the file input, `chosen` the text for the choice, `problems` what is wrong with it,
 *   `plain` whether the form has nothing to send but its fields
 */

/** @param {Rules} rules */
export function uploadForm(rules) {
  const element = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
  const form = /** @type {HTMLFormElement} */ (element("upload-form"));
  const input = /** @type {HTMLInputElement} */ (element(rules.field));
  const errors = /** @type {HTMLElement} */ (element(`${rules.field}_error`));
  const [drop, dropText, panel, text] = ["drop", "drop-text", "upload-progress", "upload-text"].map(element);
  const bar = /** @type {HTMLProgressElement} */ (panel.querySelector("progress"));
  const [button, cancel] = ["upload-button", "upload-cancel"].map(element);
  const files = () => Array.from(input.files ?? []);

  /** @param {string[]} sentences */
  function show(sentences) {
    errors.replaceChildren(
      ...sentences.map((sentence) => Object.assign(document.createElement("li"), { textContent: sentence })),
    );
    errors.hidden = sentences.length === 0;
  }

  function chosen() {
    if (!files().length) return;
    dropText.textContent = rules.chosen(files());
    show(rules.problems(files()));
  }

  input.addEventListener("change", chosen);
  for (const kind of ["dragenter", "dragover"]) {
    drop.addEventListener(kind, (/** @type {Event} */ event) => {
      event.preventDefault();
      drop.dataset.over = "";
    });
  }
  for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => delete drop.dataset.over);
  drop.addEventListener("drop", (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    if (!event.dataTransfer?.files.length) return;
    input.files = event.dataTransfer.files;
    chosen();
  });

  /** @param {Event} event */
  const ask = (event) => event.preventDefault(); // the browser asks whether to leave, and so to lose the upload

  /** @param {boolean} on */
  function busy(on) {
    if (on) window.addEventListener("beforeunload", ask);
    else window.removeEventListener("beforeunload", ask);
    button.disabled = on;
    panel.hidden = cancel.hidden = !on;
  }

  /** @param {XMLHttpRequest} request */
  function answered(request) {
    let body;
    try {
      body = JSON.parse(request.responseText);
    } catch {
      body = null;
    }
    if (request.status < 300 && body?.ok) {
      window.removeEventListener("beforeunload", ask);
      window.location.assign(body.url);
      return;
    }
    busy(false);
    /** @type {string[]} */
    const sentences = body?.detail
      ? Object.values(body.detail)
          .flat()
          .map((item) => String(item.message))
      : [];
    show(sentences.length ? sentences : [body?.message || t("upload.failed")]);
  }

  form.addEventListener("submit", (event) => {
    if (!files().length && rules.plain?.()) return;
    event.preventDefault();
    const wrong = files().length ? rules.problems(files()) : [t("upload.none")];
    if (wrong.length) {
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
      text.textContent = t("upload.moved", {
        done: bytes(moved.loaded),
        total: bytes(moved.total),
        rate: bytes(Math.round(rate)),
      });
      if (moved.loaded === moved.total) text.textContent = t("upload.storing");
    });
    request.addEventListener("load", () => answered(request));
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
}
