// @ts-check
/** A transcript. Everything in it was written by a model or a server that we do not trust: it is only ever text. */
import { h, has, keyed, setText, t } from "./dom.js";
import { duration, figure, plain, pretty, visible } from "./format.js";

/** @typedef {Record<string, any>} Row */

const FOLD_LINES = 14;
const FOLD_CHARS = 1200;

/**
 * Text with its hidden characters shown as marks.
 * @param {string} text
 * @param {string} [className]
 */
export function said(text, className = "said") {
  const box = h("div", { class: className, dir: "auto" });
  for (const part of visible(text)) {
    box.append(
      part.hidden
        ? h("span", { class: "hidden-char", title: t("hidden_char", { code: part.text }) }, part.text)
        : part.text,
    );
  }
  return box;
}

/**
 * Long text shows its beginning; a button shows the rest.
 * @param {string} text
 * @param {string} [className]
 */
export function folded(text, className = "said") {
  const lines = text.split("\n");
  if (lines.length <= FOLD_LINES + 2 && text.length <= FOLD_CHARS * 1.3) return said(text, className);
  const short = lines.slice(0, FOLD_LINES).join("\n").slice(0, FOLD_CHARS);
  const box = h("div", { class: "folded" });
  const button = h("button", { class: "link-button small", type: "button", "aria-expanded": "false" });
  const show = (/** @type {boolean} */ all) => {
    box.replaceChildren(said(all ? text : `${short} …`, className), button);
    button.textContent = t(all ? "show_less" : "show_all", { n: lines.length });
    button.setAttribute("aria-expanded", String(all));
  };
  button.addEventListener("click", () => show(button.getAttribute("aria-expanded") !== "true"));
  show(false);
  return box;
}

/** @param {Row} call */
function callNode(call) {
  const given = pretty(call.arguments);
  const empty = given === "" || given === "{}";
  return h(
    "div",
    { class: "call" },
    h("div", { class: "call-name" }, h("span", { class: "muted" }, `${t("call")} `), plain(String(call.name ?? "?"))),
    empty ? h("div", { class: "muted small" }, t("no_arguments")) : folded(given, "said call-arguments"),
  );
}

/**
 * Words that are no part of an answer, under the name of what they are: `reasoning` or `refusal`.
 * @param {string} what
 * @param {unknown} text
 */
export function apart(what, text) {
  if (typeof text !== "string" || !text) return null;
  return h("div", { class: "said-apart" }, h("div", { class: "muted small" }, t(what)), folded(text));
}

/**
 * Why a turn ended that did not come to its own end.
 * @param {Row} message
 */
function cutNode(message) {
  const key = `finish.${message.finish}`;
  return message.finish && has(key) ? h("div", { class: "muted small" }, t(key)) : null;
}

/**
 * @param {Row} message
 * @param {Row} turn
 * @param {boolean} first
 * @param {number} ordinal which turn of the model this is; 0 for the others
 */
function messageNode(message, turn, first, ordinal) {
  const role = String(message.role);
  const name = role === "tool" && message.name ? ` · ${plain(String(message.name))}` : "";
  const figures = [];
  if (first && ordinal) figures.push(t("turn", { n: ordinal }));
  if (first && turn.tokens) figures.push(t("tokens", { n: turn.tokens }));
  if (first && turn.seconds) figures.push(duration(turn.seconds, t));
  if (first && turn.note) figures.push(turn.note);
  const head = h(
    "header",
    { class: "message-head" },
    h("span", { class: "message-role" }, has(`role.${role}`) ? t(`role.${role}`) : plain(role), name),
    h("span", { class: "muted" }, figures.join(" · ")),
  );
  const content = typeof message.content === "string" ? message.content : pretty(message.content);
  const calls = Array.isArray(message.tool_calls) ? message.tool_calls : [];
  const wrote = first && typeof turn.wrote === "string" ? turn.wrote : ""; // a call that could not be parsed
  const nothing = !content && !calls.length && !wrote && !message.refusal;
  return h(
    "article",
    { class: "message", "data-role": ["system", "user", "assistant", "tool"].includes(role) ? role : "other" },
    head,
    apart("reasoning", message.reasoning),
    content && folded(content),
    apart("refusal", message.refusal),
    ...calls.map(callNode),
    wrote && folded(wrote, "said said-unread"),
    nothing && h("div", { class: "muted small" }, t("empty_message")),
    cutNode(message),
  );
}

/**
 * @param {Row} turn
 * @param {number} ordinal
 */
function turnNode(turn, ordinal) {
  const messages = /** @type {Row[]} */ (turn.messages || []);
  return h(
    "section",
    { class: "turn" },
    ...messages.map((message, at) => messageNode(message, turn, at === 0, ordinal)),
  );
}

/**
 * Number the model's turns from 1.
 * @param {Row[]} turns
 * @returns {Map<Row, number>}
 */
export function ordinals(turns) {
  const numbered = new Map();
  let count = 0;
  for (const turn of turns) if (turn.messages?.[0]?.role === "assistant") numbered.set(turn, (count += 1));
  return numbered;
}

/**
 * The reward's parts, each with its weight.
 * @param {Row} rollout
 * @param {Record<string, number>} weights
 * @param {Record<string, string>} [titles] of components
 */
export function partsTable(rollout, weights, titles = {}) {
  const order = Object.keys(titles); // of the spec: it gives the colours
  const place = (/** @type {string} */ name) => (order.includes(name) ? order.indexOf(name) : order.length);
  const names = Object.keys(rollout.parts || {}).sort((a, b) => place(a) - place(b));
  if (!names.length) return null;
  const body = h("tbody");
  for (const name of names) {
    const value = rollout.parts[name];
    const weight = weights[name];
    const counted = value !== null && weight !== undefined ? value * weight : null;
    body.append(
      h(
        "tr",
        { "data-curve": order.includes(name) ? order.indexOf(name) % 8 : null },
        h("td", { title: name }, h("span", { class: "part-key", "aria-hidden": "true" }), plain(titles[name] ?? name)),
        h(
          "td",
          { class: "num", title: value === null ? t("missing_part") : null },
          value === null ? t("missing") : figure(value),
        ),
        h("td", { class: "num muted" }, weight === undefined ? "" : `× ${figure(weight)}`),
        h("td", { class: "num" }, counted === null ? "" : figure(counted)),
      ),
    );
  }
  const total = h(
    "tr",
    { class: "parts-total" },
    h("td", {}, t("reward")),
    h("td"),
    h("td"),
    h("td", { class: "num" }, figure(rollout.reward)),
  );
  const advantage = h(
    "tr",
    {},
    h("td", { class: "soft" }, t("advantage")),
    h("td"),
    h("td"),
    h("td", { class: "num" }, figure(rollout.advantage)),
  );
  body.append(total);
  if (rollout.advantage !== undefined) body.append(advantage); // a branch is in no group
  return h("table", { class: "table table-dense parts" }, body);
}

/**
 * Where a rollout failed and what to do.
 * @param {Record<string, string>} words of its error
 * @param {string} status
 */
export function failure(words, status) {
  const [title, hint, detail] = [words.title, words.hint, words.detail].map(plain);
  return h(
    "div",
    { class: "notice", "data-kind": status === "excluded" ? "warning" : "error" },
    h("p", { class: "notice-title" }, status === "excluded" ? t("excluded_because", { message: title }) : title),
    h("p", { class: "small" }, h("code", {}, plain(words.code)), words.boundary ? ` · ${plain(words.boundary)}` : ""),
    hint && h("p", { class: "small" }, hint),
    detail && h("p", { class: "small reported" }, detail),
  );
}

export class Transcript {
  /**
   * @param {HTMLElement} box
   * @param {Record<string, number>} weights
   * @param {Record<string, string>} [titles] of components
   */
  constructor(box, weights, titles = {}) {
    this.box = box;
    this.weights = weights;
    this.titles = titles;
    this.turns = h("div", { class: "turns" });
    this.tail = h("div", { class: "transcript-tail stack stack-tight" });
    this.shown = "";
    this.tailSeq = -1;
  }

  /**
   * @param {Row} rollout
   * @param {Row[]} turns
   */
  show(rollout, turns) {
    if (this.shown !== rollout.id) {
      this.shown = rollout.id;
      this.tailSeq = -1;
      this.turns.replaceChildren();
      this.box.replaceChildren(this.turns, this.tail);
      this.box.scrollTop = 0;
    }
    const atEnd = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 40;
    const before = this.turns.children.length;
    const numbered = ordinals(turns);
    keyed(
      this.turns,
      turns,
      (turn) => `${turn.number}:${turn.seq}`,
      (turn) => turnNode(turn, numbered.get(turn) ?? 0),
      () => {},
    );
    if (this.tailSeq !== rollout.seq) {
      this.tailSeq = rollout.seq;
      const wait = h("p", { class: "muted small waiting" }, t("waiting_turn"));
      const parts = [
        rollout.failure && failure(rollout.failure, rollout.status),
        rollout.status === "running" ? wait : partsTable(rollout, this.weights, this.titles),
      ];
      this.tail.replaceChildren(.../** @type {Node[]} */ (parts.filter(Boolean)));
    }
    if (before && atEnd && this.turns.children.length > before && rollout.status === "running")
      this.box.scrollTop = this.box.scrollHeight;
  }

  /** @param {string} text */
  say(text) {
    this.shown = "";
    const note = h("p", { class: "muted transcript-none" });
    setText(note, text);
    this.box.replaceChildren(note);
  }
}
