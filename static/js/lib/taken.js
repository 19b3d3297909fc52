// @ts-check
/**
 * Every click is answered at once: what was pressed is marked until the server has answered, a result that is certain
 * is painted before, and a wait is put into words after a second. Every wait ends.
 */
import { h, setAttr, setText, t } from "./dom.js";

export const LIMIT_MS = 30_000;
const DOWNLOAD_MS = 4000; // no event says that a file came
const WORDS_MS = [1000, 5000, 10_000, 20_000];
const JUST_NOW_MS = 100;
const MAX_LABEL = 60;
const SENDS = new Set(["click", "submit"]);
const BY_PERSON = new Set([...SENDS, "change", "input", "search"]);

/** @typedef {(sentence: string, kind: "error") => void} Say */
/** @typedef {{inert?: Element | null, part?: Element | null, limitMs?: number, late?: () => void}} More */

/** @type {Set<Taken>} */
const open = new Set();
/** @type {{node: Element, at: number} | null} */
let pressed = null;

/**
 * The words of what was pressed, in one line.
 * @param {Pick<Element, "getAttribute" | "textContent"> | null} node
 * @returns {string}
 */
export function labelOf(node) {
  const words = (node?.getAttribute("aria-label") || node?.textContent || "").trim().replace(/\s+/g, " ");
  return words.length > MAX_LABEL ? `${words.slice(0, MAX_LABEL - 1)}…` : words;
}

/** One click that has no answer yet. */
export class Taken {
  /**
   * @param {Element | null} node what was pressed
   * @param {More} [more] `inert`: the form that may not be sent again, `part`: what the answer replaces on the page
   */
  constructor(node, more = {}) {
    this.inert = more.inert ?? null;
    this.label = labelOf(node);
    this.marked = [node, node?.closest("details.menu")?.querySelector("summary"), more.part].filter((one) => !!one);
    for (const one of this.marked) {
      setAttr(one, "data-taken", one === more.part ? "part" : "");
      setAttr(one, "aria-busy", "true");
    }
    if (this.inert) setAttr(node, "aria-disabled", "true");
    this.undo = paint(node);
    /** @type {HTMLElement | null} */
    this.note = null;
    this.timers = WORDS_MS.map((ms) => setTimeout(() => this.say(ms / 1000), ms));
    this.timers.push(setTimeout(() => (this.end(false), more.late?.()), more.limitMs ?? LIMIT_MS));
    open.add(this);
    document.documentElement.dataset.taken = "";
  }

  /** @param {number} n seconds */
  say(n) {
    this.note ??= h("div", { class: "notice", "data-kind": "info", "data-wait": true }, h("p"));
    setText(this.note.firstElementChild, t(this.label ? "waiting_for" : "waiting", { what: this.label, n }));
    document.getElementById("toasts")?.append(this.note);
  }

  /** @param {boolean} done whether what was painted is so now */
  end(done) {
    if (!open.delete(this)) return;
    this.timers.forEach(clearTimeout);
    this.note?.remove();
    for (const one of this.marked)
      for (const name of ["data-taken", "aria-busy", ...(this.inert ? ["aria-disabled"] : [])])
        setAttr(one, name, null);
    if (!done) this.undo?.();
    if (!open.size) delete document.documentElement.dataset.taken;
  }
}

/**
 * Paint a result that is certain, as `data-at-once` of a button, or of what is around it, names it.
 * @param {Element | null} node
 * @returns {(() => void) | null} takes it back
 */
function paint(node) {
  const how = node?.closest("[data-at-once]")?.getAttribute("data-at-once");
  if (!node || !how) return null;
  if (how === "pressed") return press([node], node.getAttribute("aria-pressed") === "true" ? null : node);
  if (how === "chosen") return press([...(node.closest("form")?.querySelectorAll("button[value]") ?? [])], node);
  const row = node.closest("li, article, tr, .notice");
  const name = how === "read" ? "data-unread" : "hidden";
  row?.toggleAttribute(name);
  return () => row?.toggleAttribute(name);
}

/**
 * @param {Element[]} nodes
 * @param {Element | null} chosen
 */
function press(nodes, chosen) {
  const before = nodes.map((node) => node.getAttribute("aria-pressed"));
  for (const node of nodes) setAttr(node, "aria-pressed", String(node === chosen));
  return () => nodes.forEach((node, place) => setAttr(node, "aria-pressed", before[place]));
}

const justPressed = () => (pressed && performance.now() - pressed.at < JUST_NOW_MS ? pressed.node : null);

/**
 * Mark the button that a script's request comes from, until its answer.
 * @param {Promise<unknown>} answer
 */
export function takeUntil(answer) {
  const node = justPressed();
  if (!node?.matches("button")) return;
  const taken = new Taken(node);
  answer.then(
    () => taken.end(true),
    () => taken.end(false),
  );
}

/** @param {Element | null} form */
const isSent = (form) => [...open].some((one) => one.inert !== null && one.inert === form);

/**
 * A form that the browser itself sends.
 * @param {SubmitEvent} event
 * @param {Say} say
 */
function onSubmit(event, say) {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (event.defaultPrevented || form.getAttribute("method") !== "post") return;
  if (isSent(form)) return event.preventDefault();
  if (!navigator.onLine) {
    event.preventDefault(); // else the browser's own page would take the place of what was typed
    return say(t("offline"), "error");
  }
  new Taken(event.submitter ?? form.querySelector("button:not([type=button])"), {
    inert: form,
    ...limitOf(event.submitter, say),
  });
}

/**
 * Until when an answer is waited for, and what is said then.
 * @param {Element | null} node
 * @param {Say} say
 * @returns {More}
 */
function limitOf(node, say) {
  if (node?.closest("[data-download]")) return { limitMs: DOWNLOAD_MS };
  return { late: () => say(t("no_answer", { n: LIMIT_MS / 1000 }), "error") };
}

/**
 * The page is about to be left: by a link, a form, or a script.
 * @param {Event} event
 * @param {Say} say
 */
function onLeave(event, say) {
  const node = justPressed();
  if (node instanceof HTMLAnchorElement && !node.protocol.startsWith("http")) return;
  setTimeout(() => {
    if (event.defaultPrevented || [...open].some((one) => one.inert)) return; // the browser asks first, or it is marked
    new Taken(node?.closest("a, button") ?? null, limitOf(node, say));
  });
}

/** @type {WeakMap<object, Taken>} */
const requests = new WeakMap();

/** @param {any} event */
function onRequest(event) {
  const { elt, target, requestConfig, xhr } = event.detail;
  const cause = requestConfig.triggeringEvent;
  if (!BY_PERSON.has(cause?.type) || !(cause.target instanceof Node) || !elt.contains(cause.target)) return;
  const node = cause.submitter ?? elt.closest("a, button");
  const once = requestConfig.verb !== "get" && SENDS.has(cause.type); // what is typed on may be asked about again
  requests.set(xhr, new Taken(node, { inert: once ? elt : null, part: target }));
}

/** @param {any} event */
const onAnswer = (event) => requests.get(event.detail.xhr)?.end(event.detail.successful === true);

/** A page that Back brings from memory waits for nothing; what was painted on it may not be so. @param {PageTransitionEvent} event */
function onShow(event) {
  if (!event.persisted) return;
  const painted = [...open].some((one) => one.undo);
  for (const one of open) one.end(false);
  if (painted) location.reload();
}

/** @param {Say} say */
export function answerClicks(say) {
  document.addEventListener(
    "click",
    (event) => {
      const node = event.target instanceof Element && event.target.closest("a, button, summary");
      pressed = node ? { node, at: performance.now() } : null;
    },
    { capture: true },
  );
  window.addEventListener("submit", (event) => onSubmit(event, say)); // after the listeners of forms and of the page
  window.addEventListener("beforeunload", (event) => onLeave(event, say));
  window.addEventListener("pageshow", onShow);
  document.addEventListener("htmx:confirm", (/** @type {any} */ event) => {
    if (event.detail.verb !== "get" && isSent(event.detail.elt)) event.preventDefault();
  });
  document.addEventListener("htmx:beforeRequest", onRequest);
  document.addEventListener("htmx:afterRequest", onAnswer);
}
