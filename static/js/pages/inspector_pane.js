// @ts-check
/** The transcript next to the list of rollouts: the chosen one, kept in the address. On phones it lies below its row. */
import { showReasons } from "./rollout_reasons.js";
import { all, h, maybe, setAttr } from "../lib/dom.js";
import { shownAfter, withRollout } from "../lib/found.js";
import { step } from "../lib/rows.js";

const NO_ROLLOUT = "00000000-0000-0000-0000-000000000000";
const SETTLED_MS = 120; // between rows that the keyboard goes through
const REASONS_MS = 600; // before a process is asked for reasons: rows may be passed quickly
const AT_END = 40; // pixels
const narrow = matchMedia("(max-width: 64rem)");
let chosen = new URLSearchParams(location.search).has("rollout"); // by a person
let winner = true;
let closed = false;
/** @type {{id: string, top: number, atEnd: boolean} | null} */
let scrolled = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let asking;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let explaining;

const pane = () => maybe("found-pane");
const places = () => all(document, ".found-place");
const shown = () => pane()?.dataset.rollout ?? "";

/** Ask the server for the chosen rollout. */
function ask() {
  const box = pane();
  if (!box || !shown()) return;
  const url = (box.dataset.url ?? "").replace(NO_ROLLOUT, shown()) + (winner ? "" : "&winner=no");
  const { htmx } = /** @type {any} */ (window);
  htmx.ajax("GET", url, { source: box, target: box, swap: "innerHTML" })?.catch(() => {}); // another one was chosen
}

/** Mark the chosen row, and put the transcript where it belongs. */
function settle() {
  const box = pane();
  const home = maybe("found-reader");
  if (!box || !home) return;
  const id = shown();
  box.hidden = !id || (closed && narrow.matches);
  for (const node of all(document, "[data-rollout]:is(.found-place, .found-members > a)"))
    setAttr(node, "aria-current", node.dataset.rollout === id ? "true" : null);
  const stop = places().find((node) => node.dataset.rollout === id) ?? places()[0];
  for (const node of places()) setAttr(node, "tabindex", node === stop ? "0" : "-1"); // the arrow keys go on from it
  const row = document.querySelector(`.found-row[data-row="${CSS.escape(id)}"]`);
  if (narrow.matches && row) {
    if (row.nextElementSibling !== box.parentElement) row.after(h("li", { class: "found-pane-row" }, box));
  } else if (box.parentElement !== home) home.append(box);
  for (const item of all(document, ".found-pane-row")) if (!item.contains(box)) item.remove();
}

/**
 * Show a rollout next to the list.
 * @param {string} id
 * @param {number} [wait] milliseconds
 */
function choose(id, wait = 0) {
  const box = pane();
  if (!box) return;
  chosen = true;
  closed = false;
  setAttr(box, "data-rollout", id);
  history.replaceState(history.state, "", location.pathname + withRollout(location.search, id));
  settle();
  clearTimeout(asking);
  asking = setTimeout(ask, wait);
}

/** @param {1 | -1} by */
function neighbour(by) {
  const listed = places();
  const at = listed.findIndex((node) => node.dataset.rollout === shown());
  if (!listed.includes(/** @type {HTMLElement} */ (document.activeElement))) listed[at]?.focus();
  step(document, ".found-place", by);
  const id = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.rollout;
  if (id && id !== shown()) choose(id, SETTLED_MS);
}

/** The list was drawn again: what was being read stays. */
function redrawn() {
  const first = places().find((node) => node.hasAttribute("aria-current"))?.dataset.rollout ?? "";
  const listed = places().map((node) => node.dataset.rollout ?? "");
  const before = shown();
  const next = shownAfter({ shown: before, chosen, listed, first });
  if (next) setAttr(pane(), "data-rollout", next);
  settle();
  if (next !== before) ask();
}

/** The pane leaves a list that is about to be replaced. */
function rescue() {
  const [box, home] = [pane(), maybe("found-reader")];
  if (box && home && box.parentElement !== home) home.append(box);
}

function remember() {
  const body = pane()?.querySelector(".pane-body");
  const left = body ? body.scrollHeight - body.scrollTop - body.clientHeight : 0;
  scrolled = body ? { id: body.getAttribute("data-of") ?? "", top: body.scrollTop, atEnd: left < AT_END } : null;
}

/** A transcript came: one in flight that was read to its end is followed. */
function arrived() {
  const body = pane()?.querySelector(".pane-body");
  if (body && scrolled && scrolled.id === body.getAttribute("data-of"))
    body.scrollTop = scrolled.atEnd && body.querySelector(".waiting") ? body.scrollHeight : scrolled.top;
  clearTimeout(explaining);
  explaining = setTimeout(() => showReasons(maybe("reward"), shown()), REASONS_MS);
}

/** @param {MouseEvent} event */
function onClick(event) {
  const target = /** @type {Element} */ (event.target);
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  const act = target.closest("[data-pane]")?.getAttribute("data-pane");
  if (act === "close") {
    closed = true;
    settle();
  } else if (act) neighbour(act === "next" ? 1 : -1);
  const toggle = target.closest("#found-pane [data-winner]");
  if (toggle) {
    event.preventDefault();
    winner = !winner;
    ask();
  }
  const link = /** @type {HTMLElement | null} */ (target.closest(".found-side a[data-rollout]"));
  const id = link?.dataset.rollout ?? "";
  if (!id || (event.detail === 0 && id === shown())) return; // Enter opens the page of the row that is shown
  event.preventDefault();
  choose(id);
  if (narrow.matches) pane()?.scrollIntoView({ block: "nearest" });
}

/** @param {KeyboardEvent} event */
export function paneKey(event) {
  const reading = /** @type {Element} */ (event.target).closest(".pane-body");
  if (event.key === "j" || (event.key === "ArrowDown" && !reading)) neighbour(1);
  else if (event.key === "k" || (event.key === "ArrowUp" && !reading)) neighbour(-1);
  else return false;
  return true;
}

/** Begin with the rollout that the server chose. */
export function startPane() {
  document.addEventListener("click", onClick);
  narrow.addEventListener("change", settle);
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target } = /** @type {CustomEvent} */ (event).detail;
    if (target.id === "found-list") rescue();
    else if (target.id === "found-pane") remember();
    else if (target.id === "inspector-found") chosen = false; // another view begins with its own first failure
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const { target } = /** @type {CustomEvent} */ (event).detail;
    if (target.id === "found-pane") arrived();
    else if (target.id === "found-list") redrawn();
    else if (target.id === "inspector-found") begin();
  });
  begin();
}

function begin() {
  settle();
  ask();
}
