// @ts-check
/** One chart: a heading with the newest (or the pointed-at) figures, lines by Plotly, a crosshair. */
import { h, has, icon, setAttr, setText, t } from "./dom.js";
import { figure } from "./format.js";
import { MARGIN, drawnLine, frameOf, lineTraces, seenValues, starTrace } from "./plot.js";
import { baselineShapes, markShapes, stageShapes } from "./shapes.js";
import { last, valueAt, valueRange } from "./series.js";
import { shownCurve } from "./closer.js";

/** @typedef {import("./plot.js").Drawn & {name: string, label: string, at: number}} Line */
/** @typedef {import("./curves.js").Spec} Spec */
/** @typedef {import("./curves.js").Curves} Curves */

const DOUBLE_CLICK_MS = 320;
const HELD_OUT = "heldout/";
/** @type {Record<string, string>} the colours of an advisory's severities, as its notice has them */
const TONES = { stop: "--bad", warn: "--warn", note: "--ink-3" };
const TINY = new Set(["learning_rate"]); // whose own scale is small
export const COMPONENT = /^rewards\/(.+)\/mean$/;

/** @param {string} name of a metric that shares its chart with others */
const nameOf = (name) => (has(`metric.${name}`) ? t(`metric.${name}`) : name);

export class Chart {
  /**
   * @param {Spec} spec
   * @param {Curves} all
   */
  constructor(spec, all) {
    this.spec = spec;
    this.all = all;
    this.visible = false;
    this.drawn = false;
    this.dirty = true;
    this.revision = 0;
    /** @type {Line[]} */
    this.lines = [];
    this.legend = h("div", { class: "chart-figures" });
    this.stepText = h("span", { class: "chart-step muted" });
    this.cross = h("div", { class: "chart-cross", hidden: true });
    this.plot = h("div", { class: "chart-plot" });
    const remove = h(
      "button",
      {
        class: "button button-quiet button-icon button-small",
        type: "button",
        "aria-label": t("remove_curve", { name: spec.title }),
        onclick: () => all.options.onRemove(this.spec.key),
      },
      icon("close"),
    );
    const head = h(
      "header",
      { class: "chart-head" },
      h("h3", { title: has(`about.${spec.key}`) ? t(`about.${spec.key}`) : null }, spec.title),
      this.stepText,
      this.legend,
      spec.removable && remove,
    );
    this.node = h(
      "figure",
      { class: "chart", "data-chart": spec.key },
      head,
      h("div", { class: "chart-box" }, this.plot, this.cross),
    );
  }

  /** Take the lines from the state: of a zoomed chart the part that is known more closely, where it is. */
  read() {
    const { state, view, range } = this.all;
    this.lines = this.spec.names.map((name, at) => {
      const whole = state?.curves.get(name) ?? { steps: [], values: [], attempts: [] };
      const curve = shownCurve(whole, state?.parts.get(name), range);
      const part = name.match(COMPONENT)?.[1] ?? "";
      const label = this.all.options.components[part] ?? (part || this.spec.names.length < 2 ? part : nameOf(name));
      const how = name.startsWith(HELD_OUT) ? { ...view, smooth: 0 } : view;
      return { name, label, at: this.placeOf(part, at), ...drawnLine(curve, how) };
    });
  }

  /**
   * The place that gives a line its colour: a component's is that in the spec, on every page.
   * @param {string} part name of the component
   * @param {number} at place in this chart
   */
  placeOf(part, at) {
    const place = Object.keys(this.all.options.components).indexOf(part);
    return place < 0 ? at : place;
  }

  /** The heading of a chart that nobody has looked at yet. */
  name() {
    if (this.legend.children.length === this.spec.names.length) return;
    this.read();
    this.figures(null);
  }

  /** Draw the lines as they were read. */
  draw() {
    this.dirty = false;
    const css = getComputedStyle(document.documentElement);
    const colour = (/** @type {string} */ name) => css.getPropertyValue(name).trim();
    const { log } = this.all.view;
    const range = this.all.range ?? this.all.span; // of all charts: the same step stands at the same place in each
    const baselines = this.all.options.baselines[this.spec.key] ?? [];
    const seen = this.lines.flatMap((line) => [line, line.ghost ?? line]).flatMap((part) => seenValues(part, range));
    const tiny = this.spec.names.every((name) => TINY.has(name));
    const values = valueRange([...seen, ...baselines.map((item) => item.y)], { log, tiny });
    const lines = baselineShapes(baselines, colour("--ink-3"), log);
    const bands = stageShapes(this.all.state?.run?.health?.stages ?? [], range, colour("--ink-3"), this.width());
    const tone = (/** @type {string} */ severity) => colour(TONES[severity] ?? "--ink-3");
    const marks = markShapes(this.all.marksOf(this.spec), range, tone, this.width(), bands.annotations.length ? 1 : 0);
    const layout = {
      ...frameOf({ range, values, log, colour }),
      // The arrays grow in place as points arrive; Plotly only looks at them again when this changes.
      datarevision: (this.revision += 1),
      shapes: [...bands.shapes, ...marks.shapes, ...lines.shapes],
      annotations: [...bands.annotations, ...marks.annotations, ...lines.annotations],
    };
    const traces = this.lines.flatMap((line) => this.traces(line, colour(`--curve-${line.at % 8}`)));
    this.all.options.plotly.react(this.plot, traces, layout, {
      displayModeBar: false,
      responsive: false,
      doubleClick: false,
      showTips: false,
    });
    if (!this.drawn) this.listen();
    this.drawn = true;
    this.point(null);
  }

  /**
   * @param {Line} line
   * @param {string} tone
   * @returns {any[]}
   */
  traces(line, tone) {
    if (!line.name.startsWith(HELD_OUT)) return lineTraces(line, tone);
    const curve = this.all.state?.curves.get(line.name);
    const ends = ["low", "high"].map((end) => this.all.state?.curves.get(`${line.name}_${end}`));
    return [starTrace({ x: line.x, y: curve?.values ?? line.y }, ends, this.all.view.log, tone)];
  }

  listen() {
    const plot = /** @type {any} */ (this.plot);
    plot.on("plotly_hover", (/** @type {any} */ event) => this.all.point(Math.round(event.points[0].x)));
    plot.on("plotly_unhover", () => this.all.point(null));
    /** @type {any} */
    let click = null; // waits a moment: the first half of a double click must not leave the page
    let doubleAt = -Infinity;
    plot.on("plotly_click", (/** @type {any} */ event) => {
      clearTimeout(click);
      if (performance.now() - doubleAt < DOUBLE_CLICK_MS) return;
      const step = Math.round(event.points[0].x);
      click = setTimeout(() => this.all.options.onStep(step), DOUBLE_CLICK_MS);
    });
    plot.on("plotly_doubleclick", () => {
      clearTimeout(click);
      doubleAt = performance.now();
      this.all.zoom(null);
    });
    plot.on("plotly_relayout", (/** @type {any} */ change) => {
      const from = change["xaxis.range[0]"];
      if (from !== undefined) this.all.zoom([from, change["xaxis.range[1]"]]);
    });
  }

  /** @param {number | null} step */
  point(step) {
    if (!this.drawn) return;
    setText(this.stepText, step === null ? "" : `${t("step")} ${step}`);
    this.figures(step);
    const range = /** @type {any} */ (this.plot).layout?.xaxis?.range;
    this.cross.hidden = step === null || !range || step < range[0] || step > range[1];
    if (this.cross.hidden || step === null) return;
    const at = MARGIN.l + ((step - range[0]) / (range[1] - range[0])) * this.width();
    this.cross.style.transform = `translateX(${at}px)`;
  }

  /** Pixels that the steps have. */
  width() {
    return this.plot.clientWidth - MARGIN.l - MARGIN.r;
  }

  /** @param {number | null} step */
  figures(step) {
    setAttr(this.legend, "data-many", this.lines.length > 1 ? "" : null);
    while (this.legend.children.length > this.lines.length) this.legend.lastElementChild?.remove();
    this.lines.forEach((line, at) => {
      let item = this.legend.children[at];
      if (!item) {
        item = h(
          "span",
          { class: "chart-figure" },
          h("span", { class: "chart-key" }),
          h("span", { class: "chart-label" }),
          h("b"),
        );
        this.legend.append(item);
      }
      setAttr(item, "data-curve", line.at % 8);
      setText(item.children[1], line.label);
      setText(
        item.children[2],
        figure(step === null ? last(line.y) : (valueAt(line.x, line.y, step, line.reach) ?? null)),
      );
    });
  }
}
