// @ts-check
/** The Rollouts tab of the run page: choose a step, see its groups, read a transcript. */
import { $, batched, setAttr, setText, t } from "../lib/dom.js";
import { plain, score } from "../lib/format.js";
import { outcomeWords } from "../lib/outcome.js";
import { drawGroups, stepCounts } from "../lib/rollouts.js";
import { Roving } from "../lib/roving.js";
import { currentStep, rolloutsOf } from "../lib/state.js";
import { Transcript } from "../lib/transcript.js";

/** @typedef {Record<string, any>} Row */

const SCRUB_MS = 150; // between two steps that are asked for while the slider is drawn

export class RolloutPanel {
  /**
   * @param {{state: import("../lib/state.js").State, view: import("../lib/view.js").View, page: Row,
   *   onView: (push?: boolean) => void, send: (frame: Row) => boolean}} options
   */
  constructor(options) {
    this.options = options;
    this.transcript = new Transcript($("transcript"), options.page.weights, options.page.components);
    this.asked = -1;
    this.drawn = -1;
    this.stops = new Roving($("groups"), ".rollout");
    $("step-back").addEventListener("click", () => this.go(-1));
    $("step-next").addEventListener("click", () => this.go(1));
    $("step-follow").addEventListener("click", () => this.choose(options.view.step === null ? this.step() : null));
    $("step-input").addEventListener("change", () => this.typed());
    this.scrub = /** @type {HTMLInputElement} */ ($("step-scrub"));
    this.scrubbed = batched(() => this.choose(Number(this.scrub.value)), SCRUB_MS);
    this.scrub.addEventListener("input", this.scrubbed);
    $("groups").addEventListener("click", (event) => {
      const card = /** @type {Element} */ (event.target).closest("[data-rollout]");
      if (card) this.select(card.getAttribute("data-rollout"));
    });
    $("reader-close").addEventListener("click", () => this.select(null));
    $("reader-back").addEventListener("click", () => this.neighbour(-1));
    $("reader-next").addEventListener("click", () => this.neighbour(1));
    document.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** The step that is shown. */
  step() {
    return this.options.view.step ?? currentStep(this.options.state);
  }

  /** @param {Row} frame a snapshot or a step that has arrived */
  heard(frame) {
    if (frame.type === "snapshot" || frame.step === this.asked) this.asked = -1;
  }

  /** A new line begins: what was asked for on the one before may be asked for again. */
  forget() {
    this.asked = -1;
  }

  /** @param {number | null} step */
  choose(step) {
    const { view, state } = this.options;
    view.step = step;
    const leaves = view.rollout !== null && state.rollouts.get(view.rollout)?.step !== this.step();
    if (leaves) view.rollout = null;
    this.options.onView(leaves); // the way back leads to what was read
    this.draw();
  }

  typed() {
    const value = /** @type {HTMLInputElement} */ ($("step-input")).value;
    if (/^\d{1,9}$/.test(value)) this.choose(Number(value));
  }

  /** @param {number} by */
  go(by) {
    const step = this.step();
    if (step !== null) this.choose(Math.max(0, Math.min(this.newest(), step + by)));
  }

  newest() {
    return Math.max(currentStep(this.options.state) ?? 0, this.options.state.run?.step ?? 0);
  }

  /** @param {string | null} id */
  select(id) {
    this.options.view.rollout = id;
    if (id !== null) this.options.view.step = this.options.state.rollouts.get(id)?.step ?? this.options.view.step; // reading stays where it is
    this.options.onView(id !== null);
    this.draw();
    if (id !== null && matchMedia("(max-width: 64rem)").matches) $("reader-side").scrollIntoView({ block: "start" });
  }

  /** @param {number} by */
  neighbour(by) {
    const rows = rolloutsOf(this.options.state, this.step());
    const at = rows.findIndex((row) => row.id === this.options.view.rollout);
    const next = rows[at + by];
    if (next) this.select(next.id);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const target = /** @type {Element} */ (event.target);
    if (
      event.defaultPrevented ||
      this.options.view.tab !== "rollouts" ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey
    )
      return;
    if (target.closest("input, textarea, select, dialog")) return;
    if (event.key === "ArrowLeft") this.go(-1);
    else if (event.key === "ArrowRight") this.go(1);
    else if (event.key === "j") this.neighbour(1);
    else if (event.key === "k") this.neighbour(-1);
    else return;
    event.preventDefault();
  }

  draw() {
    const { state, view } = this.options;
    const step = this.step();
    const live = view.step === null;
    setAttr($("step-follow"), "aria-pressed", String(live));
    const input = /** @type {HTMLInputElement} */ ($("step-input"));
    if (document.activeElement !== input && step !== null) input.value = String(step);
    this.scrubTo(step);
    const rows = rolloutsOf(state, step);
    this.ask(step);
    this.summary(rows, step);
    const box = $("groups");
    box.querySelector("[data-server]")?.remove();
    if (this.drawn !== step) box.replaceChildren();
    this.drawn = step ?? -1;
    drawGroups(box, rows, state.groups, view.rollout, this.options.page.same_reward);
    this.stops.settle();
    this.read();
  }

  /** @param {number | null} step */
  scrubTo(step) {
    const newest = this.newest();
    this.scrub.hidden = step === null || newest < 2;
    this.scrub.min = String(Math.min(1, step ?? 1)); // step 0 has held-out tasks at most
    this.scrub.max = String(newest);
    const held = document.activeElement === this.scrub && this.options.view.step !== null; // it is being drawn
    if (step !== null && !held) this.scrub.value = String(step);
  }

  /**
   * Ask the server for a step that is not known in full.
   * @param {number | null} step
   */
  ask(step) {
    const { state } = this.options;
    if (step === null || state.run === null || state.whole.has(step) || this.asked === step) return;
    if (this.options.send({ type: "step", step })) this.asked = step;
  }

  /**
   * Whether all rollouts of a step are known, also if it has none; before the first step there are none.
   * @param {number | null} step
   */
  isWhole(step) {
    return step === null || this.options.state.whole.has(step);
  }

  /**
   * @param {Row[]} rows
   * @param {number | null} step
   */
  summary(rows, step) {
    const parts = stepCounts(rows, this.options.page.outcomes).map(([word, count]) => `${count} ${t(word)}`);
    const none = this.isWhole(step) ? t("no_rollouts") : t("loading");
    setText($("step-summary"), parts.length ? parts.join(" · ") : none);
  }

  read() {
    const { state, view, page } = this.options;
    const row = view.rollout ? state.rollouts.get(view.rollout) : undefined;
    setAttr($("reader"), "data-open", view.rollout ? "" : null);
    const link = $("reader-page");
    link.hidden = !view.rollout;
    if (!row) {
      const unknown = this.isWhole(this.step()) ? t("no_rollout") : t("loading");
      this.transcript.say(view.rollout ? unknown : t("choose_rollout"));
      return;
    }
    setAttr(link, "href", `${page.urls.rollout}${row.id}/`);
    const figures =
      row.reward === null ? outcomeWords(row) : `${outcomeWords(row)} · ${t("reward")} ${score(row.reward)}`;
    setText($("reader-title"), `${row.step}.${row.group}.${row.policy ? plain(row.policy) : row.index} · ${figures}`);
    setAttr($("reader-title"), "title", plain(row.task || "").slice(0, 500));
    const turns = state.turns.get(row.id);
    if (!turns && !this.isWhole(row.step)) this.transcript.say(t("loading"));
    else this.transcript.show(row, turns || []);
  }
}
