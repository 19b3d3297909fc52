// @ts-check
/** Shows the options that matter to the chosen method, and what they multiply to. The form works without. */

import { h } from "../lib/dom.js";
import { scaleMatters } from "../lib/lab-view.js";
import { setControl } from "../lib/options.js";
import { showViews } from "./run_form.js";

const form = /** @type {HTMLFormElement | null} */ (document.getElementById("run-form"));

/** @param {string} name */
const control = (name) => /** @type {HTMLInputElement | null} */ (form?.elements.namedItem(name));

function show() {
  const kind = control("kind")?.value || "";
  for (const part of form?.querySelectorAll("[data-kinds]") ?? []) {
    /** @type {HTMLElement} */ (part).hidden = !(part.getAttribute("data-kinds") || "").split(" ").includes(kind);
  }
  const vllm = /** @type {HTMLElement | null} */ (form?.querySelector("[data-group='vllm']"));
  if (vllm && control("rollout.engine")?.value !== "vllm") vllm.hidden = true; // it matters where vLLM samples
  offerEndpoints(kind);
  offerScale();
}

/** Endpoints of the project play where nothing is trained; elsewhere they are not offered. @param {string} kind */
function offerEndpoints(kind) {
  const source = /** @type {HTMLSelectElement | null} */ (form?.querySelector("select[name='model.source']"));
  const plays = (form?.querySelector("[data-group='endpoint']")?.getAttribute("data-kinds") || "").split(" ");
  for (const option of source?.options ?? []) {
    if (!option.value.startsWith("endpoint:")) continue;
    option.hidden = option.disabled = !plays.includes(kind) && !option.selected;
  }
}

/** A choice that has no effect cannot be made, and says why. Its value still travels with the form. */
function offerScale() {
  const scale = /** @type {HTMLSelectElement | null} */ (form?.querySelector("select[name='grpo.scale_rewards']"));
  if (!scale || !form) return;
  const matters = scaleMatters(control("rewards.aggregation")?.value ?? "");
  if (scale.disabled === !matters) return;
  scale.disabled = !matters;
  const field = scale.closest(".field");
  field?.querySelector("[data-idle]")?.remove();
  form.querySelector("input[data-idle]")?.remove();
  if (matters) return;
  const note = /** @type {HTMLTemplateElement} */ (document.getElementById("scale-idle")).content.cloneNode(true);
  field?.append(note);
  form.append(h("input", { type: "hidden", name: scale.name, value: scale.value, "data-idle": "" }));
}

/** The options that make the job fit, put into the form where they can be seen. @param {string} values */
function setOptions(values) {
  for (const [name, value] of Object.entries(JSON.parse(values))) {
    const field = control(name);
    if (!field) continue;
    setControl(field, value);
    const fold = field.closest("details");
    if (fold) fold.open = true;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
  form?.dispatchEvent(new Event("options-set")); // where the view shows them
}

/** @param {MouseEvent} event */
function onMemoryClick(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  const values = target.closest("[data-set]")?.getAttribute("data-set");
  if (values) setOptions(values);
  if (target.closest("[data-memory-again]")) document.getElementById("memory")?.dispatchEvent(new Event("again"));
}

/** What the terms are made of stays open while their figures change. */
function keepFolds() {
  const memory = document.getElementById("memory");
  /** @type {Set<string>} */
  let open = new Set();
  const name = (/** @type {Element} */ fold) => fold.querySelector("summary > span")?.textContent ?? "";
  memory?.addEventListener("htmx:beforeSwap", () => {
    open = new Set([...memory.querySelectorAll("details[open]")].map(name));
  });
  memory?.addEventListener("htmx:afterSwap", () => {
    for (const fold of memory.querySelectorAll("details")) fold.open = open.has(name(fold));
  });
}

/** A problem in a folded or hidden option must be seen. */
function reveal() {
  for (const field of form?.querySelectorAll(".field[data-invalid]") ?? []) {
    const fold = field.closest("details");
    if (fold) fold.open = true;
  }
  form?.querySelector(".field[data-invalid]")?.scrollIntoView({ block: "center" });
}

document.getElementById("memory")?.addEventListener("click", onMemoryClick);
keepFolds();
if (form) {
  form.addEventListener("input", show);
  form.addEventListener("change", show);
  form.addEventListener(
    "invalid",
    (event) => {
      const fold = /** @type {HTMLElement} */ (event.target).closest("details");
      if (fold) fold.open = true;
    },
    true,
  );
  if (matchMedia("(max-width: 48rem)").matches) document.getElementById("gallery")?.removeAttribute("open");
  const sweep = /** @type {HTMLDetailsElement | null} */ (document.getElementById("sweep-fold"));
  if (sweep && location.hash === "#sweep") sweep.open = true;
  show();
  showViews(form);
  reveal();
}
