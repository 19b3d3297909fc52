// @ts-check
/** The file of a dataset; its name is proposed as the dataset's. */

import { t } from "../lib/dom.js";
import { size, uploadForm } from "../lib/upload.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("upload-form"));
const hub = /** @type {HTMLInputElement} */ (document.getElementById("id_hub"));
const limit = Number(form.dataset.limit);

/** @param {string} name */
const plainName = (name) =>
  name.replace(/\.[^.]*$/, "").replace(/[^\p{L}\p{N}_ .()+-]/gu, "-").replace(/^[^\p{L}\p{N}_]+/u, "").slice(0, 80); // prettier-ignore

uploadForm({
  field: "id_file",
  chosen([file]) {
    const name = /** @type {HTMLInputElement} */ (form.elements.namedItem("name"));
    if (!name.value) name.value = plainName(file.name);
    return `${file.name} · ${size(file.size)}`;
  },
  problems: ([file]) => (file.size > limit ? [t("upload.large", { limit: size(limit) })] : []),
  plain: () => Boolean(hub.value.trim()),
});
