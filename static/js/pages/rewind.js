// @ts-check
/** A rewound rollout: the recorded turns are played again and checked, and then a person continues by hand. */
import { $, h, setText, t } from "../lib/dom.js";
import { plain } from "../lib/format.js";
import { answersOf } from "../lib/rewound.js";
import { partsTable } from "../lib/transcript.js";
import { Player } from "./playground_page.js";

/** @typedef {Record<string, any>} Row */

class Rewound extends Player {
  constructor() {
    super();
    $("rewind-form").addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      if (!this.starter.disabled) this.rewind(Number($("rewind-turn", HTMLInputElement).value));
    });
    this.draw();
  }

  get starter() {
    return $("rewind-start", HTMLButtonElement);
  }

  greeted() {
    this.rewind(this.page.turn);
  }

  /** @param {number} turn of the policy, from 1 */
  rewind(turn) {
    if (!Number.isInteger(turn) || turn < 1 || turn > this.page.last)
      return this.refused(t("rewind.turn_bad", { n: this.page.last }));
    if (this.send({ type: "rewind", turn })) this.check("info", t("play.start"));
  }

  /** @param {string} sentence */
  refused(sentence) {
    $("rewind-problem").hidden = !sentence;
    setText($("rewind-problem"), sentence);
    if (sentence && !this.state.open) this.check("error", t("rewind.failed"));
  }

  /** @param {number} code */
  lost(code) {
    super.lost(code);
    if (!this.state.episode) this.check("error", t("rewind.failed"));
  }

  /**
   * The result of playing the recorded turns again.
   * @param {string} kind
   * @param {string} words
   * @param {Node[]} more
   */
  check(kind, words, ...more) {
    $("rewind-check").dataset.kind = kind;
    $("rewind-check").replaceChildren(h("p", {}, words), ...more);
  }

  /** @param {Row} frame */
  began(frame) {
    this.refused("");
    const { check } = frame;
    this.add(frame.messages.slice(0, frame.prompt), 0, this.mark(0, check));
    for (const answer of answersOf(frame.messages.slice(frame.prompt))) {
      this.add([answer.said], 0);
      this.add(answer.messages, 0, this.mark(answer.turn, check));
    }
    this.showCheck(frame.turn, check);
    $("scored-parts").replaceChildren(h("p", { class: "small muted" }, t("rewind.not_scored")));
  }

  /**
   * The mark next to a recorded turn: whether the environment answered it in the same way.
   * @param {number} turn
   * @param {Row} check
   */
  mark(turn, check) {
    if (!check.checked) return t("rewind.unchecked");
    return check.differing.includes(turn) ? `✗ ${t("rewind.other")}` : `✓ ${t("rewind.same")}`;
  }

  /**
   * @param {number} turn
   * @param {Row} check
   */
  showCheck(turn, check) {
    const other = check.difference;
    const what = other && other.what === "messages" && other.turn === 0 ? "opening" : other?.what;
    const all = check.turns
      ? t("rewind.all_same", { ms: Math.round(check.seconds * 1000), turn })
      : t("rewind.none", { turn });
    const fine = check.checked ? all : t("rewind.not_asked", { turn });
    const words = [other ? t(`rewind.${what}`, { turn: other.turn }) : fine, check.over ? t("rewind.over") : ""];
    const sentence = words.filter(Boolean).join(" ");
    this.check(
      other ? "warning" : "success",
      sentence,
      ...(other && other.what !== "ended" ? [this.compared(other)] : []),
    );
  }

  /** @param {Row} other */
  compared(other) {
    const side = (/** @type {string} */ title, /** @type {string} */ text) =>
      h(
        "div",
        {},
        h("p", { class: "eyebrow" }, title),
        h("div", { class: "said", dir: "auto" }, plain(text) || t("rewind.nothing")),
      );
    return h(
      "div",
      { class: "rewind-sides" },
      side(t("rewind.recorded"), other.recorded),
      side(t("rewind.now"), other.now),
    );
  }

  /** @param {Row} frame */
  other(frame) {
    if (frame.type !== "scored") return;
    const table = partsTable({ parts: frame.parts, reward: frame.reward }, this.page.weights, this.page.titles);
    const why = Object.entries(frame.missing).map(([name, words]) =>
      h("li", {}, `${plain(this.page.titles[name] ?? name)}: ${plain(words)}`),
    );
    const link = h(
      "a",
      { class: "button", href: `${this.page.branches}?show=${frame.branch.id}` },
      t("rewind.branches"),
    );
    const list = why.length ? h("ul", { class: "small muted" }, ...why) : "";
    const badge = h(
      "p",
      {},
      h("span", { class: "badge", "data-state": frame.branch.outcome }, frame.branch.outcome_title),
    );
    $("scored-parts").replaceChildren(badge, table ?? "", list, h("p", {}, link));
  }
}

new Rewound();
