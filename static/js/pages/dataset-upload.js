// @ts-check
/** The files of a dataset; the name of the first is proposed as the dataset's. */

import { t } from "../lib/dom.js";
import { chosenWords, tooMuch, uploadForm } from "../lib/upload.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("upload-form"));
const hub = /** @type {HTMLInputElement} */ (document.getElementById("id_hub"));

/** @param {string} name */
const plainName = (name) =>
  name.replace(/\.[^.]*$/, "").replace(/[^\p{L}\p{N}_ .()+-]/gu, "-").replace(/^[^\p{L}\p{N}_]+/u, "").slice(0, 80); // prettier-ignore

uploadForm({
  field: "id_file",
  chosen(files) {
    const name = /** @type {HTMLInputElement} */ (form.elements.namedItem("name"));
    if (!name.value) name.value = plainName(files[0].name);
    return chosenWords(files, t);
  },
  problems: (files) => tooMuch(files, { bytes: Number(form.dataset.limit), files: Number(form.dataset.files) }, t),
  plain: () => Boolean(hub.value.trim()),
});
