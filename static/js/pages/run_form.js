// @ts-check
/** The views of the form of a new run: recipe, changed, all, and a search over its options. The form works without. */

import { isChanged, shownOptions } from "../lib/form-views.js";

/** @typedef {import("../lib/form-views.js").Option} Option */

/** @param {Element} field */
function valueOf(field) {
  const controls = /** @type {HTMLInputElement[]} */ ([...field.querySelectorAll("input, select, textarea")]);
  const [first] = controls;
  if (first?.type === "checkbox" && controls.length === 1) return String(first.checked);
  if (first?.type === "checkbox") return controls.flatMap((tick) => (tick.checked ? [tick.value] : [])).join("\n");
  return first?.value ?? "";
}

/** @param {HTMLElement} field @returns {Option} */
const optionOf = (field) => ({
  path: field.dataset.path ?? "",
  words: `${field.querySelector("label")?.textContent} ${field.dataset.path} ${field.querySelector(".field-help")?.textContent}`,
  basic: field.dataset.basic !== undefined,
  value: valueOf(field),
  fallback: field.dataset.default ?? "",
});

/** Show the view that is chosen, and keep it in step with the form. @param {HTMLFormElement} form */
export function showViews(form) {
  const bar = document.getElementById("form-views");
  const search = /** @type {HTMLInputElement | null} */ (document.getElementById("option-search"));
  const words = document.getElementById("form-views-words");
  if (!bar || !search || !words) return;
  const named = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  let view = named || form.querySelector(".field[data-invalid]") ? "all" : "recipe";

  function show() {
    const query = search?.value ?? "";
    const fields = /** @type {HTMLElement[]} */ ([
      ...form.querySelectorAll("[data-kinds]:not([hidden]) .field[data-path]"),
    ]);
    const options = new Map(fields.map((field) => [field, optionOf(field)]));
    const shown = new Set(shownOptions([...options.values()], view, query));
    for (const [field, option] of options) field.hidden = !shown.has(option);
    form.dataset.view = query.trim() ? "search" : view;
    for (const fold of form.querySelectorAll("#options details.fold")) {
      const some = fold.querySelector(".field:not([hidden])") !== null;
      /** @type {HTMLElement} */ (fold).hidden = !some;
      if (form.dataset.view !== "all") /** @type {HTMLDetailsElement} */ (fold).open = some;
    }
    for (const card of form.querySelectorAll("#options [data-group]")) {
      card.toggleAttribute("data-empty", card.querySelector(".field:not([hidden])") === null);
    }
    const changed = [...options.values()].filter(isChanged).length;
    const count = document.getElementById("changed-count");
    if (count) count.textContent = String(changed);
    const none = query.trim() ? words?.dataset.none : words?.dataset.unchanged;
    if (words) words.textContent = shown.size ? "" : (none ?? "");
    for (const button of bar?.querySelectorAll("[data-view]") ?? []) {
      button.setAttribute("aria-pressed", String(!query.trim() && button.getAttribute("data-view") === view));
    }
  }

  function showAll() {
    if (search) search.value = "";
    view = "all";
    show();
  }

  bar.hidden = false;
  bar.addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("[data-view]");
    if (!button) return;
    view = button.getAttribute("data-view") ?? view;
    search.value = "";
    show();
  });
  search.addEventListener("input", (event) => {
    event.stopPropagation(); // no option of the job
    show();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault();
  });
  form.addEventListener("change", show);
  form.addEventListener("invalid", showAll, true); // a browser cannot name what is wrong in a field that is hidden
  form.addEventListener("options-set", () => {
    view = view === "recipe" ? "changed" : view;
    show();
  });
  show();
  const fold = named?.closest("details");
  if (fold) fold.open = true;
  named?.scrollIntoView({ block: "center" });
  named?.focus();
}
