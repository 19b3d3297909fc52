// @ts-check
/** The files of a run that was trained elsewhere. */

import { t } from "../lib/dom.js";
import { size, uploadForm } from "../lib/upload.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("upload-form"));
const limit = Number(form.dataset.limit);
const most = Number(form.dataset.files);
const total = (/** @type {File[]} */ files) => files.reduce((sum, file) => sum + file.size, 0);

uploadForm({
  field: "id_uploads",
  chosen: (files) =>
    files.length === 1
      ? `${files[0].name} · ${size(files[0].size)}`
      : t("upload.chosen", { n: files.length, size: size(total(files)) }),
  problems(files) {
    if (files.length > most) return [t("upload.many", { n: files.length })];
    return total(files) > limit ? [t("upload.large", { limit: size(limit) })] : [];
  },
});
