// @ts-check
/** The command palette: one field that leads to pages, objects and texts. It works without a mouse and with one. */
import { ask, sentenceOf } from "./ask.js";
import { $, h, icon, one, setText, t } from "./dom.js";
import { plain } from "./format.js";
import { Asker } from "./lab-score.js";
import { nextPlace } from "./roving.js";

/** @typedef {{title: string, url: string, about: string, icon: string, state: string, state_word: string,
 *   said: [string, string, string] | null}} Item */
/** @typedef {{title: string, note: string, items: Item[]}} Group */

/** @typedef {{groups: Group[], none: string, problem: string, waiting: boolean}} Part what one request brought */

const REST_MS = 80;
const SLOW_MS = 1000;
const LIMIT_MS = 10_000;
const PARTS = ["names", "texts"]; // asked for at the same time: names do not wait for the words of rollouts

export class Palette {
  /** @param {HTMLDialogElement} dialog */
  constructor(dialog) {
    this.dialog = dialog;
    this.field = one(dialog, "input", HTMLInputElement);
    this.list = $("palette-list");
    this.status = $("palette-status");
    /** @type {HTMLElement[]} */
    this.options = [];
    this.at = -1;
    this.moved = false;
    this.enter = false; // pressed before there was an answer
    /** @type {Record<string, Part>} */
    this.parts = {};
    this.askers = PARTS.map((name) => this.askerOf(name));
    this.field.addEventListener("input", () => this.look());
    this.field.addEventListener("keydown", (event) => this.onKey(event));
    this.list.addEventListener("pointermove", (event) => this.move(this.placeOf(event)));
    this.list.addEventListener("click", (event) => this.placeOf(event) >= 0 && dialog.close());
  }

  /** @param {string} name of the part that it asks for */
  askerOf(name) {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let slow;
    /** @param {Partial<Part>} part */
    const arrived = (part) => {
      clearTimeout(slow);
      this.parts[name] = { groups: [], none: "", problem: "", waiting: false, ...part };
      this.show();
    };
    return new Asker({
      send: ({ q }, signal) => ask(`${this.dialog.dataset.url}?${new URLSearchParams({ q, part: name })}`, { signal, limitMs: LIMIT_MS }), // prettier-ignore
      asking: () => {
        clearTimeout(slow);
        slow = setTimeout(() => this.parts[name].waiting && this.say(t("palette_slow")), SLOW_MS);
      },
      answered: ({ groups, none }) => arrived({ groups, none }),
      failed: (problem) => arrived({ problem: sentenceOf(problem) }),
      restMs: REST_MS,
    });
  }

  toggle() {
    if (this.dialog.open) return this.dialog.close();
    this.dialog.showModal(); // closing it gives the focus back
    this.field.select();
    this.look(0);
  }

  /** @param {number} [restMs] */
  look(restMs) {
    this.enter = this.moved = false;
    for (const name of PARTS) this.parts[name] = { ...this.parts[name], problem: "", waiting: true };
    for (const asker of this.askers) asker.ask(() => ({ q: this.field.value }), restMs);
  }

  /** @param {string} words */
  say(words) {
    setText(this.status, words);
    this.status.hidden = !words;
  }

  /** Names first, then texts, last the group without a title: it leads to more. What was chosen stays chosen. */
  show() {
    const parts = PARTS.map((name) => this.parts[name]);
    const waiting = parts.some((part) => part.waiting);
    const groups = parts.flatMap((part) => (part.waiting ? [] : part.groups));
    groups.sort((one, two) => Number(!one.title) - Number(!two.title));
    const chosen = this.moved ? this.options[this.at]?.getAttribute("href") : null;
    this.list.replaceChildren(...groups.map((group, number) => drawn(group, number)));
    this.options = /** @type {HTMLElement[]} */ ([...this.list.querySelectorAll("[role=option]")]);
    this.options.forEach((option, number) => (option.id = `palette-option-${number}`));
    const at = this.options.findIndex((option) => option.getAttribute("href") === chosen);
    this.at = -1;
    this.choose(Math.max(at, this.options.length ? 0 : -1));
    const problem = parts.find((part) => part.problem)?.problem;
    this.say(problem || (!waiting && parts.every((part) => part.none) ? parts[0].none : ""));
    if (this.enter && !parts[0].waiting && (!waiting || !parts[0].none)) this.go();
  }

  /** @param {number} at where the reader went */
  move(at) {
    if (at < 0) return;
    this.moved = true;
    this.choose(at);
  }

  /** @param {number} at */
  choose(at) {
    this.options[this.at]?.setAttribute("aria-selected", "false");
    this.at = at;
    this.options[at]?.setAttribute("aria-selected", "true");
    this.field.setAttribute("aria-activedescendant", this.options[at]?.id ?? "");
  }

  /** @param {Event} event */
  placeOf(event) {
    const option = /** @type {Element} */ (event.target).closest("[role=option]");
    return option instanceof HTMLElement ? this.options.indexOf(option) : -1;
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (event.isComposing || event.altKey) return; // the keys choose a character
    if (event.key === "Enter") {
      event.preventDefault();
      this.enter = this.parts.names.waiting;
      if (!this.enter) this.go();
    } else if (/^(ArrowUp|ArrowDown|Home|End)$/.test(event.key) && !event.shiftKey && this.options.length) {
      event.preventDefault();
      this.move(nextPlace(event.key, this.at, this.options.length));
      this.options[this.at].scrollIntoView({ block: "nearest" });
    }
  }

  go() {
    this.options[this.at]?.click();
  }
}

/**
 * @param {Group} group
 * @param {number} number
 */
function drawn(group, number) {
  const name = group.title && h("div", { class: "palette-title", id: `palette-group-${number}` }, group.title);
  const label = name ? { "aria-labelledby": `palette-group-${number}` } : {};
  const items = group.items.map(line);
  return h("div", { role: "group", class: "palette-group", ...label }, name, ...items, group.note && noted(group.note));
}

/** @param {string} note */
const noted = (note) => h("div", { class: "palette-note", role: "presentation" }, note);

/** @param {Item} item */
function line(item) {
  const [before, said, after] = (item.said ?? []).map(plain);
  const title = item.said ? [before, h("mark", {}, said), after] : [plain(item.title)];
  return h(
    "a",
    { role: "option", class: "palette-option", href: item.url, tabindex: "-1", "aria-selected": "false" },
    item.icon && icon(item.icon),
    h("span", { class: "palette-words", dir: "auto" }, ...title),
    item.about && h("span", { class: "palette-about", dir: "auto" }, plain(item.about)),
    item.state && h("span", { class: "badge", "data-state": item.state }, item.state_word),
  );
}

/** Open it by its button and by ⌘K or Ctrl-K, wherever the focus is. */
export function palette() {
  const dialog = document.getElementById("palette");
  if (!(dialog instanceof HTMLDialogElement)) return;
  const opened = new Palette(dialog);
  const apple = /Mac|iPhone|iPad/.test(navigator.platform);
  for (const key of document.querySelectorAll("[data-palette-key]")) setText(key, apple ? "⌘K" : "Ctrl K");
  document.addEventListener("click", (event) => {
    if (/** @type {Element} */ (event.target).closest("[data-palette]")) opened.toggle();
  });
  document.addEventListener("keydown", (event) => {
    const held = (event.metaKey || event.ctrlKey) && !(event.metaKey && event.ctrlKey);
    if (!held || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    opened.toggle();
  });
}
