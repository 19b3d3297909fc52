// @ts-check
/** One chart: a heading with the newest (or the pointed-at) figures, its lines, a crosshair. */
import { h, has, icon, setAttr, setText, t } from "./dom.js";
import { figure, percent } from "./format.js";
import { MARK_AXIS } from "./around.js";
import { moved, stepAt } from "./axis.js";
import { menuOf } from "./chart-menu.js";
import { GHOST, TOTAL, endsAt, readLines, tracesOf } from "./lines.js";
import { paint } from "./painter.js";
import { MARGIN, frameOf, styles } from "./plot.js";
import { follow } from "./pointing.js";
import { last, valueAt, valueRange } from "./series.js";
import { baselineShapes, markShapes, stageShapes } from "./shapes.js";

/** @typedef {import("./lines.js").Line} Line */
/** @typedef {import("./specs.js").Spec} Spec */
/** @typedef {import("./curves.js").Curves} Curves */

/** @type {Record<string, string>} the colours of an advisory's severities, as its notice has them */
const TONES = { stop: "--bad", warn: "--warn", note: "--ink-3" };
const SCROLLS = 12; // lines: their legend may be higher than its room, and is scrolled with the keyboard too
const TINY = new Set(["learning_rate"]); // whose own scale is small

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
    const about = `about.${spec.key}`;
    const head = h(
      "header",
      { class: "chart-head" },
      h("h3", { title: has(about) ? `${spec.title}\n${t(about)}` : spec.title }, spec.title),
      this.stepText,
      this.legend,
      menuOf(this),
      spec.removable && remove,
    );
    this.node = h(
      "figure",
      { class: "chart", "data-chart": spec.key },
      head,
      h("div", { class: "chart-box" }, this.plot, this.cross),
    );
    follow(this);
  }

  /** Take the lines of all runs as they are known now. */
  read() {
    this.lines = readLines(this.spec, this.all);
  }

  /** The heading of a chart that was not shown yet. */
  name() {
    if (this.legend.children.length) return;
    this.read();
    this.figures(null);
  }

  /** Draw the lines as they were read. */
  draw() {
    this.dirty = false;
    const colour = styles();
    const { log } = this.all.view;
    const range = this.all.range ?? this.all.span; // of all charts: the same step has the same place in each
    const baselines = this.all.options.baselines[this.spec.key] ?? [];
    const { traces, values, behind } = tracesOf(this.spec, this.all, this.lines, colour);
    const tiny = this.spec.names.every((name) => TINY.has(name));
    const scale = valueRange([...values, ...baselines.map((item) => item.y)], { log, tiny });
    const axes = frameOf({ range, values: scale, log, axis: this.all.view.x, shares: this.shares(), colour });
    const layout = {
      ...axes,
      height: this.plot.clientHeight || axes.height,
      yaxis2: MARK_AXIS,
      yaxis3: { ...MARK_AXIS, range: valueRange(behind) ?? [0, 1] },
      ...this.around(range, baselines, colour),
    };
    paint(this.plot, traces, layout);
    this.drawn = true;
    this.point(this.all.pointed);
  }

  /**
   * What is drawn around the lines: simple policies, stages, advisories.
   * @param {[number, number] | null} range
   * @param {import("./shapes.js").Baseline[]} baselines
   * @param {(name: string) => string} colour
   */
  around(range, baselines, colour) {
    const ink = colour("--ink-3");
    const steps = this.all.stepsOf(range);
    const tone = (/** @type {string} */ severity) => colour(TONES[severity] ?? "--ink-3");
    const lines = baselineShapes(baselines, ink, this.all.view.log);
    const bands = stageShapes(this.all.state?.run?.health?.stages ?? [], steps, ink, this.width());
    const marks = markShapes(this.all.marksOf(this.spec), steps, tone, this.width(), bands.annotations.length ? 1 : 0);
    const place = (/** @type {any[]} */ parts) => moved(parts, this.all.axis());
    return {
      shapes: [...place([...bands.shapes, ...marks.shapes]), ...lines.shapes],
      annotations: [...place([...bands.annotations, ...marks.annotations]), ...lines.annotations],
    };
  }

  /** @param {number | null} place on the axis */
  point(place) {
    if (!this.drawn) return;
    const step = place === null ? 0 : Math.round(stepAt(this.all.axis(), place));
    const moment = this.all.axis() && place !== null ? ` · ${t(`at_${this.all.view.x}`, { n: figure(place) })}` : "";
    setText(this.stepText, place === null ? "" : t("step_number", { n: step }) + moment);
    this.figures(place);
    const range = /** @type {any} */ (this.plot).layout?.xaxis?.range;
    this.cross.hidden = place === null || !range || place < range[0] || place > range[1];
    if (this.cross.hidden || place === null) return;
    const at = MARGIN.l + ((place - range[0]) / (range[1] - range[0])) * this.width();
    this.cross.style.transform = `translateX(${at}px)`;
  }

  /** Whether its values are shares of a whole, which the chart that answers shows in percent. */
  shares() {
    return this.all.isLead(this.spec) && this.spec.names.every((name) => this.all.options.shares?.includes(name));
  }

  /** Pixels that the steps have. */
  width() {
    return this.plot.clientWidth - MARGIN.l - MARGIN.r;
  }

  /** @param {number | null} place */
  figures(place) {
    setAttr(this.legend, "data-many", this.lines.length > 1 ? "" : null);
    setAttr(this.legend, "tabindex", this.lines.length > SCROLLS ? "0" : null);
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
      setAttr(item, "data-curve", line.at === TOTAL ? "total" : line.at === GHOST ? "ghost" : line.at % 8);
      setText(item.children[1], line.label);
      const value = place === null ? last(line.y) : (valueAt(line.x, line.y, place, line.reach) ?? null);
      setText(item.children[2], this.text(line, value, place));
    });
  }

  /**
   * A figure of the heading; of an evaluation with its interval.
   * @param {Line} line
   * @param {number | null} value
   * @param {number | null} place on the axis; null for the newest one
   */
  text(line, value, place) {
    const shown = this.shares() && line.at !== GHOST ? percent : figure;
    const ends = value === null ? null : endsAt(line, place ?? line.x[line.x.length - 1], this.all);
    return ends ? `${shown(value)} (${ends.map(shown).join(" – ")})` : shown(value);
  }
}
