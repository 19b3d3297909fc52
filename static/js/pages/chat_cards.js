// @ts-check
/** The parts of an answer. Messages are only ever shown as text. */
import { cardsOf, OPEN, waitWords } from "../lib/chat.js";
import { h, has, icon, setAttr, setText, t } from "../lib/dom.js";
import { failureWords } from "../lib/failure.js";
import { duration, plain, pretty } from "../lib/format.js";
import { apart, failure, folded, said } from "../lib/transcript.js";

/** @typedef {Record<string, any>} Row */

/**
 * @param {string} title
 * @param {Row} answer
 */
export function headNode(title, answer) {
  const states = { answering: "chat.answering", stopped: "chat.stopped", cut: "chat.cut" };
  const word = states[/** @type {keyof states} */ (answer.state)];
  return h(
    "header",
    { class: "message-head" },
    h("span", { class: "message-role" }, plain(title)),
    word && h("span", { class: "muted" }, t(word)),
  );
}

/**
 * The note below the text.
 * @param {Row} answer
 * @returns {HTMLElement[]}
 */
export function tailNodes(answer) {
  const nodes = [h("p", { class: "muted small chat-wait", hidden: true })];
  const ending = answer.ending ?? {};
  if (answer.error) {
    // The code alone says why an answer was cut off.
    const cut = answer.state === "cut";
    const notice = failure(failureWords(cut ? { ...answer.error, message: "" } : answer.error), answer.state);
    if (cut) setAttr(notice, "data-kind", "warning");
    nodes.push(notice);
  }
  if (ending.why === "length")
    nodes.push(h("p", { class: "small chat-note" }, t("chat.length", { n: answer.parameters.max_tokens })));
  if (ending.why === "turns") {
    const turns = answer.messages.filter((/** @type {Row} */ message) => message.role === "assistant").length;
    nodes.push(h("p", { class: "small chat-note" }, t("chat.turns", { n: turns })));
  }
  if (ending.differs) nodes.push(h("p", { class: "small chat-note" }, t("chat.differs")));
  if (answer.messages.at(-1)?.finish === "content_filter")
    nodes.push(h("p", { class: "small chat-note" }, t("finish.content_filter")));
  if (answer.state === "done" && !cardsOf(answer).length) nodes.push(h("p", { class: "muted" }, t("chat.nothing")));
  return nodes;
}

/**
 * The reason why an answer waits, with the seconds.
 * @param {HTMLElement} box
 * @param {Row} answer
 * @param {Row | undefined} wait
 * @param {{workers: string, runs: string}} page
 */
export function showWait(box, answer, wait, page) {
  const line = /** @type {HTMLElement | null} */ (box.querySelector(".chat-wait"));
  if (!line) return;
  line.hidden = !(wait && OPEN.has(answer.state));
  if (line.hidden || !wait) return;
  const { key, values } = waitWords(wait, (seconds) => duration(seconds, t), Date.now());
  const words = [
    t(has(key) ? key : "chat.wait.starting", values),
    wait.no_room ? t("chat.wait.no_room") : "",
    wait.why === "loading" ? "" : t("chat.wait.kept"),
  ].filter(Boolean);
  if (!line.firstElementChild) line.replaceChildren(h("span"), " ", h("a", {}));
  const [text, link] = [...line.children];
  setText(text, words.join(" "));
  const workers = wait.why === "no_worker";
  setText(link, workers ? t("chat.wait.workers") : wait.run ? t("chat.wait.open_run") : "");
  setAttr(link, "href", workers ? page.workers : wait.run ? `${page.runs}${wait.run_id}/` : null);
}

/**
 * Add to the text that is being written, without replacing its node.
 * @param {HTMLElement} box
 * @param {Row} answer
 */
export function grow(box, answer) {
  const growing = box.querySelector(".chat-growing");
  if (growing) setText(growing, answer.partial);
  else if (answer.partial)
    box.querySelector(".chat-wait")?.before(cardNode({ kind: "text", text: answer.partial, growing: true }));
}

/**
 * @param {Row} card
 * @returns {HTMLElement}
 */
export function cardNode(card) {
  if (card.kind === "text") {
    if (card.growing) return h("div", { class: "chat-said chat-growing", dir: "auto" }, card.text);
    return said(card.text, "chat-said");
  }
  if (card.kind === "reasoning" || card.kind === "refusal")
    return /** @type {HTMLElement} */ (apart(card.kind, card.text));
  if (card.kind === "environment")
    return h(
      "div",
      { class: "chat-card" },
      h("p", { class: "eyebrow" }, t("chat.environment")),
      folded(card.text, "chat-said"),
    );
  const given = pretty(card.arguments);
  const result = card.result ?? "";
  const short = result.split("\n")[0].slice(0, 80);
  return h(
    "details",
    { class: "chat-card" },
    h(
      "summary",
      {},
      icon("tool"),
      h("code", {}, plain(card.name)),
      h("span", { class: "muted truncate" }, card.result === null ? "" : ` → ${plain(short)}`),
    ),
    h("p", { class: "eyebrow" }, t("chat.arguments")),
    said(given || "{}", "said"),
    h("p", { class: "eyebrow" }, t("chat.result")),
    card.result === null ? h("p", { class: "muted small" }, t("chat.no_answer")) : folded(result, "said"),
  );
}
