// @ts-check
/** Common to all pages: menus, the rail, dialogs, the palette, copying, looks, toasts, cards of runs, HTMX errors. */
import { marksOfLists } from "./lib/changed.js";
import { h, icon, setText, t } from "./lib/dom.js";
import { ago } from "./lib/format.js";
import { listKeys } from "./lib/list_keys.js";
import { keepOwn } from "./lib/morph.js";
import { palette } from "./lib/palette.js";
import { previews } from "./lib/preview.js";
import { answerClicks } from "./lib/taken.js";

/**
 * Show a short message in the corner.
 * @param {string} text
 * @param {"info" | "success" | "warning" | "error"} [kind]
 */
export function toast(text, kind = "info") {
  const box = document.getElementById("toasts");
  if (!box) return;
  const close = h(
    "button",
    { class: "button button-quiet button-icon button-small", "aria-label": t("close") },
    icon("close"),
  );
  const note = h("div", { class: "notice", "data-kind": kind }, h("p", {}, text), close);
  close.addEventListener("click", () => note.remove());
  box.append(note);
  while (box.children.length > 4) box.firstElementChild?.remove();
  if (kind !== "error") setTimeout(() => note.remove(), 6000);
}

/** @param {Event} event */
function onClick(event) {
  const target = /** @type {Element} */ (event.target);
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(target)) menu.removeAttribute("open");
  }
  const opener = target.closest("[data-dialog]");
  if (opener) {
    const dialog = document.getElementById(opener.getAttribute("data-dialog") || "");
    if (dialog instanceof HTMLDialogElement) dialog.showModal();
  }
  if (target.closest("[data-dialog-close]")) target.closest("dialog")?.close();
  if (target instanceof HTMLDialogElement && target.classList.contains("dialog")) target.close(); // the backdrop
  const copier = target.closest("[data-copy]");
  if (copier) copy(document.querySelector(copier.getAttribute("data-copy") || "")?.textContent || "");
  onRail(event, target);
}

/**
 * @param {Event} event
 * @param {Element} target
 */
function onRail(event, target) {
  const rail = document.getElementById("rail");
  if (!rail) return;
  if (target.closest("[data-rail-open]")) {
    event.preventDefault();
    rail.setAttribute("data-open", "");
    /** @type {HTMLElement | null} */ (rail.querySelector("a, summary"))?.focus();
  } else if (target.closest("[data-rail-close]") || !rail.contains(target)) rail.removeAttribute("data-open");
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (event.key !== "Escape") return;
  document.getElementById("rail")?.removeAttribute("data-open");
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.removeAttribute("open");
    if (menu.contains(document.activeElement)) menu.querySelector("summary")?.focus();
  }
}

/**
 * Put text on the clipboard and say whether it worked. Pages without TLS have only the old way.
 * @param {string} text
 */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "visually-hidden" });
    /** @type {HTMLTextAreaElement} */ (area).value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area); // all else is inert behind a dialog
    /** @type {HTMLTextAreaElement} */ (area).select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) return toast(t("not_copied"), "error");
  }
  toast(t("copied"), "success");
}

/** @param {SubmitEvent} event */
function onSubmit(event) {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.matches("[data-looks-form]")) {
    event.preventDefault();
    const button = /** @type {HTMLButtonElement} */ (event.submitter);
    setLook(button.name, button.value);
    for (const other of form.querySelectorAll(`button[name="${button.name}"]`))
      other.setAttribute("aria-pressed", String(other === button));
    const shown = form.parentElement?.querySelector("summary .icon");
    const chosen = button.querySelector(".icon");
    if (shown && chosen) shown.replaceWith(chosen.cloneNode(true));
    form.closest("details")?.removeAttribute("open");
    return;
  }
}

/**
 * @param {string} name theme or density
 * @param {string} value
 */
function setLook(name, value) {
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `tiltyard-${name}=${value}; Path=/; Max-Age=31536000; SameSite=Lax${secure}`;
  document.documentElement.dataset[name] = value;
  document.dispatchEvent(new CustomEvent("tiltyard:theme"));
}

function freshenTimes() {
  for (const node of document.querySelectorAll("time[data-ago]")) {
    const at = Date.parse(node.getAttribute("datetime") || "");
    if (!Number.isNaN(at)) setText(node, ago((Date.now() - at) / 1000, t));
  }
}

/** @param {any} event */
function onHtmxError(event) {
  const answer = event.detail?.xhr;
  if (!answer || answer.status === 0) return toast(t("offline"), "error");
  if (answer.status === 401) return toast(t("logged_out"), "error");
  if (answer.status === 403) return toast(t("forbidden"), "error");
  toast(t("request_failed", { status: answer.status, id: answer.getResponseHeader("X-Request-Id") || "–" }), "error");
}

/** Lists that show something at work ask for themselves again, but only while someone looks. */
function liveTick() {
  if (document.visibilityState === "visible" && document.querySelector('[hx-trigger^="live-tick"]')) {
    document.dispatchEvent(new CustomEvent("live-tick"));
  }
}

/** Times grow older on every page; the bell asks whether there is news, but only while someone looks. */
function slowTick() {
  freshenTimes();
  if (document.visibilityState === "visible") document.dispatchEvent(new CustomEvent("slow-tick"));
}

document.addEventListener("change", (event) => {
  const field = /** @type {HTMLSelectElement} */ (event.target);
  if (field.matches("[data-autosubmit]")) field.form?.requestSubmit();
});
document.addEventListener("visibilitychange", liveTick);
document.addEventListener("visibilitychange", slowTick);
setInterval(liveTick, 4000);
document.addEventListener("click", onClick);
document.addEventListener("keydown", onKey);
document.addEventListener("submit", onSubmit);
document.addEventListener("htmx:responseError", onHtmxError);
document.addEventListener("htmx:sendError", onHtmxError);
document.addEventListener("htmx:afterSettle", freshenTimes);
setInterval(slowTick, 30000);
freshenTimes();
answerClicks(toast);
palette();
listKeys();
keepOwn();
previews();
marksOfLists();
// Charts have the colours of their page, which on paper is light.
matchMedia("print").addEventListener("change", () => document.dispatchEvent(new CustomEvent("tiltyard:theme")));
if (location.hash === "#rail") history.replaceState(null, "", location.pathname + location.search);
