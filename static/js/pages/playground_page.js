// @ts-check
/** The common part of pages on which an environment is played: one socket, one episode at a time. The server keeps the
 * transcript; the page only shows it. A page says how its episodes begin. */
import { $, data, h, has, setAttr, setText, t } from "../lib/dom.js";
import { socketUrl } from "../lib/early.js";
import { figure, plain } from "../lib/format.js";
import { Transcript } from "../lib/transcript.js";
import { tree } from "../lib/tree.js";
import { ActPanel } from "./playground_act.js";
import { SavePanel } from "./playground_save.js";

/** @typedef {Record<string, any>} Row */
const PING_MS = 20_000;
const PINGS_MOST = 3; // without an answer: the line is dead although no one closed it

/** @abstract */
export class Player {
  constructor() {
    this.page = data("play-data");
    this.shownInfo = "";
    this.limits = { frame_bytes: 60000, calls: 16 };
    /** @type {Row} */
    this.state = { open: false };
    /** @type {Row[]} */
    this.turns = [];
    this.busy = "";
    this.unanswered = 0;
    this.transcript = new Transcript($("transcript"), {});
    const send = (/** @type {Row} */ frame) => this.send(frame);
    this.act = new ActPanel({ send, maxCalls: () => this.limits.calls });
    this.save = new SavePanel({ send });
    $("play-end").addEventListener("click", () => this.send({ type: "close" }));
    this.transcript.say(t("play.start"));
    this.connect();
  }

  /** The button that begins an episode.
   * @returns {HTMLButtonElement} */
  get starter() {
    throw new Error("a page has one");
  }

  /** The error at the beginning of an episode.
   * @param {string} _sentence */
  refused(_sentence) {}

  /** Any other frame.
   * @param {Row} _frame */
  other(_frame) {}

  /** The server has sent its `hello`. */
  greeted() {}

  connect() {
    this.socket = new WebSocket(socketUrl(this.page.socket));
    this.socket.onmessage = (event) => this.heard(JSON.parse(event.data));
    this.socket.onclose = (event) => this.lost(event.code);
    this.timer = setInterval(() => this.ping(), PING_MS);
  }

  ping() {
    if (this.socket?.readyState !== 1) return;
    if (this.unanswered < PINGS_MOST) {
      this.unanswered += 1;
      return this.socket.send('{"type":"ping"}');
    }
    this.socket.close();
    this.lost(0);
  }

  /** @param {number} code */
  lost(code) {
    clearInterval(this.timer);
    this.busy = "";
    this.state = { ...this.state, open: false };
    this.gone = true;
    const key = `play.close.${code}`;
    $("play-lost").hidden = false;
    setText($("play-lost-text"), t(has(key) ? key : "play.close.other"));
    this.draw();
  }

  /**
   * Send a command, unless one is being answered.
   * @param {Row} frame
   */
  send(frame) {
    if (this.busy || this.gone || this.socket?.readyState !== 1) return false;
    const text = JSON.stringify(frame);
    if (text.length > this.limits.frame_bytes) {
      this.complain(frame.type, t("play.too_large", { n: Math.floor(this.limits.frame_bytes / 1000) }));
      return false;
    }
    this.busy = frame.type;
    this.complain(frame.type, "");
    this.socket.send(text);
    this.draw();
    return true;
  }

  /** @param {Row} frame */
  heard(frame) {
    this.unanswered = 0;
    if (frame.type === "pong") return;
    if (frame.type === "hello") {
      this.limits = { frame_bytes: frame.frame_bytes, calls: frame.calls };
      this.ready = true;
      this.draw();
      return this.greeted();
    }
    this.busy = "";
    if (frame.state) this.state = frame.state;
    if (frame.type === "opened") this.opened(frame);
    else if (frame.type === "answer") this.answered(frame);
    else if (frame.type === "ended") this.notice(frame.reason);
    else if (frame.type === "problem") this.problem(frame);
    else if (frame.type === "saved") this.save.saved(frame);
    else this.other(frame);
    this.draw();
  }

  /** @param {Row} frame */
  opened(frame) {
    this.turns = [];
    this.seconds = frame.seconds;
    this.seed = frame.seed;
    this.began(frame);
    this.save.tell("row", "");
    this.save.tell("case", "");
    this.notice("");
    this.act.complain("");
    if (matchMedia("(max-width: 56rem)").matches) $("conversation").scrollIntoView({ block: "start" });
  }

  /** The conversation that an episode begins with.
   * @param {Row} frame */
  began(frame) {
    this.add(frame.messages, frame.seconds);
  }

  /** @param {Row} frame */
  answered(frame) {
    this.add([frame.said], 0);
    if (frame.messages.length) this.add(frame.messages, frame.seconds);
    this.seconds = frame.seconds;
    this.act.taken();
    this.notice("");
  }

  /**
   * @param {Row[]} messages
   * @param {number} seconds
   * @param {string} [note] next to its head
   */
  add(messages, seconds, note = "") {
    const number = this.turns.length;
    if (messages.length) this.turns.push({ number, seq: number, messages, tokens: 0, seconds, note });
  }

  /** @param {Row} frame */
  problem(frame) {
    const sentence = [frame.title, frame.hint, frame.detail].filter(Boolean).map(plain).join(" ");
    this.complain(frame.of, sentence);
  }

  /**
   * Show it where the person looks: next to what was asked for.
   * @param {string} of the command
   * @param {string} sentence
   */
  complain(of, sentence) {
    if (of === "save_row") this.save.tell("row", sentence, "error");
    else if (of === "save_case") this.save.tell("case", sentence, "error");
    else if (of === "step") this.act.complain(sentence);
    else this.refused(sentence);
  }

  /** @param {string} sentence */
  notice(sentence) {
    $("play-notice").hidden = !sentence;
    setText($("play-notice"), sentence || "");
  }

  status() {
    if (this.gone) return ["bad", "play.lost"];
    if (!this.ready) return ["stale", "play.connecting"];
    if (["reset", "rewind", "step"].includes(this.busy)) return ["preparing", "play.waiting"];
    if (this.state.open) return ["running", "play.playing"];
    if (!this.state.episode) return ["ok", "play.ready"];
    return this.state.done ? ["succeeded", "play.over"] : ["cancelled", "play.closed"];
  }

  draw() {
    const state = this.state;
    const [tone, word] = this.status();
    setAttr($("play-status"), "data-state", tone);
    setText($("play-status"), t(word));
    const may = Boolean(this.ready) && !this.busy && !this.gone;
    $("play-end", HTMLButtonElement).disabled = !(may && state.open);
    this.starter.disabled = !may;
    $("act").hidden = !state.open;
    $("act-send", HTMLButtonElement).disabled = $("act-queue", HTMLButtonElement).disabled = !may;
    for (const button of document.querySelectorAll(".play-click")) /** @type {any} */ (button).disabled = !may;
    setAttr($("act"), "aria-busy", String(this.busy === "step"));
    this.act.show(state);
    this.save.show(may ? state : { turns: 0 });
    $("save-nothing").hidden = Boolean(state.turns);
    if (!state.episode) return;
    const before = $("transcript").querySelectorAll(".turn").length;
    this.transcript.show(this.shown(), this.turns);
    if (this.turns.length > before) this.follow();
    this.outcome();
  }

  /** Show the newest turn from its beginning: an answer may be longer than the box. */
  follow() {
    const box = $("transcript");
    const said = [...box.querySelectorAll(".turn")]
      .reverse()
      .find((turn) => turn.querySelector('[data-role="assistant"]'));
    if (said) box.scrollTop += said.getBoundingClientRect().top - box.getBoundingClientRect().top;
  }

  /** The episode as a transcript wants it; its rewards are next to it, not below. */
  shown() {
    return { id: this.state.episode, seq: this.turns.length, status: "completed", parts: {}, failure: null };
  }

  outcome() {
    const { state } = this;
    const none = state.done ? t("missing") : t("play.not_yet");
    setText($("out-reward"), state.reward === null ? none : figure(state.reward));
    setAttr($("out-reward"), "data-none", state.reward === null ? "true" : null);
    setText($("out-done"), t(state.done ? "play.done_yes" : "play.done_no"));
    setText($("out-turns"), String(state.turns));
    setText($("out-seed"), String(this.seed));
    setText($("out-latency"), t("play.latency", { n: figure((this.seconds ?? 0) * 1000) }));
    const rows = Object.entries(state.parts || {}).map(([name, value]) =>
      h("tr", {}, h("td", { class: "mono" }, plain(name)), h("td", { class: "num" }, figure(value))),
    );
    $("out-parts").replaceChildren(...rows);
    $("out-parts-table").hidden = !rows.length;
    const info =
      state.info && Object.keys(state.info).length
        ? tree(state.info)
        : h("p", { class: "muted small" }, t("play.empty_info"));
    const text = JSON.stringify(state.info);
    if (this.shownInfo !== text) $("out-info").replaceChildren(info);
    this.shownInfo = text;
  }
}
