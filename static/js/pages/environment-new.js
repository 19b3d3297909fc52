// @ts-check
/** The form of a new environment: a built-in server brings its own limits and options. */
import { data } from "../lib/dom.js";

const resources = data("environment-resources") || {};
const form = /** @type {HTMLFormElement} */ (document.getElementById("environment-form"));
const field = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
const touched = new Set();
// A form that came back keeps what was written into it.
if (form.querySelector(".errorlist, .notice")) for (const name of ["memory_mb", "cpus"]) touched.add(name);

for (const name of ["memory_mb", "cpus", "name"]) field(name).addEventListener("input", () => touched.add(name));
form.addEventListener("change", suggest);
field("image").addEventListener("input", suggest);
suggest();

/** The built-in server that is chosen, also as the image of ours that holds it. */
function program() {
  const kind = /** @type {RadioNodeList} */ (form.elements.namedItem("kind")).value;
  if (kind !== "docker") return kind === "process" ? field("program").value : "";
  const name = field("image").value.trim().split("@")[0].split("/").pop() || "";
  const own = name.startsWith("tiltyard-env-") && field("protocol").value === "openenv";
  return own ? name.slice("tiltyard-env-".length).split(":")[0] : "";
}

function suggest() {
  const chosen = program();
  for (const group of form.querySelectorAll("[data-program]")) {
    /** @type {HTMLElement} */ (group).hidden = /** @type {HTMLElement} */ (group).dataset.program !== chosen;
  }
  if (!resources[chosen]) return;
  for (const name of ["memory_mb", "cpus"]) if (!touched.has(name)) field(name).value = String(resources[chosen][name]);
}
