// @ts-check
/** A chat: one socket for news, and the API for a person's actions. The server keeps all messages. */
import { ask, sentenceOf } from "../lib/ask.js";
import { ChatState, OPEN } from "../lib/chat.js";
import { $, batched, data, has, maybe, one, setAttr, setText, t } from "../lib/dom.js";
import { socketUrl } from "../lib/early.js";
import { plain } from "../lib/format.js";
import { Live } from "../lib/live.js";
import { KeepPanel } from "./chat_keep.js";
import { ChatView } from "./chat_view.js";

/** @typedef {Record<string, any>} Row */
const STATES = { connecting: "stale", live: "ok", stale: "stale", paused: "stale", reconnecting: "stale" };
const NEAR_PX = 160;

class ChatPage {
  constructor() {
    this.page = data("chat-data");
    this.state = new ChatState();
    this.sending = false;
    this.stopping = false;
    /** @type {{body: Row, before: Set<string>} | null} the post whose answer was lost */
    this.lost = null;
    this.view = new ChatView($("turns"), this.page, {
      edit: (turn, text) => this.send(text, turn.id),
      again: (answer) => this.post("again", { answer: answer.id, parameters: this.parameters() }),
    });
    this.keep = this.page.may ? new KeepPanel((body) => this.post("save", body, "keep")) : null;
    this.draw = batched(() => this.show());
    if (this.page.may) this.listen();
    this.live = new Live({
      url: socketUrl(this.page.socket),
      least: 0,
      seq: () => 0,
      onFrame: (frame) => this.heard(frame),
      onStatus: (status) => this.status(status),
    });
    this.live.start();
    setInterval(() => Object.keys(this.state.waits).length && this.draw(), 1000);
    addEventListener("pagehide", () => this.live.stop());
  }

  listen() {
    const text = $("chat-text", HTMLTextAreaElement);
    $("composer").addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      this.submit();
    });
    text.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.submit();
    });
    text.addEventListener("input", () => this.draw());
    $("chat-stop").addEventListener("click", () => this.stop());
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.state.busy) this.stop();
    });
    text.focus();
  }

  async submit() {
    const text = $("chat-text", HTMLTextAreaElement);
    if (this.sending || this.state.busy || !this.maySend(text.value)) return;
    if (await this.send(text.value)) text.value = "";
    this.draw();
  }

  /** @param {string} text */
  maySend(text) {
    return Boolean(text.trim()) || (Boolean(this.page.environment) && !this.state.current().length);
  }

  /**
   * Say something, in place of a turn where one is named. Whether it was taken.
   * @param {string} text
   * @param {string} [edited]
   */
  async send(text, edited) {
    if (text.length > this.page.most_chars) {
      this.complain(t("chat.too_long", { n: text.length, most: this.page.most_chars }));
      return false;
    }
    this.follow = true;
    return Boolean(await this.post("messages", { text, parameters: this.parameters(), edited: edited ?? null }));
  }

  parameters() {
    const number = (/** @type {string} */ id) => Number($(id, HTMLInputElement).value);
    return {
      temperature: number("chat-temperature"),
      max_tokens: number("chat-max-tokens"),
      seed: number("chat-seed"),
      system: $("chat-system", HTMLTextAreaElement).value,
    };
  }

  /**
   * @param {string} act
   * @param {Row} body
   * @param {string} [where] the form that asks
   * @returns {Promise<Row | null>} the answer; null where it was refused
   */
  async post(act, body, where = "") {
    if (this.sending) return null;
    this.sending = true;
    try {
      return await this.ask(act, body, where);
    } finally {
      this.sending = false;
      this.draw();
    }
  }

  /** Not held up by what is being sent: the answer to stop may be on the page before its own message was confirmed. */
  async stop() {
    if (this.stopping) return;
    this.stopping = true;
    await this.ask("stop", {});
    this.stopping = false;
  }

  /**
   * @param {string} act
   * @param {Row} body
   * @param {string} [where]
   * @returns {Promise<Row | null>}
   */
  async ask(act, body, where = "") {
    this.complain("");
    this.draw();
    const before = this.state.ids;
    this.lost = null;
    try {
      return await ask(`${this.page.api}/${act}`, { body, once: act === "stop" ? "" : `${before.size} parts` });
    } catch (/** @type {any} */ problem) {
      if (problem.kind !== "refused") this.lost = { body, before };
      if (this.finds()) return {};
      const sentences = (problem.body?.detail ?? []).map((/** @type {Row} */ item) => item.message).filter(Boolean);
      const words = sentences.length ? plain(sentences.join(" ")) : sentenceOf(problem);
      if (where === "keep") return { refused: words };
      this.complain(words);
    }
    return null;
  }

  /** Whether the post whose answer was lost is in the chat all the same. */
  finds() {
    if (!this.lost || !this.state.hasArrived(this.lost.body, this.lost.before)) return false;
    this.lost = null;
    return true;
  }

  /** @param {Row} frame */
  heard(frame) {
    const before = new Map([...this.state.answers].map(([id, answer]) => [id, answer.state]));
    if (!this.state.apply(frame, Date.now())) return;
    const said = this.lost?.body.text;
    if (this.finds()) {
      this.complain("");
      const text = $("chat-text", HTMLTextAreaElement);
      if (text.value === said) text.value = "";
    }
    for (const answer of this.state.answers.values())
      if (OPEN.has(before.get(answer.id)) && !OPEN.has(answer.state)) this.announce(answer);
    this.ready = true;
    this.draw();
  }

  /**
   * Say to a screen reader that an answer is there; its text is in the page.
   * @param {Row} answer
   */
  announce(answer) {
    const name = plain(this.page.contestants[answer.contestant]);
    const key = `chat.${answer.state}`;
    const state = has(key) ? t(key) : plain(answer.state);
    setText(
      $("chat-ended"),
      answer.state === "done" ? t("chat.said.done", { name }) : t("chat.said.other", { name, state }),
    );
  }

  /** @param {string} status */
  status(status) {
    setAttr($("chat-status"), "data-state", STATES[/** @type {keyof STATES} */ (status)] ?? "bad");
    setText($("chat-status"), t(`chat.status.${status}`));
    const closed = `chat.closed.${status}`;
    $("chat-lost").hidden = !has(closed);
    if (has(closed)) setText($("chat-lost"), t(closed));
    this.gone = has(closed);
    this.draw();
  }

  /** @param {string} sentence */
  complain(sentence) {
    const box = maybe("chat-problem");
    if (!box) return;
    box.hidden = !sentence;
    setText(box, sentence);
  }

  show() {
    const end = one(document, ".chat-end", HTMLElement);
    const near = end.getBoundingClientRect().bottom - innerHeight < NEAR_PX;
    this.view.draw(this.state);
    $("chat-empty").hidden = !this.ready || this.state.current().length > 0;
    if (this.page.may) {
      const text = $("chat-text", HTMLTextAreaElement).value;
      const may = Boolean(this.ready) && !this.sending && !this.gone && !this.state.busy;
      $("chat-send", HTMLButtonElement).disabled = !(may && this.maySend(text));
      $("chat-send").hidden = this.state.busy;
      $("chat-stop").hidden = !this.state.busy;
      this.keep?.show(may && this.state.said);
    }
    const title = document.querySelector(".crumbs [aria-current]");
    if (this.state.chat.title) setText(title, plain(this.state.chat.title));
    if (this.follow || (near && this.state.busy)) end.scrollIntoView({ block: "end" });
    this.follow = false;
  }
}

new ChatPage();
