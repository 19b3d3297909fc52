// @ts-check
/** A card about a run or a rollout, while the pointer rests on a link that names it, or the keyboard's focus is on it. */
import { h, setAttr } from "./dom.js";

const HOVER_MS = 300;
const FOCUS_MS = 600;
const LEAVE_MS = 150; // to move the pointer from the link to the card
const LIMIT_MS = 5000;
const GAP = 6;
const RUN = /^\/p\/[^/]+\/runs\/[0-9a-f-]{36}\/$/;
const ROLLOUT = /^\/p\/[^/]+\/rollouts\/[0-9a-f-]{36}\/$/;
const OF_RUN_PAGE = /[?&]tab=rollouts\b/;
const NOT_NAMES = ".button, .menu-item, .tab, [role='option']";

/**
 * The address of the run that a link names: its own, or that in `data-run` of a link that leads there by another way.
 * Null for other links, for buttons, and for the run whose page this is.
 * @param {HTMLAnchorElement} link
 * @param {string} here path of the page
 */
export function runOf(link, here) {
  const address = link.dataset.run ?? (link.search || link.hash ? "" : link.pathname);
  return RUN.test(address) && !here.startsWith(address) && !link.matches(NOT_NAMES) ? address : null;
}

/**
 * The address of the rollout that a link names, in `data-rollout` or as its own address with the place of a list. Null
 * for other links, and where the page shows that rollout.
 * @param {HTMLAnchorElement} link
 * @param {string} here path of the page
 */
export function rolloutOf(link, here) {
  const id = link.dataset.rollout || (OF_RUN_PAGE.test(link.search) && new URLSearchParams(link.search).get("rollout"));
  const address = id ? `${/^\/p\/[^/]+\//.exec(here)?.[0]}rollouts/${id}/` : link.pathname;
  const named = id || !link.matches(NOT_NAMES);
  const shown = here.startsWith(address) || link.matches("[aria-current]");
  return named && ROLLOUT.test(address) && !shown ? address : null;
}

/**
 * @param {HTMLAnchorElement} link
 * @param {string} here path of the page
 */
const cardOf = (link, here) => runOf(link, here) ?? rolloutOf(link, here);

/**
 * Where a card fits without covering its link: below, or above where there is more room.
 * @param {{left: number, top: number, bottom: number}} link
 * @param {{width: number, height: number}} card
 * @param {{width: number, height: number}} view
 */
export function placeOf(link, card, view) {
  const rooms = { below: view.height - link.bottom - 2 * GAP, above: link.top - 2 * GAP };
  const below = card.height <= rooms.below || rooms.below >= rooms.above;
  const height = Math.max(0, Math.min(card.height, below ? rooms.below : rooms.above));
  return {
    left: Math.max(GAP, Math.min(link.left, view.width - card.width - GAP)),
    top: below ? link.bottom + GAP : link.top - GAP - height,
    height,
  };
}

/**
 * The part of a page at an address; null where there is no answer, or only the login page.
 * @param {string} address
 */
async function partAt(address) {
  try {
    const answer = await fetch(address, { signal: AbortSignal.timeout(LIMIT_MS) });
    if (!answer.ok || answer.redirected) return null;
    return [...new DOMParser().parseFromString(await answer.text(), "text/html").body.childNodes];
  } catch {
    return null; // then there is no card
  }
}

class Previews {
  card = h("div", { class: "preview", id: "preview", role: "tooltip", hidden: true });
  /** @type {HTMLAnchorElement | null} whose card is shown, is about to be, or was put away with Escape */
  link = null;
  /** @type {any} */
  timer = null;

  /**
   * @param {Event} event
   * @returns {HTMLAnchorElement | null}
   */
  linkOf(event) {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    return link && cardOf(link, location.pathname) ? link : null;
  }

  /**
   * @param {HTMLAnchorElement} link
   * @param {number} afterMs
   */
  begin(link, afterMs) {
    if (link === this.link) {
      if (!this.card.hidden) clearTimeout(this.timer); // the pointer came back from the card
      return;
    }
    this.end();
    this.link = link;
    this.timer = setTimeout(() => this.show(), afterMs);
  }

  async show() {
    const asked = this.link;
    const address = asked && cardOf(asked, location.pathname);
    const part = address && (await partAt(`${address}preview/`));
    if (!part || !this.link?.isConnected || cardOf(this.link, location.pathname) !== address || this.timer === null)
      return;
    this.card.replaceChildren(...part);
    (this.link.closest("dialog") ?? document.body).append(this.card);
    this.card.style.maxHeight = "";
    this.card.hidden = false;
    this.describe(true);
    const at = placeOf(this.link.getBoundingClientRect(), this.card.getBoundingClientRect(), {
      width: document.documentElement.clientWidth,
      height: document.documentElement.clientHeight,
    });
    Object.assign(this.card.style, { left: `${at.left}px`, top: `${at.top}px`, maxHeight: `${at.height}px` });
  }

  /** @param {boolean} on whether the card describes the link now */
  describe(on) {
    const others = (this.link?.getAttribute("aria-describedby") ?? "").split(" ").filter((id) => id !== this.card.id);
    setAttr(this.link, "aria-describedby", [...others, on && this.card.id].filter(Boolean).join(" ") || null);
  }

  /** Put the card away until the pointer or the focus comes to a link again. */
  hide() {
    clearTimeout(this.timer);
    this.timer = null;
    this.card.hidden = true;
    this.describe(false);
  }

  end() {
    this.hide();
    this.link = null;
  }

  leave() {
    if (this.card.hidden) return this.end();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.end(), LEAVE_MS);
  }

  /** A list that came again has other links: the card belongs to the new one of the same object. */
  adopt() {
    const old = this.link;
    if (!old || old.isConnected) return;
    const found = [...document.querySelectorAll("a")].find((link) => link.href === old.href);
    if (!found) return this.end();
    this.link = found;
    this.describe(!this.card.hidden);
  }

  /** @param {PointerEvent} event */
  over(event) {
    if (event.pointerType === "touch") return;
    this.adopt();
    if (event.target instanceof Node && this.card.contains(event.target)) return clearTimeout(this.timer);
    const link = this.linkOf(event);
    if (link) this.begin(link, HOVER_MS);
    else if (this.link && !this.link.matches(":focus-visible")) this.leave();
  }

  /** @param {FocusEvent} event */
  focused(event) {
    const link = this.linkOf(event);
    if (link?.matches(":focus-visible")) this.begin(link, FOCUS_MS);
  }
}

/** Show cards on this page. */
export function previews() {
  const shown = new Previews();
  document.addEventListener("pointerover", (event) => shown.over(event));
  document.addEventListener("pointerout", (event) => event.relatedTarget ?? shown.leave()); // out of the window
  document.addEventListener("pointerdown", () => shown.hide());
  document.addEventListener("focusin", (event) => shown.focused(event));
  document.addEventListener("focusout", () => shown.end());
  document.addEventListener("keydown", (event) => event.key === "Escape" && shown.hide());
  document.addEventListener("htmx:afterSettle", () => shown.adopt());
  document.addEventListener(
    "scroll",
    (event) => {
      if (!shown.card.hidden && event.target instanceof Node && event.target.contains(shown.link)) shown.hide();
    },
    { capture: true, passive: true },
  );
}
