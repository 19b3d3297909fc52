// @ts-check
/** The Curves tab of the run page: the charts and their bar. */
import { toast } from "../app.js";
import { ask, sentenceOf } from "../lib/ask.js";
import { $, h, keyed, maybe, setAttr, t } from "../lib/dom.js";
import { Curves } from "../lib/curves.js";
import { missingCurves, specsOf } from "../lib/specs.js";
import { figure } from "../lib/format.js";
import { partAround } from "../lib/closer.js";
import { OtherRuns } from "./run_beside.js";

/** The marks of the advisories as the server wrote them: it draws their part of the page again when they change. */
const marksText = () => maybe("run-advisories")?.dataset.marks ?? "";

export class CurvePanel {
  /** @param {{page: Record<string, any>, state: import("../lib/state.js").State, view: import("../lib/view.js").View, curves: string[], own: string[], plotly: string, ended: () => boolean, baselines: Record<string, import("../lib/shapes.js").Baseline[]>, components: Record<string, string>, onView: () => void, onStep: (step: number) => void, send: (frame: Record<string, unknown>) => boolean}} options */
  constructor(options) {
    this.options = options;
    /** @type {Set<string>} */
    this.asked = new Set();
    this.marked = marksText();
    document.addEventListener("htmx:afterSwap", () => {
      const now = marksText();
      if (now === this.marked) return;
      this.marked = now;
      this.curves.recolour();
    });
    const fold = $("charts-still", HTMLDetailsElement);
    fold.open = options.view.still;
    fold.addEventListener("toggle", () => {
      options.view.still = fold.open;
      options.onView();
    });
    this.curves = new Curves($("charts"), fold, {
      plotly: options.plotly,
      lead: $("chart-lead"),
      leads: options.page.leads,
      behind: options.page.behind,
      shares: options.page.shares,
      onBehind: () => this.change(() => (options.view.behind = !options.view.behind)),
      baselines: options.baselines,
      components: options.components,
      weights: options.page.stack,
      marks: () => JSON.parse(this.marked || "[]"),
      onStep: options.onStep,
      ended: options.ended,
      onZoom: () => this.lookCloser(),
      onStack: () => this.change(() => (options.view.stack = !options.view.stack)),
      csv: (names) => `${options.page.csv}?${new URLSearchParams(names.map((name) => ["name", name]))}`,
      onPin: options.page.can_pin ? (spec) => this.pin(spec) : undefined,
      picture: (spec) => `${options.page.name}: ${spec.title}`,
      onRemove: (key) => this.change(() => (options.view.add = options.view.add.filter((name) => name !== key))),
    });
    this.others = new OtherRuns({
      page: options.page,
      view: options.view,
      state: options.state,
      names: () => this.curves.specs.flatMap((spec) => spec.names),
      onChange: () => this.change(() => {}),
    });
    for (const button of document.querySelectorAll("[data-smooth]")) {
      button.addEventListener("click", () =>
        this.change(() => (options.view.smooth = Number(button.getAttribute("data-smooth")))),
      );
    }
    $("curve-log").addEventListener("click", () => this.change(() => (options.view.log = !options.view.log)));
    $("metric-find").addEventListener("input", () => this.list());
    $("metric-menu").addEventListener("toggle", () => {
      if (!(/** @type {HTMLDetailsElement} */ ($("metric-menu")).open)) return;
      this.list();
      $("metric-find").focus();
    });
  }

  /** A line or its state begins again: what was asked for on it may be asked for again. */
  forget() {
    this.asked.clear();
  }

  /**
   * Ask the server for curves, or for the part of them between two steps; what was asked for is not asked for again.
   * @param {string[]} names
   * @param {[number, number]} [part]
   */
  ask(names, part) {
    const about = part ? { first: part[0], last: part[1] } : {};
    const keyOf = (/** @type {string} */ name) => `${name} ${part?.join() ?? ""}`;
    const fresh = names.filter((name) => !this.asked.has(keyOf(name)));
    const most = this.options.page.curves_at_once;
    for (let at = 0; at < fresh.length; at += most) {
      const some = fresh.slice(at, at + most);
      if (!this.options.send({ type: "curves", names: some, ...about })) return;
      for (const name of some) this.asked.add(keyOf(name));
    }
  }

  /** Ask for the points of what is shown where a long curve was thinned. */
  lookCloser() {
    const { range } = this.curves;
    const steps = this.curves.stepsOf(range);
    if (!steps) return;
    this.ask(this.curves.coarse(), partAround(steps));
    this.others.lookCloser(this.curves);
  }

  /** @param {() => void} work */
  change(work) {
    work();
    this.options.onView();
    this.draw();
  }

  draw() {
    const { state, view, curves, own } = this.options;
    for (const button of document.querySelectorAll("[data-smooth]")) {
      setAttr(button, "aria-pressed", String(Number(button.getAttribute("data-smooth")) === view.smooth));
    }
    setAttr($("curve-log"), "aria-pressed", String(view.log));
    $("no-points").hidden = state.run === null || state.names.size > 0;
    // Until then they keep the room of what will come.
    for (const id of ["charts", "chart-lead"]) $(id).hidden = !$("no-points").hidden;
    this.ask(missingCurves(state, curves, view.add, own));
    const sources = this.others.sources();
    if (!this.others.ready()) return; // comes again with the axis
    const specs = specsOf(state, curves, view.add, own, Object.keys(this.options.components));
    this.curves.update(state, specs, { ...view }, sources);
    this.lookCloser();
  }

  /**
   * Put a chart on the project's page, as it is shown here.
   * @param {import("../lib/specs.js").Spec} spec
   */
  async pin(spec) {
    const { smooth, log, x, stack } = this.options.view;
    const body = { key: spec.key, names: spec.names, smooth, log, x, stack };
    try {
      await ask(`${this.options.page.api}/runs/${this.options.page.id}/pins`, { body });
      toast(t("pinned"), "success");
    } catch (problem) {
      toast(sentenceOf(problem), "error");
    }
  }

  /** The metrics that can be added, by name. */
  list() {
    const { state, view, curves, own } = this.options;
    const wanted = /** @type {HTMLInputElement} */ ($("metric-find")).value.trim().toLowerCase();
    const curated = new Set(specsOf(state, curves, [], own).flatMap((spec) => spec.names));
    const names = Array.from(state.names.keys())
      .filter((name) => !curated.has(name) && name.toLowerCase().includes(wanted))
      .sort()
      .slice(0, 200);
    const box = $("metric-list");
    if (!names.length) return box.replaceChildren(h("p", { class: "muted small menu-label" }, t("no_match")));
    keyed(
      box,
      names,
      (name) => name,
      (name) =>
        h(
          "button",
          { class: "menu-item metric-item", type: "button", onclick: () => this.toggle(name) },
          h("span", { class: "mono truncate" }, name),
          h("span", { class: "num muted push" }),
        ),
      (node, name) => {
        setAttr(node, "aria-pressed", String(view.add.includes(name)));
        if (node.lastElementChild) node.lastElementChild.textContent = figure(state.names.get(name) ?? null);
      },
    );
  }

  /** @param {string} name */
  toggle(name) {
    const { view } = this.options;
    this.change(
      () => (view.add = view.add.includes(name) ? view.add.filter((other) => other !== name) : [...view.add, name]),
    );
    this.list();
  }
}
