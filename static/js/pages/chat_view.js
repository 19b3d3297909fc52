// @ts-check
/** The turns of a chat on the page. Messages are only ever shown as text. */
import { cardsOf, OPEN } from "../lib/chat.js";
import { h, has, icon, keyed, setAttr, t } from "../lib/dom.js";
import { duration, figure, plain } from "../lib/format.js";
import { folded, said } from "../lib/transcript.js";
import { cardNode, grow, headNode, showWait, tailNodes } from "./chat_cards.js";

/** @typedef {Record<string, any>} Row */
/**
 * @typedef {object} Acts
 * @property {(turn: Row, text: string) => Promise<boolean>} edit
 * @property {(answer: Row) => void} again
 */

export class ChatView {
  /**
   * @param {HTMLElement} box
   * @param {{may: boolean, contestants: string[], workers: string, runs: string}} page
   * @param {Acts} acts
   */
  constructor(box, page, acts) {
    this.box = box;
    this.page = page;
    this.acts = acts;
    /** @type {Map<string, number>} which of several answers is shown, by turn and contestant */
    this.shown = new Map();
    /** @type {Map<string, string>} a turn that is being edited, with the text so far */
    this.editing = new Map();
  }

  /** @param {import("../lib/chat.js").ChatState} state */
  draw(state) {
    this.state = state;
    const turns = state.current();
    keyed(
      this.box,
      turns,
      (turn) => turn.id,
      () => this.turn(),
      (node, turn) => this.update(node, turn, turn === turns.at(-1)),
    );
  }

  turn() {
    const answers = h("div", { class: "chat-answers" });
    return h("section", { class: "chat-turn" }, h("div", { class: "chat-person" }), answers);
  }

  /**
   * @param {HTMLElement} node
   * @param {Row} turn
   * @param {boolean} last
   */
  update(node, turn, last) {
    const [person, answers] = /** @type {HTMLElement[]} */ ([...node.children]);
    const earlier = this.state?.earlier(turn) ?? [];
    const mark = JSON.stringify([this.editing.has(turn.id), earlier.length, this.state?.busy]);
    if (person.dataset.mark !== mark) {
      person.dataset.mark = mark;
      person.replaceChildren(...(this.editing.has(turn.id) ? this.editor(turn) : this.person(turn, earlier)));
    }
    const places = this.page.contestants.map((title, place) => ({ title, place }));
    keyed(
      answers,
      places,
      ({ place }) => String(place),
      () => h("article", { class: "chat-answer" }),
      (box, { title, place }) => this.answer(box, turn, place, title, last),
    );
  }

  /**
   * @param {Row} turn
   * @param {Row[]} earlier
   */
  person(turn, earlier) {
    const name = turn.by || t("chat.you");
    const edit = h(
      "button",
      { class: "button button-small button-quiet", type: "button" },
      icon("edit"),
      t("chat.edit"),
    );
    edit.addEventListener("click", () => {
      this.editing.set(turn.id, turn.text);
      if (this.state) this.draw(this.state);
      this.box.querySelector("textarea")?.focus();
    });
    const head = h(
      "header",
      { class: "message-head" },
      h("span", { class: "message-role" }, plain(name)),
      this.page.may && !this.state?.busy && edit,
    );
    const text = turn.text ? said(turn.text, "chat-said") : h("p", { class: "muted" }, t("chat.begins"));
    return [head, text, earlier.length ? this.versions(earlier) : ""];
  }

  /** @param {Row[]} earlier */
  versions(earlier) {
    const lines = earlier.map((turn) => {
      const texts = this.page.contestants.map((title, place) => {
        const answer = this.state?.answersTo(turn, place).at(-1);
        const words = answer ? cardsOf(answer).filter((card) => card.kind === "text") : [];
        return words.length
          ? h(
              "div",
              {},
              h("p", { class: "eyebrow" }, plain(title)),
              folded(words.map((card) => card.text).join("\n"), "chat-said muted"),
            )
          : "";
      });
      return h("div", { class: "chat-version" }, said(turn.text || t("chat.begins"), "chat-said"), ...texts);
    });
    return h(
      "details",
      { class: "chat-versions small" },
      h("summary", {}, t("chat.versions", { n: earlier.length })),
      ...lines,
    );
  }

  /** @param {Row} turn */
  editor(turn) {
    const area = /** @type {HTMLTextAreaElement} */ (
      h("textarea", { class: "input chat-text", "aria-label": t("chat.edit") })
    );
    area.value = this.editing.get(turn.id) ?? turn.text;
    area.addEventListener("input", () => this.editing.set(turn.id, area.value));
    const leave = () => {
      this.editing.delete(turn.id);
      if (this.state) this.draw(this.state);
    };
    const send = h("button", { class: "button button-small button-primary" }, t("chat.edit_send"));
    const cancel = h(
      "button",
      { class: "button button-small button-quiet", type: "button", onclick: leave },
      t("chat.cancel"),
    );
    const form = h(
      "form",
      { class: "form" },
      area,
      h("p", { class: "muted small" }, t("chat.edit_note")),
      h("div", { class: "form-actions" }, send, cancel),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (await this.acts.edit(turn, area.value)) leave();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      leave();
    });
    return [form];
  }

  /**
   * @param {HTMLElement} box
   * @param {Row} turn
   * @param {number} place
   * @param {string} title
   * @param {boolean} last
   */
  answer(box, turn, place, title, last) {
    const tries = this.state?.answersTo(turn, place) ?? [];
    const key = `${turn.id}/${place}`;
    const at = Math.min(this.shown.get(key) ?? tries.length - 1, tries.length - 1);
    const answer = tries[at];
    if (!answer) return;
    const mark = JSON.stringify([
      answer.state,
      answer.phase,
      answer.messages.length,
      at,
      tries.length,
      last,
      this.state?.busy,
    ]);
    if (box.dataset.mark !== mark) {
      box.dataset.mark = mark;
      box.dataset.state = answer.state;
      setAttr(box, "aria-busy", OPEN.has(answer.state) ? "true" : null);
      const cards = cardsOf(answer).map(cardNode);
      box.replaceChildren(
        headNode(title, answer),
        ...cards,
        ...tailNodes(answer),
        this.foot(key, answer, at, tries, last),
      );
    } else if (answer.state === "answering") grow(box, answer);
    showWait(box, answer, this.state?.waits[answer.id], this.page);
  }

  /**
   * @param {string} key
   * @param {Row} answer
   * @param {number} at
   * @param {Row[]} tries
   * @param {boolean} last
   */
  foot(key, answer, at, tries, last) {
    const ending = answer.ending ?? {};
    const figures = [];
    if (ending.tokens) figures.push(t("chat.tokens", { n: ending.tokens }));
    if (ending.first_s) figures.push(t("chat.first", { t: duration(ending.first_s, t) }));
    if (ending.seconds && !OPEN.has(answer.state)) figures.push(duration(ending.seconds, t));
    const device = `chat.device.${String(ending.device ?? "").split(":")[0]}`;
    if (has(device)) figures.push(t(device));
    if (typeof ending.reward === "number") figures.push(t("chat.reward", { n: figure(ending.reward) }));
    const step = (/** @type {number} */ to) => () => {
      this.shown.set(key, to);
      if (this.state) this.draw(this.state);
    };
    const arrow = (/** @type {string} */ name, /** @type {string} */ label, /** @type {number} */ to) =>
      h(
        "button",
        {
          class: "button button-small button-quiet button-icon",
          type: "button",
          "aria-label": t(label),
          disabled: to < 0 || to >= tries.length,
          onclick: step(to),
        },
        icon(name),
      );
    const several = tries.length > 1 && [
      arrow("left", "chat.try_before", at - 1),
      h("span", { class: "muted" }, t("chat.try", { n: at + 1, all: tries.length })),
      arrow("right", "chat.try_next", at + 1),
    ];
    const again = h(
      "button",
      { class: "button button-small button-quiet", type: "button" },
      icon("refresh"),
      t("chat.again"),
    );
    again.addEventListener("click", () => {
      this.shown.delete(key);
      this.acts.again(answer);
    });
    const may = this.page.may && last && !this.state?.busy;
    return h(
      "footer",
      { class: "chat-foot small" },
      h("span", { class: "muted" }, figures.join(" · ")),
      ...(several || []),
      may && again,
    );
  }
}
