// @ts-check
/** The list of rollouts: an address without empty filters, steps, and keys that go through what was found. */
import { all, maybe, setText } from "../lib/dom.js";
import { stepRange } from "../lib/step_range.js";
import { paneKey, startPane } from "./inspector_pane.js";

const OF_STEPS = ["step_from", "step_to", "step_below", "newest"];
const STEP = "000000000";
const form = /** @type {HTMLFormElement | null} */ (maybe("inspector-form"));
const slider = maybe("step-range");
if (form && slider) stepRange(slider, form);
for (const box of all(document, "[data-pick]")) {
  nameChosen(box);
  box.addEventListener("change", () => nameChosen(box));
}
startPane();

/** The head of a menu of boxes says which are checked. @param {HTMLElement} box */
function nameChosen(box) {
  const chosen = all(box, "input:checked").map((node) => node.nextElementSibling?.textContent ?? "");
  const { none = "", many = "" } = box.dataset;
  const words = chosen.length > 1 ? many.replace("{n}", String(chosen.length)) : (chosen[0] ?? none);
  setText(box.querySelector("summary"), words);
}

/** @param {string} name */
const field = (name) => /** @type {HTMLInputElement | null} */ (form?.elements.namedItem(name) ?? null);

/** Steps are links too, outside of the form: its fields follow the address. */
function followAddress() {
  const query = new URLSearchParams(location.search);
  for (const name of OF_STEPS) {
    const node = field(name);
    if (node) node.value = query.get(name) ?? "";
  }
  field("step_from")?.dispatchEvent(new Event("change")); // the slider hears it, the form does not
}

document.addEventListener("htmx:pushedIntoHistory", followAddress);

form?.addEventListener("input", (event) => {
  const node = /** @type {HTMLInputElement} */ (event.target);
  const newest = field("newest");
  if (newest && (node.name.startsWith("step_") || node.closest("#step-range"))) newest.value = "";
});

document.addEventListener("htmx:configRequest", (event) => {
  const detail = /** @type {CustomEvent} */ (event).detail;
  if (detail.elt !== form) return;
  for (const [name, value] of [...detail.formData.entries()]) if (value === "") detail.formData.delete(name);
});

form?.addEventListener("submit", () => {
  if (form.hasAttribute("hx-get") && "htmx" in window) return;
  for (const node of form.querySelectorAll("input, select"))
    if (/** @type {HTMLInputElement} */ (node).value === "") node.setAttribute("disabled", "");
});

document.addEventListener("change", (event) => {
  const node = /** @type {HTMLInputElement} */ (event.target);
  if (!node.matches("#step-input, #step-scrub") || !/^\d{1,9}$/.test(node.value)) return;
  location.href = (maybe("found-steps")?.dataset.to ?? "").replaceAll(STEP, node.value);
});

document.addEventListener("keydown", (event) => {
  const target = /** @type {Element} */ (event.target);
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.closest("input, textarea, select, dialog, summary")) return;
  const key = { ArrowLeft: "step-back", ArrowRight: "step-next" }[event.key];
  const link = /** @type {HTMLElement | null} */ (key ? document.querySelector(`[data-key="${key}"][href]`) : null);
  if (event.key === "/") maybe("inspector-q")?.focus();
  else if (link) link.click();
  else if (!paneKey(event)) return;
  event.preventDefault();
});
