// @ts-check
/** Voting by keyboard alone. A key presses its button; htmx sends the form and swaps the next ballot in. */

import { maybe, setAttr } from "../lib/dom.js";
import { keyOf } from "../lib/vote.js";

const OWN_KEYS = "input, textarea, select, [contenteditable], details.menu[open]";
let sending = false;

/** @param {KeyboardEvent} event */
function onKey(event) {
  const target = /** @type {Element} */ (event.target);
  const key = keyOf(event, target.closest(OWN_KEYS) !== null);
  const button = key ? document.querySelector(`#ballot [data-key="${key}"]`) : null;
  if (!(button instanceof HTMLButtonElement)) return;
  event.preventDefault(); // arrows would scroll
  if (!event.repeat && !sending) button.click();
}

/** @param {boolean} now */
function send(now) {
  sending = now;
  setAttr(maybe("ballot"), "data-sending", now ? "" : null);
}

function unsent() {
  send(false);
  maybe("vote-unsent")?.removeAttribute("hidden");
}

document.addEventListener("keydown", onKey);
document.addEventListener("htmx:beforeRequest", () => {
  send(true);
  maybe("vote-unsent")?.setAttribute("hidden", "");
});
document.addEventListener("htmx:afterRequest", () => send(false));
for (const failure of ["htmx:sendError", "htmx:responseError", "htmx:timeout"])
  document.addEventListener(failure, unsent);
document.addEventListener("htmx:afterSwap", () => {
  /** @type {HTMLElement | null} */ (document.querySelector("#ballot h1"))?.focus({ preventScroll: true });
});
