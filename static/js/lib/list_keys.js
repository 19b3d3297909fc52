// @ts-check
/** Keys of lists: j and k go from row to row, Enter opens the row's link, x chooses the row, ? says which keys there are. */
import { BUSY } from "./keys.js";
import { nextRow } from "./rows.js";

const LINK = "td.cell-main a[href]";
/** @type {Record<string, 1 | -1>} */
const WAYS = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 };

/**
 * Which way a key leads: arrows scroll the page until a row has the focus.
 * @param {string} key
 * @param {boolean} inRow
 * @returns {1 | -1 | 0}
 */
export const wayOf = (key, inRow) => (key.startsWith("Arrow") && !inRow ? 0 : (WAYS[key] ?? 0));

/** The link of each row; rows without one are passed over. */
const links = () => [...document.querySelectorAll("main tbody tr")].flatMap((row) => row.querySelector(LINK) ?? []);
const rowOfFocus = () => document.activeElement?.closest("main tbody tr") ?? null;

/** @param {1 | -1} way */
function go(way) {
  const all = links();
  const at = all.findIndex((link) => link.closest("tr") === rowOfFocus());
  /** @type {HTMLElement | undefined} */ (all[nextRow(at, all.length, way)])?.focus();
}

/**
 * @param {string} key
 * @returns {boolean} whether it was for us
 */
function act(key) {
  const row = rowOfFocus();
  const way = wayOf(key, row !== null);
  const box = key === "x" ? /** @type {HTMLElement | null} */ (row?.querySelector("input.pick") ?? null) : null;
  const field =
    key === "/" ? /** @type {HTMLElement | null} */ (document.querySelector("main input[type=search]")) : null;
  if (way) go(way);
  box?.click();
  field?.focus();
  return Boolean(way || box || field);
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const dialog = document.getElementById("list-keys");
  const target = /** @type {Element} */ (event.target);
  if (
    !(dialog instanceof HTMLDialogElement) ||
    event.defaultPrevented ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey
  )
    return;
  if (target.closest(BUSY) && !target.matches("input.pick") && !(event.key === "?" && target.closest("[data-grid]")))
    return;
  if (event.key === "?") dialog.showModal();
  else if (dialog.hasAttribute("data-own") || !act(event.key)) return;
  event.preventDefault();
}

/** On pages that have the list of their keys. */
export function listKeys() {
  document.addEventListener("keydown", onKey);
}
