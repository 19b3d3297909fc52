// @ts-check
/** One chart: a heading with the newest (or the pointed-at) figures, lines by Plotly, a crosshair. */
import { h, has, icon, setAttr, setText, t } from "./dom.js";
import { figure } from "./format.js";
import { baselineShapes, markShapes, stageShapes } from "./shapes.js";
import { decimate, flatRange, last, positive, smooth, valueAt } from "./series.js";

/** @typedef {{name: string, label: string, at: number, x: number[], y: (number | null)[]}} Line */
/** @typedef {import("./curves.js").Spec} Spec */
/** @typedef {import("./curves.js").Curves} Curves */

const MARGIN = { l: 46, r: 10, t: 6, b: 20 };
const POINTS = 800;
const DOUBLE_CLICK_MS = 320;
const HELD_OUT = "heldout/";
/** @type {Record<string, string>} the colours of an advisory's severities, as its notice has them */
const TONES = { stop: "--bad", warn: "--warn", note: "--ink-3" };
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

  /** Take the lines from the state, thinned to what a chart this wide can show. */
  read() {
    const { state, view } = this.all;
    this.lines = this.spec.names.map((name, at) => {
      const curve = /** @type {import("./state.js").Curve} */ (state?.curves.get(name));
      const y = smooth(view.log ? positive(curve.values) : curve.values, view.smooth);
      const part = name.match(COMPONENT)?.[1] ?? "";
      const label = this.all.options.components[part] ?? (part || this.spec.names.length < 2 ? part : nameOf(name));
      return { name, label, at: this.placeOf(part, at), x: curve.steps, y };
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

  /** Draw the lines as they were read. */
  draw() {
    this.dirty = false;
    const css = getComputedStyle(document.documentElement);
    const colour = (/** @type {string} */ name) => css.getPropertyValue(name).trim();
    const traces = this.lines.map((line) => {
      const thin = decimate(line.x, line.y, POINTS);
      const few = thin.x.length < 3;
      if (line.name.startsWith(HELD_OUT)) return this.stars(line, colour(`--curve-${line.at % 8}`));
      return {
        type: "scatter",
        mode: few ? "markers" : "lines",
        x: thin.x,
        y: thin.y,
        hoverinfo: "none",
        connectgaps: false,
        showlegend: false,
        line: { color: colour(`--curve-${line.at % 8}`), width: 1.5 },
        marker: { color: colour(`--curve-${line.at % 8}`), size: 5 },
      };
    });
    const axis = {
      color: colour("--ink-3"),
      gridcolor: colour("--line"),
      linecolor: colour("--line"),
      zeroline: false,
      tickfont: { size: 10 },
    };
    const range = this.all.range ?? this.all.span; // of all charts: the same step stands at the same place in each
    const baselines = this.all.options.baselines[this.spec.key] ?? [];
    const flat = this.all.view.log
      ? null
      : flatRange([...this.lines.flatMap((line) => line.y), ...baselines.map((item) => item.y)]);
    const width = range ? range[1] - range[0] : 0;
    const lines = baselineShapes(baselines, colour("--ink-3"), this.all.view.log);
    const bands = stageShapes(this.all.state?.run?.health?.stages ?? [], range, colour("--ink-3"), this.width());
    const tone = (/** @type {string} */ severity) => colour(TONES[severity] ?? "--ink-3");
    const marks = markShapes(this.all.marksOf(this.spec), range, tone, this.width(), bands.annotations.length ? 1 : 0);
    const layout = {
      // The arrays grow in place as points arrive; Plotly only looks at them again when this changes.
      datarevision: (this.revision += 1),
      margin: MARGIN,
      height: 150,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      hovermode: "x",
      dragmode: "zoom",
      font: { family: colour("--font-text"), size: 11, color: colour("--ink-2") },
      showlegend: false,
      shapes: [...bands.shapes, ...marks.shapes, ...lines.shapes],
      annotations: [...bands.annotations, ...marks.annotations, ...lines.annotations],
      xaxis: {
        ...axis,
        showgrid: false,
        showline: true,
        nticks: 6,
        dtick: width < 6 ? 1 : undefined, // no half steps
        tickformat: ",d",
        range: range ? [...range] : undefined,
        autorange: range === null,
      },
      yaxis: {
        ...axis,
        fixedrange: true,
        nticks: 5,
        type: this.all.view.log ? "log" : "linear",
        range: flat ?? undefined,
        autorange: flat === null,
        exponentformat: "e",
        automargin: false,
      },
    };
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
   * Evaluations: a ★ each with its interval. They are few, and no average of their neighbours.
   * @param {Line} line
   * @param {string} tone
   */
  stars(line, tone) {
    const curve = this.all.state?.curves.get(line.name);
    const values = curve?.values ?? line.y;
    const end = (/** @type {string} */ name) => {
      const found = this.all.state?.curves.get(`${line.name}_${name}`);
      return line.x.map((step, at) => {
        const value = found ? valueAt(found.steps, found.values, step) : undefined;
        return value === undefined || value === null || values[at] === null ? 0 : Math.abs(value - Number(values[at]));
      });
    };
    return {
      type: "scatter",
      mode: "lines+markers",
      x: line.x,
      y: this.all.view.log ? positive(values) : values,
      hoverinfo: "none",
      showlegend: false,
      line: { color: tone, width: 1, dash: "dot" },
      marker: { color: tone, size: 9, symbol: "star" },
      error_y: {
        type: "data",
        symmetric: false,
        array: end("high"),
        arrayminus: end("low"),
        color: tone,
        thickness: 1,
        width: 3,
      },
    };
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
      setText(item.children[2], figure(step === null ? last(line.y) : (valueAt(line.x, line.y, step) ?? null)));
    });
  }
}
