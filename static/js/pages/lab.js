// @ts-check
/** The reward lab: every change of the spec is scored on the whole set, and the page follows the answer. */
import { $, data, setAttr, setText, t } from "../lib/dom.js";
import { plain } from "../lib/format.js";
import { ask } from "../lib/ask.js";
import { Asker } from "../lib/lab-score.js";
import { readLabView, scaleMatters, writeLabView } from "../lib/lab-view.js";
import { Editor } from "./lab_editor.js";
import { Groups, PAGE } from "./lab_groups.js";
import { Reader } from "./lab_reader.js";
import { Result } from "./lab_result.js";
import { Saving } from "./lab_save.js";
import { SCORE_LIMIT_MS, sentenceOf, Status } from "./lab_status.js";

/** @typedef {Record<string, any>} Row */
const SHORT_LIMIT_MS = 20_000;
const AGAIN_MS = 500;

class Lab {
  constructor() {
    this.facts = data("lab-data");
    this.choices = new Map(this.facts.choices.map((/** @type {Row} */ item) => [item.key, item]));
    this.view = readLabView(location.search, this.facts.spec, [...this.choices.keys()]);
    /** @type {Row | null} */
    this.reply = null;
    this.others = new Map(); // distributions of specs to compare with, by what they were scored with
    const read = (/** @type {string | null} */ id) => this.read(id);
    this.editor = new Editor({ facts: this.facts, changed: () => this.changed() });
    this.result = new Result({
      plotly: /** @type {any} */ (window).Plotly,
      read,
      focus: (name) => this.editor.focus(name),
    });
    this.groups = new Groups({ view: this.view, ask: () => this.ask(0), read });
    this.reader = new Reader({ view: this.view, recorded: this.facts.urls.recorded, chosen: () => this.address() });
    this.saving = this.makeSaving();
    this.status = new Status(this.facts.set.rollouts);
    this.scorer = new Asker({
      send: (body, signal) => ask(this.facts.urls.score, { body, limitMs: SCORE_LIMIT_MS, signal }),
      asking: () => this.status.scoring(),
      answered: (reply, body) => this.answered(reply, body),
      failed: (problem) => this.failed(problem),
    });
    this.page = new Asker({
      send: (body, signal) =>
        ask(`${this.facts.urls.rollout}${body.id}/`, { body: body.asked, limitMs: SHORT_LIMIT_MS, signal }),
      asking: () => setAttr($("transcript"), "aria-busy", "true"),
      answered: (row) => this.shown(row),
      failed: (problem) => this.reader.say(sentenceOf(problem)),
    });
    this.listen();
    this.editor.open(this.choice().components, this.kept());
    if (this.view.rollout) this.read(this.view.rollout);
    this.ask(0);
  }

  makeSaving() {
    return new Saving({
      facts: this.facts,
      components: () => this.editor.components(),
      changed: () => this.editor.changes().length > 0,
      choice: () => this.choice(),
      post: (address, body) => ask(address, { body, limitMs: SHORT_LIMIT_MS }),
      complaint: (problem) => this.complaint(problem),
      saved: (reply, stay) => this.saved(reply, stay),
    });
  }

  listen() {
    $("lab-spec", HTMLSelectElement).value = this.view.spec;
    for (const option of $("lab-against", HTMLSelectElement).options) option.disabled = option.value === this.view.spec;
    $("lab-against", HTMLSelectElement).value = this.view.against;
    $("lab-spec", HTMLSelectElement).addEventListener("change", () =>
      this.chooseSpec($("lab-spec", HTMLSelectElement).value),
    );
    $("lab-against").addEventListener("change", () => {
      this.view.against = $("lab-against", HTMLSelectElement).value;
      this.ask(0);
    });
    for (const name of /** @type {const} */ (["aggregation", "scale"])) {
      $(`lab-${name}`, HTMLSelectElement).value = this.view[name];
      $(`lab-${name}`).addEventListener("change", () => {
        this.view[name] = $(`lab-${name}`, HTMLSelectElement).value;
        this.offerScale();
        this.ask(0);
      });
    }
    this.offerScale();
    $("lab-step", HTMLInputElement).value = String(this.view.step ?? "");
    $("lab-step").addEventListener("input", () => {
      const step = $("lab-step", HTMLInputElement).value;
      this.view.step = /^\d{1,7}$/.test(step) ? Number(step) : null;
      this.ask();
    });
    $("lab-how", HTMLDetailsElement).open =
      this.view.aggregation !== "sum_then_normalize" || this.view.scale !== "group" || this.view.step !== null;
    $("lab-retry").addEventListener("click", () => this.ask(0));
    $("reader-close").addEventListener("click", () => this.read(null));
    $("reader-back").addEventListener("click", () => this.step(-1));
    $("reader-next").addEventListener("click", () => this.step(1));
    document.addEventListener("keydown", (event) => this.onKey(event));
  }

  offerScale() {
    const matters = scaleMatters(this.view.aggregation);
    $("lab-scale", HTMLSelectElement).disabled = !matters;
    $("lab-scale-idle").hidden = matters;
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const target = /** @type {Element} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
    if (event.key === "j") this.step(1);
    else if (event.key === "k") this.step(-1);
    else if (event.key === "Escape" && this.view.rollout) this.read(null);
    else return;
    event.preventDefault();
  }

  choice() {
    return /** @type {Row} */ (this.choices.get(this.view.spec));
  }

  /** Another spec: its page, so that everything that belongs to it is the server's. @param {string} key */
  chooseSpec(key) {
    this.view.spec = key;
    if (this.view.against === key) this.view.against = "";
    location.assign(writeLabView(this.view));
  }

  storageKey() {
    return `lab:${this.facts.set.id}:${this.view.spec}`;
  }

  /** The changes from before the page was loaded again. */
  kept() {
    try {
      const found = JSON.parse(sessionStorage.getItem(this.storageKey()) || "null");
      return Array.isArray(found) && found.every((part) => typeof part?.name === "string") ? found : null;
    } catch {
      return null;
    }
  }

  changed() {
    const parts = this.editor.components();
    try {
      if (parts && this.editor.changes().length) sessionStorage.setItem(this.storageKey(), JSON.stringify(parts));
      else if (parts) sessionStorage.removeItem(this.storageKey());
    } catch {
      // A full or forbidden storage only forgets the changes when the page is loaded again.
    }
    this.ask();
  }

  address() {
    history.replaceState(null, "", writeLabView(this.view));
  }

  /** How the components are put together. */
  how() {
    const { aggregation, scale, step } = this.view;
    return { aggregation, scale, step };
  }

  /** The spec that this one is compared with: another one, or itself as it was saved once something changed. */
  other() {
    const chosen = this.choices.get(this.view.against);
    if (chosen) return { name: chosen.label, components: chosen.components };
    return this.editor.changes().length
      ? { name: t("lab.as_saved", { name: this.choice().label }), components: this.editor.base }
      : null;
  }

  /** @param {number} [restMs] */
  ask(restMs) {
    this.address();
    this.scorer.ask(() => this.body(), restMs);
    if (this.view.rollout) this.askRollout(restMs);
  }

  body() {
    const components = this.editor.components();
    if (!components) return this.status.idle(t(this.editor.fields.length ? "lab.fix_first" : "lab.none"));
    const { sort, only, offset } = this.view;
    return { components, against: this.other()?.components ?? null, ...this.how(), sort, only, offset, limit: PAGE };
  }

  /**
   * @param {Row} reply
   * @param {Row} body
   */
  answered(reply, body) {
    if (reply.computing) return this.computing(reply.computing);
    this.reply = reply;
    this.status.scored(reply);
    const other = this.other();
    const name = other ? plain(other.name) : "";
    this.editor.show(reply);
    this.result.show(reply, name);
    this.groups.show(reply, this.view.rollout, name);
    this.distribution(reply, body, name);
  }

  /**
   * Values of changed components take longer than an answer should: say how far they are, and ask again.
   * @param {Row} job
   */
  computing(job) {
    this.status.computing(job);
    this.scorer.ask(() => this.body(), AGAIN_MS);
  }

  /**
   * The other spec's distribution comes by a question of its own, once for each.
   * @param {Row} reply
   * @param {Row} body
   * @param {string} name
   */
  async distribution(reply, body, name) {
    const words = { name, now: reply.summary.reward.mean, before: reply.against?.reward.mean };
    const key = JSON.stringify([body.against, this.how()]);
    this.result.plot(reply.total.histogram, body.against ? (this.others.get(key) ?? null) : null, words);
    if (!body.against || this.others.has(key)) return;
    try {
      const wanted = { components: body.against, against: null, ...this.how(), limit: 0 };
      const found = await ask(this.facts.urls.score, { body: wanted, limitMs: SCORE_LIMIT_MS });
      if (found.computing) return;
      this.others.set(key, found.total.histogram);
      if (this.reply === reply) this.result.plot(reply.total.histogram, found.total.histogram, words);
    } catch (problem) {
      setText($("chart-against-name"), sentenceOf(problem));
    }
  }

  /** @param {any} problem */
  failed(problem) {
    this.status.failed(this.complaint(problem), this.reply ? t("lab.failed") : "");
  }

  /** The text of a refusal; what is wrong with one component is shown next to it. @param {any} problem */
  complaint(problem) {
    const rest = problem.status === 422 ? this.editor.complain(problem.body?.detail ?? {}) : [];
    return rest.join(" ") || sentenceOf(problem);
  }

  /** @param {string | null} id */
  read(id) {
    this.view.rollout = id;
    this.address();
    setAttr($("lab-reader"), "data-open", id ? "" : null);
    this.groups.select(id);
    if (id === null) return this.reader.say(t("lab.choose"));
    if (this.reader.row?.id !== id) this.reader.say(t("loading"));
    this.askRollout(0);
    const narrow = matchMedia("(max-width: 64rem)").matches;
    const seen = $("reader-side").getBoundingClientRect();
    if (narrow) $("reader-side").scrollIntoView({ block: "start" });
    else if (seen.top > innerHeight / 2 || seen.bottom < innerHeight / 2)
      $("lab-groups-part").scrollIntoView({ block: "start" });
  }

  /** @param {number} [restMs] */
  askRollout(restMs) {
    const id = this.view.rollout;
    this.page.ask(() => {
      const components = this.editor.components();
      return components && id ? { id, asked: { components, ...this.how() } } : null;
    }, restMs);
  }

  /** @param {Row} row */
  shown(row) {
    setAttr($("transcript"), "aria-busy", null);
    if (row.id === this.view.rollout) this.reader.show(row, this.editor.fields.map((item) => item.name)); // prettier-ignore
  }

  /** @param {number} by */
  step(by) {
    const next = this.groups.neighbour(this.view.rollout, by);
    if (next) this.read(next);
  }

  /**
   * @param {Row} reply
   * @param {boolean} stay
   */
  saved(reply, stay) {
    sessionStorage.removeItem(this.storageKey());
    if (stay) this.chooseSpec(reply.key);
  }
}

new Lab();
