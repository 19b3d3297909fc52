// @ts-check
/** The rollout inspector: an address without empty filters, and keys that go through what was found. */
import { all, maybe, setText } from "../lib/dom.js";
import { step } from "../lib/rows.js";
import { stepRange } from "../lib/step_range.js";

const form = /** @type {HTMLFormElement | null} */ (maybe("inspector-form"));
const slider = maybe("step-range");
if (form && slider) stepRange(slider, form);
for (const box of all(document, "[data-pick]")) {
  nameChosen(box);
  box.addEventListener("change", () => nameChosen(box));
}

/** The head of a menu of boxes says which are checked. @param {HTMLElement} box */
function nameChosen(box) {
  const chosen = all(box, "input:checked").map((node) => node.nextElementSibling?.textContent ?? "");
  const { none = "", many = "" } = box.dataset;
  const words = chosen.length > 1 ? many.replace("{n}", String(chosen.length)) : (chosen[0] ?? none);
  setText(box.querySelector("summary"), words);
}

document.addEventListener("htmx:configRequest", (event) => {
  const detail = /** @type {CustomEvent} */ (event).detail;
  if (detail.elt !== form) return;
  for (const [name, value] of [...detail.formData.entries()]) if (value === "") detail.formData.delete(name);
});

form?.addEventListener("submit", () => {
  if (form.hasAttribute("hx-get") && "htmx" in window) return;
  for (const field of form.querySelectorAll("input, select"))
    if (/** @type {HTMLInputElement} */ (field).value === "") field.setAttribute("disabled", "");
});

document.addEventListener("keydown", (event) => {
  const target = /** @type {Element} */ (event.target);
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.closest("input, textarea, select, dialog")) return;
  if (event.key === "/") maybe("inspector-q")?.focus();
  else if (event.key === "j" || event.key === "k") step(document, ".found-place", event.key === "j" ? 1 : -1);
  else return;
  event.preventDefault();
});
