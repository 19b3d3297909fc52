// @ts-check
/** Curves on one shared step axis: small multiples, one crosshair through all of them, figures in the headings. */
import { Chart } from "./chart.js";
import { batched, setAttr, setText, t } from "./dom.js";
import { figure } from "./format.js";
import { Folding, isStill } from "./folding.js";
import { lacksPoints } from "./closer.js";
import { last, stepSpan } from "./series.js";
import { placeOn, stepAt } from "./axis.js";
import { marksFor } from "./specs.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("./shapes.js").Mark} Mark */
/** @typedef {import("./specs.js").Spec} Spec */
/** @typedef {{smooth: number, log: boolean, x: string, stack: boolean, behind?: boolean}} View */
/**
 * A run whose curves are drawn: the page's own, with number 0, or another one. `alike`: its rewards were made in the
 * same way; else they must not be compared.
 * @typedef {object} Source
 * @property {number} number which gives its colour
 * @property {Map<string, import("./state.js").Curve>} curves
 * @property {Map<string, import("./state.js").Part>} parts
 * @property {Record<string, import("./axis.js").Axis> | null} axes null until they are known
 * @property {boolean} alike
 */

export const REDRAW_MS = 250;
const MANY = 3; // curves: with more, a chart's legend takes lines of its own
const TURN_MS = 30; // of drawing; then others have their turn

export class Curves {
  /**
   * @param {HTMLElement} box
   * @param {HTMLDetailsElement} fold where charts are put away in which nothing moves
   * @param {{baselines: Record<string, import("./shapes.js").Baseline[]>, components: Record<string, string>, weights: Record<string, number> | null, onRemove: (key: string) => void, onStep: (step: number) => void, marks?: () => Mark[], onZoom?: () => void, ended?: () => boolean, onStack?: () => void, onPin?: (spec: Spec) => void, csv?: (names: string[]) => string, picture?: (spec: Spec) => string, plotly: string, lead?: HTMLElement, leads?: string[], behind?: string, onBehind?: () => void, shares?: string[]}} options
   *   ``lead``: where the first chart of ``leads`` that there is is drawn large; ``behind``: the metric that is drawn
   *   faintly behind it; ``shares``: metrics that are shares of a whole
   */
  constructor(box, fold, options) {
    this.box = box;
    this.fold = fold;
    this.folding = new Folding();
    this.options = options;
    /** @type {Map<string, Chart>} */
    this.charts = new Map();
    /** @type {[number, number] | null} */
    this.range = null;
    /** @type {[number, number] | null} */
    this.span = null;
    /** @type {number | null} */
    this.pointed = null; // where the crosshair is, which a chart that is drawn again shows too
    /** @type {Spec[]} */
    this.specs = [];
    /** @type {View} */
    this.view = { smooth: 0, log: false, x: "step", stack: true };
    /** @type {Source[]} */
    this.sources = [];
    this.drawing = false;
    this.again = false;
    this.redraw = batched(() => this.draw(), REDRAW_MS);
    this.seen = new IntersectionObserver((entries) => this.onSeen(entries), { rootMargin: "200px" });
    new ResizeObserver(batched(() => this.resize(), 100)).observe(box);
    document.addEventListener("tiltyard:theme", () => this.recolour());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    matchMedia("print").addEventListener("change", () => this.drawAll());
  }

  /**
   * @param {State} state
   * @param {Spec[]} specs
   * @param {View} view
   * @param {Source[]} sources the page's own run, then the others
   */
  update(state, specs, view, sources) {
    if (view.x !== this.view.x) this.range = this.pointed = null; // of another axis
    this.state = state;
    this.specs = specs;
    this.sources = sources;
    this.view = view;
    const wanted = new Set(specs.map((spec) => spec.key));
    for (const [key, chart] of this.charts) {
      if (wanted.has(key)) continue;
      this.seen.unobserve(chart.node);
      chart.node.remove();
      this.charts.delete(key);
      this.pointed = null; // a chart that is gone does not notice that the pointer leaves it
    }
    const ended = this.options.ended?.() ?? false;
    const lead = this.options.lead ? specs.filter((spec) => this.isLead(spec)) : [];
    const rest = specs.filter((spec) => !lead.includes(spec));
    if (this.options.lead) this.place(this.options.lead, lead);
    const { shown, folded } = this.folding.split(rest, (spec) =>
      sources
        .filter((source) => source.number === 0 || spec.names.some((name) => source.curves.has(name)))
        .every((source) => isStill(spec, source.curves, ended)),
    );
    this.place(this.box, shown);
    this.place(/** @type {HTMLElement} */ (this.fold.querySelector(".charts")), folded);
    this.fold.hidden = !folded.length;
    setText(this.fold.querySelector("summary"), this.stillText(folded));
    this.redraw();
  }

  /**
   * Whether this is the chart that answers; where there is none of those, the first one is the best that there is.
   * @param {Spec} spec
   */
  isLead(spec) {
    const { leads } = this.options;
    if (!leads) return false;
    const key = leads.find((each) => this.specs.some((known) => known.key === each)) ?? this.specs[0]?.key;
    return spec.key === key;
  }

  /**
   * @param {HTMLElement} box
   * @param {Spec[]} specs in the order of their charts
   */
  place(box, specs) {
    specs.forEach((spec, place) => {
      let chart = this.charts.get(spec.key);
      if (!chart) {
        chart = new Chart(spec, this);
        this.charts.set(spec.key, chart);
        this.seen.observe(chart.node);
      }
      chart.spec = spec;
      chart.dirty = true;
      setAttr(chart.node, "data-wide", spec.names.length > MANY ? "" : null);
      chart.name(); // the heading takes its room before the chart is looked at
      if (box.children[place] !== chart.node) box.insertBefore(chart.node, box.children[place] || null);
    });
  }

  /**
   * The line of folded charts: their names and their values.
   * @param {Spec[]} folded
   */
  stillText(folded) {
    const names = folded.map((spec) => {
      const values = spec.names.map((name) => figure(last(this.state?.curves.get(name)?.values ?? [])));
      return `${spec.title} ${Array.from(new Set(values)).join(" / ")}`;
    });
    return t(folded.length === 1 ? "still_chart" : "still_charts", { n: folded.length, names: names.join(" · ") });
  }

  /**
   * The axis of a run; none for steps.
   * @param {Source | undefined} [source]
   */
  axis(source = this.sources[0]) {
    return this.view.x === "step" ? undefined : source?.axes?.[this.view.x];
  }

  /**
   * The steps of a run that are shown by a zoom, or by all charts together.
   * @param {[number, number] | null} range
   * @param {Source | undefined} [source]
   * @returns {[number, number] | null}
   */
  stepsOf(range, source = this.sources[0]) {
    const axis = this.axis(source);
    return range && [stepAt(axis, range[0]), stepAt(axis, range[1])];
  }

  /**
   * The curves of a run of which the server has more points of what is shown than are known here; those in view first.
   * @param {Source | undefined} [source]
   */
  coarse(source = this.sources[0]) {
    const charts = Array.from(this.charts.values()).sort((a, b) => Number(b.visible) - Number(a.visible));
    const names = charts.flatMap((chart) => chart.spec.names);
    const range = this.stepsOf(this.range, source);
    return names.filter((name) => lacksPoints(source?.curves.get(name), source?.parts.get(name), range));
  }

  /** First and last place of all curves: the same place of each chart is the same moment. */
  wholeSpan() {
    const names = Array.from(this.charts.values()).flatMap((chart) => chart.spec.names);
    const ends = this.sources.flatMap((source) =>
      names.map((name) => {
        const steps = source.curves.get(name)?.steps ?? [];
        const shown = steps.length ? [steps[0], steps[steps.length - 1]] : [];
        return shown.map((step) => placeOn(this.axis(source), step));
      }),
    );
    return this.axis() ? /** @type {[number, number]} */ ([0, Math.max(...ends.flat())]) : stepSpan(ends);
  }

  /**
   * All charts take their lines at once, so that they show the same steps, and are then drawn a few a turn of the
   * event loop, so that rollouts which arrive meanwhile are not held up. What changes meanwhile waits for the next
   * round: beginning again would leave the last charts behind for as long as figures arrive.
   */
  draw() {
    if (this.drawing) return void (this.again = true);
    const round = Array.from(this.charts.values()).filter((chart) => chart.visible && chart.dirty);
    if (this.sources.length) this.span = this.wholeSpan();
    for (const chart of round) chart.read();
    this.drawing = round.length > 0;
    const next = () => {
      const until = performance.now() + TURN_MS;
      do {
        const chart = round.shift();
        if (chart && this.charts.get(chart.spec.key) === chart) chart.draw();
      } while (round.length && performance.now() < until);
      if (round.length) return void setTimeout(next, 0);
      this.drawing = false;
      if (this.again) this.redraw();
      this.again = false;
    };
    if (this.drawing) next();
  }

  /** @param {IntersectionObserverEntry[]} entries */
  onSeen(entries) {
    for (const entry of entries) {
      for (const chart of this.charts.values()) if (chart.node === entry.target) chart.visible = entry.isIntersecting;
    }
    this.draw(); // at once: who looks at a chart shall not wait until the next round is due
  }

  /** The steps of which there is a checkpoint. */
  saved() {
    return (this.state?.checkpoints ?? []).filter((row) => row.state === "whole").map((row) => row.step);
  }

  /** @param {Spec} spec */
  marksOf(spec) {
    return marksFor(this.options.marks?.() ?? [], this.specs, spec);
  }

  recolour() {
    for (const chart of this.charts.values()) chart.dirty = true;
    this.redraw();
  }

  /** At once, also those that were not looked at: paper shows all, in its own colours and width. */
  drawAll() {
    for (const chart of this.charts.values()) {
      chart.read();
      chart.draw();
      chart.dirty = true; // for the next look on the screen
    }
  }

  resize() {
    for (const chart of this.charts.values()) if (chart.drawn) chart.dirty = true;
    this.redraw();
  }

  /**
   * Move the crosshair of every chart to a place on the axis; null takes it away.
   * @param {number | null} place
   */
  point(place) {
    this.pointed = place;
    for (const chart of this.charts.values()) chart.point(place);
  }

  /** @param {[number, number] | null} range */
  zoom(range) {
    this.range = range;
    this.pointed = null; // what is under the pointer is another step now
    this.options.onZoom?.();
    this.recolour();
  }
}
