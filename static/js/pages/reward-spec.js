// @ts-check
/** The live sum of weights, sliders next to them, and a button that makes them sum to 1. The form works without. */

const form = /** @type {HTMLFormElement} */ (document.getElementById("reward-form"));
const shown = /** @type {HTMLElement} */ (document.getElementById("weight-sum"));
const normalise = /** @type {HTMLButtonElement} */ (document.getElementById("normalise"));

const parts = [...form.querySelectorAll("[data-component]")].map((card) => ({
  on: /** @type {HTMLInputElement} */ (card.querySelector('input[type="checkbox"][name$=".on"]')),
  weight: /** @type {HTMLInputElement} */ (card.querySelector('input[name$=".weight"]')),
  range: /** @type {HTMLInputElement} */ (card.querySelector("[data-range]")),
}));

const chosen = () => parts.filter((part) => part.on.checked && Number.isFinite(part.weight.valueAsNumber));
const sum = () => chosen().reduce((total, part) => total + part.weight.valueAsNumber, 0);

function show() {
  const total = sum();
  shown.textContent = chosen().length ? String(Math.round(total * 1e4) / 1e4) : shown.dataset.unknown || "";
  normalise.hidden = !(total > 0) || Math.abs(total - 1) < 1e-9;
  for (const part of parts) {
    part.range.disabled = part.weight.disabled = false;
    part.range.value = String(part.weight.valueAsNumber || 0);
  }
}

for (const part of parts) {
  part.range.hidden = false;
  part.range.addEventListener("input", () => {
    part.weight.value = part.range.value;
    show();
  });
  part.weight.addEventListener("input", () => {
    part.on.checked = true;
    show();
  });
  part.on.addEventListener("change", show);
}

normalise.addEventListener("click", () => {
  const total = sum();
  const list = chosen();
  const rounded = list.map((part) => Math.round((part.weight.valueAsNumber / total) * 1e4) / 1e4);
  // What rounding left over goes to the largest, so that the weights sum to 1 exactly as shown.
  const largest = rounded.indexOf(Math.max(...rounded));
  const rest = rounded.reduce((left, value, index) => (index === largest ? left : left - value), 1);
  rounded[largest] = Math.round(rest * 1e4) / 1e4;
  list.forEach((part, index) => (part.weight.value = String(rounded[index])));
  show();
});

show();
