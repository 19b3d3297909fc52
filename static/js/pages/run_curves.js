// @ts-check
/** The Curves tab of the run page: the charts and their bar. */
import { $, h, keyed, setAttr, t } from "../lib/dom.js";
import { Curves, specsOf } from "../lib/curves.js";
import { figure } from "../lib/format.js";
import { last } from "../lib/series.js";

export class CurvePanel {
  /** @param {{state: import("../lib/state.js").State, view: import("../lib/view.js").View, curves: string[], own: string[], baselines: Record<string, import("../lib/chart.js").Baseline[]>, onView: () => void, onStep: (step: number) => void}} options */
  constructor(options) {
    this.options = options;
    this.curves = new Curves($("charts"), {
      plotly: /** @type {any} */ (window).Plotly,
      baselines: options.baselines,
      onStep: options.onStep,
      onRemove: (key) => this.change(() => (options.view.add = options.view.add.filter((name) => name !== key))),
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
    $("no-points").hidden = state.run === null || state.curves.size > 0;
    this.curves.update(state, specsOf(state, curves, view.add, own), { smooth: view.smooth, log: view.log });
  }

  /** The metrics that can be added, by name. */
  list() {
    const { state, view, curves, own } = this.options;
    const wanted = /** @type {HTMLInputElement} */ ($("metric-find")).value.trim().toLowerCase();
    const curated = new Set(specsOf(state, curves, [], own).flatMap((spec) => spec.names));
    const names = Array.from(state.curves.keys())
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
        const curve = state.curves.get(name);
        if (node.lastElementChild && curve) node.lastElementChild.textContent = figure(last(curve.values));
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
