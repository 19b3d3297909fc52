// @ts-check
/** The form of a new environment: a built-in server brings its own limits, until a person sets others. */
import { data } from "../lib/dom.js";

const resources = data("environment-resources") || {};
const form = /** @type {HTMLFormElement} */ (document.getElementById("environment-form"));
const field = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
const touched = new Set();

for (const name of ["memory_mb", "cpus", "name"]) field(name).addEventListener("input", () => touched.add(name));
field("program").addEventListener("change", suggest);
suggest();

function suggest() {
  const program = field("program").value;
  if (!resources[program]) return;
  for (const name of ["memory_mb", "cpus"]) if (!touched.has(name)) field(name).value = String(resources[program][name]);
}
