// @ts-check
/** Other runs on the axes of this one, and axes other than steps: both are asked of the API. */
import { toast } from "../app.js";
import { $, h, keyed, setAttr, setText, t } from "../lib/dom.js";
import { ask, askOrNull, sentenceOf } from "../lib/ask.js";
import { partAround } from "../lib/closer.js";
import { addCurves } from "../lib/points.js";
import { emptyState } from "../lib/state.js";

/** @typedef {import("../lib/curves.js").Source} Source */
/** @typedef {{id: string, number: number}} Place */
/** @typedef {Source & {id: string, name: string, state: import("../lib/state.js").State, ended: boolean, failed: "" | "refused" | "away", asked: Set<string>}} Other */

const MOST = 7; // besides the page's own: there are eight colours
const POINTS = 400;
const PART_POINTS = 2000;
const AGAIN_MS = 30_000; // other runs that are active change
const FIND_MS = 250;
const REFUSED = new Set([403, 404, 422]);
const NAMES_MAX = 100; // of one question

export class OtherRuns {
  /** @param {{page: Record<string, any>, view: import("../lib/view.js").View, state: import("../lib/state.js").State, names: () => string[], onChange: () => void}} options */
  constructor(options) {
    this.options = options;
    /** @type {Source} */
    this.own = { number: 0, curves: options.state.curves, parts: options.state.parts, axes: null, alike: true };
    this.ownAt = { step: -1, asking: false };
    /** @type {Map<string, Other>} */
    this.others = new Map();
    for (const button of document.querySelectorAll("[data-axis]")) {
      button.addEventListener("click", () => {
        options.view.x = button.getAttribute("data-axis") ?? "step";
        options.onChange();
      });
    }
    const menu = /** @type {HTMLDetailsElement} */ ($("overlay-menu"));
    menu.addEventListener("toggle", () => {
      if (!menu.open) return;
      this.find();
      $("others-find").focus();
    });
    /** @type {any} */
    let waiting = null;
    $("others-find").addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.find(), FIND_MS);
    });
    setInterval(() => this.again(), AGAIN_MS);
  }

  /** The runs that are drawn; asks for what is not here yet. */
  sources() {
    const { state, view } = this.options;
    Object.assign(this.own, { curves: state.curves, parts: state.parts });
    if (view.x !== "step") this.askAxes();
    for (const place of view.others) if (!this.others.has(place.id)) this.add(place);
    for (const id of this.others.keys()) if (!view.others.some((place) => place.id === id)) this.others.delete(id);
    this.draw();
    return [this.own, ...Array.from(this.others.values()).filter((other) => other.axes)];
  }

  /** Whether the chosen axis is known; until then nothing is drawn on another. */
  ready() {
    return this.options.view.x === "step" || this.own.axes !== null;
  }

  /** The page's own axis, again when the run has gone on by a fiftieth. */
  async askAxes() {
    const step = this.options.state.run?.step ?? 0;
    if (this.ownAt.asking || (this.own.axes && step <= this.ownAt.step * 1.02)) return;
    this.ownAt.asking = true;
    try {
      const found = await ask(`${this.options.page.api}/runs/${this.options.page.id}/axes`);
      this.own.axes = found.axes;
    } catch (problem) {
      if (!this.own.axes) toast(sentenceOf(problem), "error");
    }
    this.ownAt = { step, asking: false };
    if (!this.own.axes?.[this.options.view.x]) this.options.view.x = "step";
    this.options.onChange();
  }

  /** @param {Place} place */
  async add(place) {
    const state = emptyState();
    /** @type {Other} */
    const other = {
      ...place, name: "…", state, curves: state.curves, parts: state.parts, axes: null, alike: false, ended: true, failed: "", asked: new Set(),
    }; // prettier-ignore
    this.others.set(place.id, other);
    await this.load(other);
  }

  /**
   * Ask for a run's name, axes and curves. A refusal is final; anything else is tried again.
   * @param {Other} other
   */
  async load(other) {
    const { page } = this.options;
    try {
      const found = await ask(`${page.api}/runs/${other.id}/axes?beside=${page.id}`);
      const ended = page.terminal.includes(found.state);
      Object.assign(other, { name: found.name, axes: found.axes, alike: found.same_rewards, ended, failed: "" });
      await this.fill(other);
    } catch (/** @type {any} */ problem) {
      other.failed = REFUSED.has(problem.status) ? "refused" : "away";
    }
    this.options.onChange();
  }

  /**
   * Ask for the curves of another run that charts draw.
   * @param {Other} other
   */
  async fill(other) {
    const names = this.options.names();
    for (let at = 0; at < names.length; at += NAMES_MAX)
      await this.curvesOf(other, names.slice(at, at + NAMES_MAX), `points=${POINTS}`);
  }

  /**
   * Curves whose answer is lost are asked for again.
   * @param {Other} other
   * @param {string[]} names
   * @param {string} query
   * @param {[number, number]} [part] first and last step, for a closer look
   */
  async curvesOf(other, names, query, part) {
    const ends = part ? { first: part[0], last: part[1] } : {};
    const keys = names.map((name) => [name, ...(part ?? [])].join(" "));
    const asked = new URLSearchParams(names.map((name) => ["name", name]));
    for (const [end, step] of Object.entries(ends)) asked.set(end, String(step));
    for (const key of keys) other.asked.add(key);
    const found = await askOrNull(`${this.options.page.api}/runs/${other.id}/metrics?${query}&${asked}`);
    if (found) addCurves(other.state, { ...found, ...ends });
    else for (const key of keys) other.asked.delete(key);
  }

  /**
   * More points of other runs where a zoom lacks them.
   * @param {import("../lib/curves.js").Curves} curves
   */
  async lookCloser(curves) {
    for (const other of this.others.values()) {
      const range = curves.stepsOf(curves.range, other);
      if (!range) continue;
      const part = partAround(range);
      const names = curves.coarse(other).filter((name) => !other.asked.has([name, ...part].join(" ")));
      if (!names.length) continue;
      await this.curvesOf(other, names.slice(0, NAMES_MAX), `points=${PART_POINTS}`, part);
      curves.recolour();
    }
  }

  /** Load charts that were added since, and new points of other active runs. */
  async again() {
    if (document.visibilityState !== "visible") return;
    for (const other of this.others.values()) {
      if (
        other.failed === "refused" ||
        (other.axes && other.ended && this.options.names().every((name) => other.asked.has(name)))
      )
        continue;
      if (!other.axes) {
        await this.load(other);
        continue;
      }
      const found = await askOrNull(`${this.options.page.api}/runs/${other.id}/axes`);
      if (!found) continue;
      Object.assign(other, { axes: found.axes, ended: this.options.page.terminal.includes(found.state) });
      await this.fill(other);
      this.options.onChange();
    }
  }

  /** The runs that can be added: those of the project that train. */
  async find() {
    const { page, view } = this.options;
    const box = $("others-list");
    const query = new URLSearchParams({ q: /** @type {HTMLInputElement} */ ($("others-find")).value, per_page: "100" });
    const found = await askOrNull(`${page.api}/projects/${page.project}/runs?${query}`);
    const chosen = new Set([page.id, ...view.others.map((place) => place.id)]);
    const runs = (found?.items ?? []).filter(
      (/** @type {any} */ run) => page.training.includes(run.kind) && !chosen.has(run.id),
    );
    const none = found ? t("no_run") : t("offline");
    if (!runs.length) return void box.replaceChildren(h("p", { class: "muted small menu-label" }, none));
    keyed(
      box,
      runs,
      (run) => run.id,
      (run) =>
        h(
          "button",
          { class: "menu-item metric-item", type: "button", onclick: () => this.choose(run.id) },
          h("span", { class: "truncate" }, run.name),
          h("span", { class: "muted push small" }, t(`state.${run.state}`)),
        ),
      () => {},
    );
  }

  /** @param {string} id */
  choose(id) {
    const { view } = this.options;
    const taken = new Set(view.others.map((place) => place.number));
    const number = Array.from({ length: MOST }, (_none, at) => at + 1).find((free) => !taken.has(free));
    if (number === undefined) return;
    view.others.push({ id, number }); // the number stays its own, whichever others come and go
    /** @type {HTMLDetailsElement} */ ($("overlay-menu")).open = false;
    this.options.onChange();
  }

  /** The legend of runs, and which axis is chosen. */
  draw() {
    const { page, view } = this.options;
    for (const button of document.querySelectorAll("[data-axis]")) {
      const axis = button.getAttribute("data-axis") ?? "step";
      setAttr(button, "aria-pressed", String(axis === view.x));
      const unknown = axis !== "step" && this.own.axes !== null && !this.own.axes[axis];
      setAttr(button, "disabled", unknown ? "" : null);
      setAttr(button, "title", unknown ? t("axis_unknown") : null);
    }
    setAttr($("overlay-menu").querySelector("summary"), "aria-disabled", view.others.length >= MOST ? "true" : null);
    const shown = [{ id: page.id, number: 0, name: page.name, note: "" }, ...Array.from(this.others.values(), noted)];
    $("others-legend").hidden = shown.length < 2;
    keyed(
      $("others-legend"),
      shown,
      (run) => run.id,
      (run) => this.chip(run),
      drawChip,
    );
  }

  /** @param {{id: string, number: number}} run */
  chip(run) {
    const { page, view } = this.options;
    const leave = () => {
      view.others = view.others.filter((place) => place.id !== run.id);
      this.options.onChange();
    };
    return h(
      "li",
      { class: "chart-figure", "data-curve": run.number },
      h("span", { class: "chart-key" }),
      run.number ? h("a", { href: `${page.runs}${run.id}/` }) : h("b"),
      h("span", { class: "muted" }),
      run.number > 0 &&
        h("button", { class: "button button-quiet button-small", type: "button", onclick: leave }, t("leave_out")),
    );
  }
}

/**
 * @param {Other} other
 * @returns {{id: string, number: number, name: string, note: string}}
 */
function noted(other) {
  const failed = other.failed && t(other.failed === "refused" ? "run_unknown" : "offline");
  const note = failed || (other.axes && !other.alike ? t("rewards_differ") : "");
  return { id: other.id, number: other.number, name: other.failed ? "–" : other.name, note };
}

/**
 * @param {HTMLElement} node
 * @param {{name: string, note: string}} run
 */
function drawChip(node, run) {
  setText(node.children[1], run.name);
  setText(node.children[2], run.note);
}
