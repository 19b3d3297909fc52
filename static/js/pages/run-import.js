// @ts-check
/** The files of a run that was trained elsewhere. */

import { t } from "../lib/dom.js";
import { chosenWords, tooMuch, uploadForm } from "../lib/upload.js";

const { limit, files: most } = /** @type {HTMLFormElement} */ (document.getElementById("upload-form")).dataset;

uploadForm({
  field: "id_uploads",
  chosen: (files) => chosenWords(files, t),
  problems: (files) => tooMuch(files, { bytes: Number(limit), files: Number(most) }, t),
});
