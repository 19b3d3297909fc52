// @ts-check
/** A slider of two ends over the steps, which writes the bounds that a form sends. */

/** @typedef {{low: number, high: number}} Span */

/**
 * The form's values for two handles: an end that is not bounded is left out.
 * @param {Span} handles
 * @param {Span} all the lowest and the highest step
 * @returns {{from: string, to: string}}
 */
export function boundsOf(handles, all) {
  const { low, high } = ordered(handles);
  return { from: low > all.low ? String(low) : "", to: high < all.high ? String(high) : "" };
}

/**
 * Where the handles stand for bounds as they were typed: `below` is not inside.
 * @param {{from: string, to: string, below: string}} typed
 * @param {Span} all
 * @returns {Span}
 */
export function handlesOf(typed, all) {
  const inside = (/** @type {number} */ value) => Math.max(all.low, Math.min(all.high, value));
  const number = (/** @type {string} */ text, /** @type {number} */ other) =>
    text.trim() === "" ? other : Number(text);
  const ends = [number(typed.to, all.high), Math.ceil(number(typed.below, Infinity)) - 1];
  const low = Math.ceil(number(typed.from, all.low));
  const high = Math.floor(Math.min(...ends));
  return { low: inside(low || 0), high: inside(Number.isNaN(high) ? all.high : high) };
}

/**
 * One handle may be drawn past the other: then they have changed their parts.
 * @param {Span} handles
 * @returns {Span}
 */
export function ordered({ low, high }) {
  return { low: Math.min(low, high), high: Math.max(low, high) };
}

/**
 * Bind the slider of a form to its fields `step_from`, `step_to` and `step_below`.
 * @param {HTMLElement} box with two ranges and an output
 * @param {HTMLFormElement} form
 */
export function stepRange(box, form) {
  const [first, second] = /** @type {HTMLInputElement[]} */ (Array.from(box.querySelectorAll("input")));
  const output = /** @type {HTMLOutputElement} */ (box.querySelector("output"));
  const all = { low: Number(first.min), high: Number(first.max) };
  const field = (/** @type {string} */ end) => /** @type {HTMLInputElement} */ (form.elements.namedItem(`step_${end}`));
  const handles = () => ({ low: Number(first.value), high: Number(second.value) });

  function show() {
    const { low, high } = ordered(handles());
    const share = (/** @type {number} */ value) => String((value - all.low) / (all.high - all.low || 1));
    box.style.setProperty("--low-n", share(low));
    box.style.setProperty("--high-n", share(high));
    output.value = low === high ? String(low) : `${low} – ${high}`;
  }

  function read() {
    const typed = { from: field("from").value, to: field("to").value, below: field("below").value };
    const { low, high } = handlesOf(typed, all);
    first.value = String(low);
    second.value = String(high);
    show();
  }

  for (const range of [first, second])
    range.addEventListener("input", () => {
      const bounds = boundsOf(handles(), all);
      field("from").value = bounds.from;
      field("to").value = bounds.to;
      field("below").value = "";
      show();
    });
  for (const end of ["from", "to", "below"]) field(end).addEventListener("change", read);
  read();
  box.hidden = false;
}
